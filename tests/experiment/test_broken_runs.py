"""Damage to a run's folder: what is sound goes on, what is not is named."""

import errno
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
  pytest.mark.usefixtures("traced_once"),
  # orbax leaves coroutines behind when it cannot read an array.
  pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

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


def test_log_lines(runs, three):
  log, shared = three / "methods/own/rounds.jsonl", three / "metrics.jsonl"
  for path in (log, shared):  # of a round whose checkpoint is not complete
    with path.open("ab") as file:
      file.write(b'{"method":"own","round":4,"lo')
  experiment.run(config(), three)
  same_run(runs / "whole", three)
  assert log.read_bytes() == shared.read_bytes()


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


def test_a_half_written_step_is_nobody_s(runs, three):
  place = step(three, 3)
  place.rename(place.with_name("3.partial"))
  (place.with_name("3.partial") / "record.json").unlink()
  experiment.run(config(), three)
  same_run(runs / "whole", three)


def test_killed_before_the_first_checkpoint(runs, three):
  shutil.rmtree(three / "methods/own/checkpoints")
  experiment.run(config(), three)
  same_run(runs / "whole", three)


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


def test_what_a_kill_at_the_very_end_left_is_tidied(runs, three):
  # Killed after about.json was written, before its checkpoints were deleted.
  for name in ("state", "exits.npz", "about.json", "rounds.jsonl"):
    source = runs / "whole/methods/own" / name
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, three / "methods/own" / name)
  shutil.copy(runs / "whole/metrics.jsonl", three / "metrics.jsonl")
  experiment.run(config(), three)
  assert not (three / "methods/own/checkpoints").exists()
  same_run(runs / "whole", three)


def test_killed_while_the_end_was_written(runs, three):
  # state/ is there, about.json is not: what it says is not known to be whole.
  place = "methods/own/state"
  shutil.copytree(runs / "whole" / place, three / place)
  flip(data_file(three / "methods/own"))
  experiment.run(config(), three)
  same_run(runs / "whole", three)


def test_a_full_disk(runs, tmp_path, monkeypatch, capsys):
  stopped(config(), tmp_path / "w", 1)

  def full(self, *args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(ocp.StandardCheckpointer, "save", full)
  given = config().to_dict()
  assert (
    commands.launch(commands.Command("train", given, str(tmp_path / "w"))) == 2
  )
  err = capsys.readouterr().err
  assert err.startswith("error:") and len(err.splitlines()) == 1
  assert "No space left on device" in err and "same command resumes" in err
  monkeypatch.undo()
  assert step(tmp_path / "w", 1).exists()
  assert (
    commands.launch(commands.Command("train", given, str(tmp_path / "w"))) == 0
  )
  same_run(runs / "whole", tmp_path / "w")


def test_a_lock_of_a_dead_process_holds_nobody(runs, three):
  (three / ".lock").write_text("process 1 on mars")
  experiment.run(config(), three)
  same_run(runs / "whole", three)
  # In an empty folder, too: killed before its config was written.
  fresh = three.parent / "fresh"
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
