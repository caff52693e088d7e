"""Damage to a run's folder: what is sound goes on, what is not is named."""

import builtins
import errno
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from broken import data_file, flip, rewrite_record, step
from launched import command
from marks import slow
from refusals import refused
from runs import config, log_of, same_run, stopped

import splitjax
from splitjax import UserError, cli, experiment
from splitjax.experiment import storage

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
  # orbax leaves coroutines behind when it cannot read an array.
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_coroutine_is_left():
  """Collects them here: elsewhere the warning would be an error."""
  yield
  gc.collect()


CALLS = (
  lambda workdir: experiment.run(config(rounds=5), workdir),
  splitjax.report_again,
  splitjax.evaluate_again,
)
"""What works on a folder: trains in it, reports and evaluates it."""


def cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def reword(path):
  """Changes a text without breaking the JSON around it."""
  path.write_bytes(path.read_bytes().replace(b"round", b"sound"))


DAMAGED = {
  "a byte flipped in the numbers": lambda s: flip(data_file(s)),
  "numbers cut short": lambda s: cut(data_file(s)),
  "numbers gone": lambda s: data_file(s).unlink(),
  "the state gone": lambda s: shutil.rmtree(s / "state"),
  "structure gone": lambda s: (s / "state/_METADATA").unlink(),
  "an empty record": lambda s: (s / "record/metadata").write_text(""),
  "a record of nothing": lambda s: (s / "record/metadata").write_text("{}"),
  "a byte flipped in the record": lambda s: flip(s / "record/metadata"),
  "record gone": lambda s: shutil.rmtree(s / "record"),
  "a byte flipped in the log": lambda s: flip(s / "record/metadata", 0.3),
  "another word in the log": lambda s: reword(s / "record/metadata"),
  "an empty folder": lambda s: (shutil.rmtree(s), s.mkdir()),
}
"""Damage to the last checkpoint: the one before is taken."""


def unfinished_line(three):
  with log_of(three).open("ab") as file:
    file.write(b'{"method":"own","round":4,"lo')


def config_never_written(three):
  shutil.rmtree(three)
  three.mkdir()
  (three / "config.json.partial").write_text("{")
  (three / ".lock").write_text("process 1 on mars")


LEFT = {
  "a line of the log": unfinished_line,
  "a partial checkpoint": lambda three: shutil.copytree(
    step(three, 3), step(three, 4).with_name("4.orbax-checkpoint-tmp")
  ),
  "no checkpoint": lambda three: shutil.rmtree(step(three, 3).parent),
  "partial files": lambda three: (
    three / "methods/own/numbers.csv.partial"
  ).write_text("seed"),
  "results without about.json": lambda three: (
    three / "methods/own/numbers.csv"
  ).write_text("seed\n"),
  "no config": config_never_written,
  "half a log": lambda three: cut(log_of(three)),
  "no log": lambda three: log_of(three).unlink(),
}
"""What a killed process, or somebody else, may have left in a folder."""

SOON = (
  *("a byte flipped in the numbers", "record gone"),
  *("no checkpoint", "no config", "half a log"),
)
"""Those that are tried in every run of the tests."""

HARM = DAMAGED | LEFT


@pytest.mark.parametrize(
  "harm", [*SOON, *slow(*(x for x in HARM if x not in SOON))]
)
def test_a_run_goes_on_as_if_nothing_had_been(harm, runs, three, capsys):
  HARM[harm](step(three, 3) if harm in DAMAGED else three)
  experiment.run(config(), three)
  said = capsys.readouterr().out
  damaged = harm in DAMAGED
  assert ("checkpoint of round 3 is damaged" in said) == damaged
  assert not damaged or "resumes after round 2" in said
  same_run(runs / "whole", three)
  assert not list(three.rglob("*.partial")) and not list(three.rglob("*-tmp"))


