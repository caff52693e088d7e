"""Real processes that train: killed at random moments, or asked to stop."""

import random
import signal
import time

import pytest
from test_broken_runs import config_file, launch
from test_resume import ROUNDS, config, lines, same_run

from splitjax import experiment, signals

FEW, MANY = 2, 50
"""Kills in the suite, and in the slow run."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The run that nobody disturbed, as the command line makes it."""
  place = tmp_path_factory.mktemp("whole")
  path = config_file(place, "harmony")
  process = launch(path, place / "w")
  _, err = process.communicate(timeout=500)
  assert process.returncode == 0, err
  return place / "w", path


def wait_for(process, log, count):
  """Waits until metrics.jsonl has so many lines, or the process is over."""
  while process.poll() is None:
    if log.exists() and log.read_text().count("\n") >= count:
      return
    time.sleep(0.02)


def kill_often(whole, workdir, kills):
  """Kills a run at random moments, then lets it end. Returns its rounds."""
  reference, path = whole
  draw, seen = random.Random(kills), []
  for n in range(kills):
    process = launch(path, workdir)
    if n % 2:  # while it starts, compiles or goes on
      time.sleep(draw.uniform(0.5, 8))
    else:  # in the rounds, or while a checkpoint is written
      known = sum(1 for _ in open_or_none(workdir))
      wait_for(process, workdir / "metrics.jsonl", known + 1)
      time.sleep(draw.uniform(0, 0.1))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    seen.append(sum(1 for _ in open_or_none(workdir)))
  process = launch(path, workdir)
  out, err = process.communicate(timeout=500)
  assert process.returncode == 0, err
  assert "Traceback" not in err
  same_run(reference, workdir)
  assert [x["round"] for x in lines(workdir)] == list(range(1, ROUNDS + 1))
  return seen, out


def open_or_none(workdir):
  log = workdir / "metrics.jsonl"
  return log.read_text().splitlines() if log.exists() else []


def test_killed_at_random_moments(whole, tmp_path):
  seen, _ = kill_often(whole, tmp_path / "w", FEW)
  print(f"{FEW} kills, lines of metrics.jsonl after each: {seen}")


@pytest.mark.slow
def test_killed_fifty_times(whole, tmp_path):
  # A run that is killed too early to keep anything would never end: every
  # second kill waits for a round.
  for n in range(MANY // 5):
    seen, _ = kill_often(whole, tmp_path / str(n), 5)
    print(f"run {n}: 5 kills, lines after each: {seen}")


def test_sigterm_ends_the_round_and_keeps_it(whole, tmp_path):
  reference, path = whole
  process = launch(path, tmp_path / "w")
  wait_for(process, tmp_path / "w/metrics.jsonl", 1)
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=300)
  assert process.returncode == 0, err
  said = [x for x in out.splitlines() if x.startswith("stopped by SIGTERM")]
  if not said:  # it came with the last round: the run is whole
    assert "report.md has it in full" in out
  else:
    assert "the same command goes on from there: python" in said[0]
    assert f"--workdir={tmp_path / 'w'}" in said[0]
    done = len(lines(tmp_path / "w"))
    assert f"own: {done} of {ROUNDS} rounds done" in said[0]
    kept = tmp_path / f"w/methods/own/checkpoints/{done}"
    assert kept.exists()
  assert not (tmp_path / "w/.lock").exists()
  _, err = launch(path, tmp_path / "w").communicate(timeout=300)
  same_run(reference, tmp_path / "w")


def test_ctrl_c_once_and_twice(whole, tmp_path):
  _, path = whole
  process = launch(path, tmp_path / "w")
  time.sleep(2)  # before anything was compiled
  process.send_signal(signal.SIGINT)
  time.sleep(0.2)
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=300)
  assert process.returncode in (130, -signal.SIGINT), err
  resolved = config("local")
  with signals.listening() as stop:
    assert stop() is None
    signal.raise_signal(signal.SIGINT)
    assert stop() == signals.CTRL_C
    with pytest.raises(signals.Stopped) as stopped:
      experiment.run(resolved, tmp_path / "v", stop=stop)
    assert stopped.value.asked == signals.CTRL_C
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
  assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
  try:
    with signals.listening() as stop:
      signal.raise_signal(signal.SIGTERM)
      assert stop() is None
  finally:
    signal.signal(signal.SIGTERM, before)
