"""Real processes that train: killed at random moments, or asked to stop."""

import random
import signal
import time

import pytest
from events import agree
from launched import config_file, launch
from runs import config, lines, log_of, same_run

from splitjax import experiment

MANY = 3
"""Kills of the test that kills at random."""

ROUNDS = 8
SLOW = (f"--config.rounds={ROUNDS}", "--config.local_epochs=100")
"""Rounds long enough to be killed in."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A run that was not disturbed, as the command line makes it."""
  place = tmp_path_factory.mktemp("whole")
  path = config_file(place, "splitgp")
  process = launch(path, place / "w", *SLOW)
  _, err = process.communicate(timeout=500)
  assert process.returncode == 0, err
  return place / "w", path


def count(log):
  """How many lines a log has; 0 if there is none."""
  return log.read_bytes().count(b"\n") if log.exists() else 0


def wait_for(process, log, lines):
  """Waits until a log has so many lines, or the process is over."""
  while process.poll() is None and count(log) < lines:
    time.sleep(0.02)


def kill_often(whole, workdir, kills, draw):
  """Kills a run at random moments, then lets it end.

  Returns:
    For every process that was killed the lines of the log that it left.
  """
  reference, path = whole
  log, seen = log_of(workdir), []
  for n in range(kills):
    process = launch(path, workdir, *SLOW)
    if n % 2:  # while it starts, compiles, goes on or ends
      time.sleep(draw.uniform(0.5, 8))
    else:  # in the rounds, or while a checkpoint is written
      wait_for(process, log, count(log) + 1)
      time.sleep(draw.uniform(0, 0.5))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if process.returncode == -signal.SIGKILL:  # else it was over before
      seen.append(count(log))
  process = launch(path, workdir, *SLOW)
  out, err = process.communicate(timeout=500)
  assert process.returncode == 0, err
  assert "Traceback" not in err and "damaged" not in out
  same_run(reference, workdir)
  agree(workdir)
  assert [x["round"] for x in lines(workdir)] == list(range(1, ROUNDS + 1))
  return seen


@pytest.mark.slow
def test_killed_again_and_again(whole, tmp_path):
  """After SIGTERM, which ends the round and keeps it, if it comes in time."""
  path, workdir = whole[1], tmp_path / "0"
  process = launch(path, workdir, *SLOW)
  wait_for(process, log_of(workdir), 1)
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=300)
  assert process.returncode == 0, err
  said = [x for x in out.splitlines() if x.startswith("stopped by SIGTERM")]
  if not said:  # it came with the last round: the run is whole
    assert "report.md" in out
  else:
    assert "the same command continues from there: python" in said[0]
    assert f"--workdir={workdir}" in said[0]
    done = len(lines(workdir))
    assert f"own: {done} of {ROUNDS} rounds done" in said[0]
    assert (workdir / f"methods/own/checkpoints/{done}").exists()

  draw, seen = random.Random(1), []
  while len(seen) < MANY:
    seen += kill_often(whole, tmp_path / str(len(seen)), MANY, draw)
  print(f"killed {len(seen)} times, lines left each time: {seen}")


@pytest.mark.slow
def test_ctrl_c_twice_stops_at_once(tmp_path):
  path = config_file(tmp_path, "local")
  minutes = "--config.local_epochs=300000"  # that a round would take
  process = launch(path, tmp_path / "w", minutes)
  assert process.stdout.readline().startswith("devices: ")
  assert process.stdout.readline() == "own: compiling\n"
  time.sleep(4)
  process.send_signal(signal.SIGINT)
  time.sleep(0.5)
  assert process.poll() is None
  process.send_signal(signal.SIGINT)
  start = time.monotonic()
  _, err = process.communicate(timeout=300)
  assert process.returncode == 130, err
  said = [line for line in err.splitlines() if line]
  assert said[0].startswith("Ctrl-C: stopping after this round")
  assert said[1].startswith("interrupted: the same command continues")
  print(f"stopped {time.monotonic() - start:.1f} s after the second Ctrl-C")
  assert (
    count(tmp_path / "w/methods/own/rounds.jsonl") == 0
  )  # no round was over


def test_ctrl_c_once_ends_the_round(tmp_path):
  resolved = config("local")
  with experiment.listening() as stop:
    assert stop() is None
    signal.raise_signal(signal.SIGINT)
    assert stop() == experiment.CTRL_C
    with pytest.raises(experiment.Stopped) as stopped:
      experiment.run(resolved, tmp_path / "v", stop=stop)
    assert stopped.value.requester == experiment.CTRL_C
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
  assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