def test_the_tenth_round_is_newer_than_the_ninth(tmp_path):
  for number in (9, 10, 100):
    (tmp_path / "checkpoints" / str(number)).mkdir(parents=True)
  assert storage.steps_of(tmp_path) == [9, 10, 100]


def test_damaged_checkpoints_are_put_aside(runs, three, capsys):
  for number in (2, 3):
    flip(data_file(step(three, number)))
  with pytest.raises(UserError, match="no checkpoint is sound"):
    experiment.run(config(), three)
  assert capsys.readouterr().out.count("is damaged") == 2
  place = three / "methods/own/damaged"
  assert {path.name for path in place.iterdir()} == {"3-0", "2-1"}
  experiment.run(config(), three)  # as the message says
  same_run(runs / "whole", three)


@pytest.mark.parametrize(
  "name", ["numbers.csv", "exits.npz", "rounds.jsonl", "about.json"]
)
@pytest.mark.parametrize("harm", [flip, *slow(cut)])
def test_results_are_inside_a_digest(name, harm, runs, tmp_path, capsys):
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  path = workdir / "methods/own" / name
  before = path.read_bytes()
  harm(path)
  for look in (splitjax.report_again, splitjax.evaluate_again):
    with refused(str(path.parent)):
      look(workdir)
  with refused(str(path.parent)):
    splitjax.load(workdir, "own")
  experiment.run(config(), workdir)  # as the line says
  assert "made again from the last checkpoint" in capsys.readouterr().out
  same_run(runs / "whole", workdir)
  if name in ("exits.npz", "rounds.jsonl"):
    assert path.read_bytes() == before


@pytest.mark.parametrize(
  "content", ["", "{", '{"config": 3, "data": {}}', "null"]
)
@pytest.mark.parametrize("name", ["config.json", "grid.json"])
def test_what_claims_a_folder_is_not_written_over(name, content, three):
  (three / name).write_text(content)
  calls = CALLS if name == "config.json" else CALLS[1:2]
  for call in calls:
    with refused(str(three)):
      call(three)
  assert (three / name).read_text() == content
  assert step(three, 3).exists()


