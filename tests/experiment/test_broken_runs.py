"""Damage to a run's folder: what is sound goes on, what is not is named."""

import errno
import gc
import shutil

import orbax.checkpoint as ocp
import pytest
from broken import DAMAGE, cut, data_file, flip, step
from marks import slow
from refusals import refused
from runs import config, same_run, stopped

import splitjax
from splitjax import UserError, commands, experiment

pytestmark = [
  # orbax leaves coroutines behind when it cannot read an array.
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def no_coroutine_is_left():
  """Collects them here: elsewhere the warning would be an error."""
  yield
  gc.collect()


QUICK = "a byte flipped in the numbers", "record gone"


@pytest.mark.parametrize(
  "damage", [*QUICK, *slow(*(x for x in DAMAGE if x not in QUICK))]
)
def test_the_one_before_is_taken(damage, runs, three, capsys):
  DAMAGE[damage](step(three, 3))
  experiment.run(config(), three)
  said = capsys.readouterr().out
  assert "checkpoint of round 3 is damaged" in said
  assert "resumes after round 2" in said
  same_run(runs / "whole", three)


def test_nothing_sound_is_left(runs, three, capsys):
  for round in (2, 3):
    flip(data_file(step(three, round)))
  with pytest.raises(UserError, match="no checkpoint is sound; delete"):
    experiment.run(config(), three)
  assert capsys.readouterr().out.count("is damaged") == 2
  assert step(three, 2).exists() and step(three, 3).exists()
  shutil.rmtree(three / "methods/own")  # as the message says
  experiment.run(config(), three)
  same_run(runs / "whole", three)


def test_a_damaged_checkpoint_is_none_of_the_newest(three):
  # It would be kept in place of one that is sound.
  flip(data_file(step(three, 3)))
  step(three, 3).rename(step(three, 4))
  stopped(config(), three, 1, before=2)
  assert not step(three, 4).exists()
  assert step(three, 2).exists() and step(three, 3).exists()


def copied(runs, three, *names):
  """Files that the end of a run writes, from the whole run."""
  for name in names:
    source = runs / "whole" / name
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, three / name)


def before_its_checkpoint_was_complete(runs, three):
  for log in ("methods/own/rounds.jsonl", "metrics.jsonl"):
    with (three / log).open("ab") as file:
      file.write(b'{"method":"own","round":4,"lo')


def while_a_checkpoint_was_written(runs, three):
  partial = step(three, 3).rename(step(three, 3).with_name("3.partial"))
  (partial / "record.json").unlink()


def before_the_first_checkpoint(runs, three):
  shutil.rmtree(three / "methods/own/checkpoints")


def while_the_end_was_written(runs, three):
  # state/ is there, about.json is not: what it says is not known to be whole.
  copied(runs, three, "methods/own/state")
  flip(data_file(three / "methods/own"))


def before_its_checkpoints_were_deleted(runs, three):
  names = "state", "exits.npz", "numbers.csv", "about.json", "rounds.jsonl"
  copied(runs, three, "metrics.jsonl", *(f"methods/own/{x}" for x in names))


def with_its_lock(runs, three):
  (three / ".lock").write_text("process 1 on mars")


@pytest.mark.parametrize(
  "killed",
  [
    before_its_checkpoint_was_complete,
    while_a_checkpoint_was_written,
    before_the_first_checkpoint,
    while_the_end_was_written,
    before_its_checkpoints_were_deleted,
    with_its_lock,
  ],
)
def test_what_a_killed_process_left_is_tidied(killed, runs, three):
  killed(runs, three)
  experiment.run(config(), three)
  same_run(runs / "whole", three)
  logs = three / "methods/own/rounds.jsonl", three / "metrics.jsonl"
  assert len({log.read_bytes() for log in logs}) == 1
  assert not (three / "methods/own/checkpoints").exists()


def test_lost_log_lines_are_refused(three):
  log = three / "methods/own/rounds.jsonl"
  cut(log)
  with refused(str(three / "methods/own/rounds.jsonl")):
    experiment.run(config(), three)
  assert step(three, 3).exists()


@pytest.mark.parametrize(
  "error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()]
)
def test_what_cannot_be_read_now_is_not_damaged(error, three, monkeypatch):
  def refused(self, *args, **kwargs):
    raise error

  monkeypatch.setattr(ocp.StandardCheckpointer, "restore", refused)
  with pytest.raises((OSError, MemoryError)):
    experiment.run(config(), three)
  assert step(three, 2).exists() and step(three, 3).exists()


@pytest.mark.parametrize(
  "content", ["", "{", '{"config": 3, "data": {}}', "null"]
)
def test_a_damaged_config_is_not_written_over(content, three):
  (three / "config.json").write_text(content)
  with pytest.raises(UserError, match="damaged|no run of this program"):
    experiment.run(config(), three)
  for look in (splitjax.report_again, splitjax.evaluate_again):
    with pytest.raises(UserError):
      look(three)
  assert (three / "config.json").read_text() == content
  assert step(three, 3).exists()


def test_a_finished_method_is_compared_before_it_is_used(runs, tmp_path):
  shutil.copytree(runs / "whole", tmp_path / "w")
  place = tmp_path / "w/methods/own"
  flip(data_file(place))
  with pytest.raises(UserError, match="state is damaged .* delete"):
    splitjax.load(tmp_path / "w", "own")
  shutil.rmtree(place)  # as the message says
  experiment.run(config(), tmp_path / "w")
  same_run(runs / "whole", tmp_path / "w")


def test_a_full_disk(runs, tmp_path, monkeypatch, capsys):
  stopped(config(), tmp_path / "w", 1)

  def full(self, *args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(ocp.StandardCheckpointer, "save", full)
  plan = splitjax.config.plan(config())
  train = commands.Command("train", plan, tmp_path / "w")
  assert commands.launch(train) == 2
  err = capsys.readouterr().err
  assert err.startswith("error:") and len(err.splitlines()) == 1
  assert "No space left on device" in err and "same command resumes" in err
  monkeypatch.undo()
  assert step(tmp_path / "w", 1).exists()
  assert commands.launch(train) == 0
  same_run(runs / "whole", tmp_path / "w")


def test_killed_before_its_config_was_written(runs, tmp_path):
  fresh = tmp_path / "fresh"
  fresh.mkdir()
  (fresh / ".lock").write_text("process 1 on mars")
  (fresh / "config.json.partial").write_text("{")
  experiment.run(config(), fresh)
  same_run(runs / "whole", fresh)


def test_a_disk_without_locks_is_said(three, monkeypatch, capsys):
  def none(*_):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr("fcntl.flock", none)
  experiment.run(config(), three)
  assert "make sure that no second process" in capsys.readouterr().out


def test_a_method_elsewhere(runs, tmp_path):
  """A key that leads to the record of another run is no method of this one."""
  for name in "ab":
    shutil.copytree(runs / "whole", tmp_path / name)
  with pytest.raises(UserError, match="holds no finished method"):
    splitjax.load(tmp_path / "a", "../../b/methods/own")
  assert splitjax.load(tmp_path / "a", "own").config.rounds == 4