def test_another_version_is_said(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(jax, "__version__", "0.1")
  stopped(config(), tmp_path / "w", 2)
  monkeypatch.undo()
  results = experiment.run(config(), tmp_path / "w")
  (said,) = [note for note in results.runs[0].notes if "jax 0.1;" in note]
  assert said in capsys.readouterr().out and "rounds until 2 are of" in said


def test_a_state_of_another_version_is_refused(three):
  rewrite_record(step(three, 3), form="another")
  with refused(str(step(three, 3))):
    experiment.run(config(), three)
  assert step(three, 3).exists()


def test_a_digest_is_of_names_dtypes_shapes_and_bits():
  zeros = np.zeros((2, 3), np.float32)
  forms = [
    *({"a": zeros}, {"b": zeros}, {"a": zeros.astype(np.int32)}),
    *({"a": np.zeros((2, 4), np.float32)}, {"a": jax.random.key(0)}),
  ]
  bits = [{"a": zeros + 1}, {"a": jax.random.key(1)}]
  assert len({*map(storage.form, forms)}) == len(forms)
  assert len({*map(storage.form, forms + bits)}) == len(forms)
  assert len({*map(storage.digest, forms + bits)}) == len(forms + bits)


def test_a_trained_method_is_compared_before_it_is_used(runs, tmp_path):
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  flip(data_file(step(workdir, 4)))
  with refused(str(step(workdir, 4))):
    splitjax.load(workdir, "own")


# What cannot be read now is not damaged, and what is written stays here.


@pytest.mark.parametrize(
  "name", ["methods/own/checkpoints", "methods/own/rounds.jsonl", "config.json"]
)
def test_what_cannot_be_read_is_one_line(name, runs, three, monkeypatch):
  def refuse(real):
    def call(path, *args, **kwargs):
      if str(path) == str(three / name):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
      return real(path, *args, **kwargs)

    return call

  monkeypatch.setattr(os, "listdir", refuse(os.listdir))
  monkeypatch.setattr(builtins, "open", refuse(open))
  with refused(str(three / name)) as caught:
    experiment.run(config(), three)
  assert "check the permissions" in str(caught.value)
  monkeypatch.undo()
  experiment.run(config(), three)
  same_run(runs / "whole", three)


@pytest.mark.parametrize(
  "error", [MemoryError("full"), ValueError("open: Too many open files")]
)
def test_what_cannot_be_restored_now_is_not_damaged(error, three, monkeypatch):
  def fail(*args, **kwargs):
    raise error

  monkeypatch.setattr(ocp.Checkpointer, "restore", fail)
  with refused(str(step(three, 3))):
    experiment.run(config(), three)
  assert step(three, 3).exists()


LINKS = (
  "report.csv.partial",
  "config.json.partial",
  ".lock",
  "methods/own/rounds.jsonl",
  "methods/own/numbers.csv.partial",
  "methods/own/checkpoints/9",
  "evaluate",
  "tensorboard/own/events.x",
)


@pytest.mark.parametrize("name", [*LINKS[:4], *slow(*LINKS[4:])])
def test_links_are_not_followed(name, runs, tmp_path):
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  target = tmp_path / "precious"
  target.write_text("precious")
  (workdir / name).unlink(missing_ok=True)
  (workdir / name).symlink_to(target)
  for call in CALLS:
    with refused(str(workdir / name)):
      call(workdir)
  assert target.read_text() == "precious"


def test_a_link_to_a_folder_is_not_followed(runs, tmp_path):
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  target = tmp_path / "precious"
  (target / "methods").mkdir(parents=True)  # evaluating would empty it
  (workdir / "evaluate").symlink_to(target)
  for call in CALLS:
    with refused(str(workdir / "evaluate")):
      call(workdir)
  assert [path.name for path in target.rglob("*")] == ["methods"]


@pytest.mark.parametrize(
  ("code", "remedy"),
  [
    (errno.ENOSPC, "make room on the disk"),
    *slow(
      (errno.EMFILE, "raise the limit of open files"),
      (errno.EIO, "start the same command again"),
    ),
  ],
)
def test_a_disk_that_fails(code, remedy, runs, tmp_path, monkeypatch, capsys):
  stopped(config(), tmp_path / "w", 1)

  def fail(self, *args, **kwargs):
    raise OSError(code, "as the system says")

  monkeypatch.setattr(ocp.CheckpointManager, "save", fail)
  plan = splitjax.config.plan(config())
  train = command("train", plan=plan, workdir=tmp_path / "w")
  assert cli.launch(train) == 2
  err = capsys.readouterr().err
  assert err.startswith("error:") and len(err.splitlines()) == 1
  assert remedy in err
  monkeypatch.undo()
  assert step(tmp_path / "w", 1).exists()
  assert cli.launch(train) == 0
  same_run(runs / "whole", tmp_path / "w")


def test_a_disk_without_locks_is_said(three, monkeypatch, capsys):
  def none(*_):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr("fcntl.flock", none)
  experiment.run(config(), three)
  assert "make sure that no second process" in capsys.readouterr().out


HOLD = """
import sys
from pathlib import Path
from splitjax import experiment
with experiment.held(Path(sys.argv[1])):
  print("held", flush=True)
  sys.stdin.read()
"""


def test_one_process_at_a_time(runs, tmp_path):
  """For training, evaluating and reporting alike."""
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  command = [sys.executable, "-c", HOLD, str(workdir)]
  pipe = subprocess.PIPE
  with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as other:
    assert other.stdout.readline() == b"held\n"
    for call in CALLS:
      with refused("--workdir") as caught:
        call(workdir)
      assert f"process {other.pid} on" in str(caught.value)
    other.communicate(b"")
  splitjax.report_again(workdir)
