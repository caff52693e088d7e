"""Real processes that train: killed at random moments, or asked to stop."""

import os
import random
import signal
import socket
import time

import chex
import pytest
import tiny
from broken import step
from events import agree
from launched import config_file, launch
from runs import config, draft, lines, log_of, same_run

import splitjax
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


# Two processes of one run.

MEMBER = {"num_clients": 7, "data.partition.num_shards": 14}
"""The clients do not fill all devices."""

LAST = 15
"""Rounds of seconds, of which a checkpoint after each takes most."""


def pair(path, workdir):
  """Starts two processes, each with two devices; all checkpoints are kept."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  fields = {"rounds": LAST, "eval.every": LAST, "checkpoint.keep": LAST}
  flags = [f"--config.{x}={value}" for x, value in (MEMBER | fields).items()]
  flags += [f"--coordinator_address=127.0.0.1:{port}", "--num_processes=2"]
  return [launch(path, workdir, *flags, f"--process_id={n}") for n in range(2)]


def ended(processes):
  """What each process printed; asserts that none failed."""
  said = [process.communicate(timeout=300) for process in processes]
  for process, (_, err) in zip(processes, said, strict=True):
    assert process.returncode == 0, err
  return [out for out, _ in said]


@pytest.mark.slow
def test_two_processes_are_one_run(tmp_path, monkeypatch):
  """They are stopped, go on, and are compared with one."""
  two_devices = " --xla_force_host_platform_device_count=2"
  before = os.environ.get("XLA_FLAGS", "")
  monkeypatch.setenv("XLA_FLAGS", before + two_devices)
  path, workdir = config_file(tmp_path, "splitgp"), tmp_path / "w"
  both, log = pair(path, workdir), log_of(workdir)
  while all(process.poll() is None for process in both):
    if count(log) >= 3:
      both[0].send_signal(signal.SIGTERM)
      break
    time.sleep(0.02)
  assert "the same command" in ended(both)[0]
  done = len(lines(workdir))
  assert 3 <= done < LAST and step(workdir, done).exists()

  first, second = ended(pair(path, workdir))
  assert f"resumes after round {done}" in first and "report.md" in first
  assert "accuracy" not in second, "only process 0 reports"

  # The first two rounds are those of one process.
  alone = tiny.changed(draft("splitgp"), rounds=2)
  splitjax.config.assign(alone, MEMBER)
  experiment.run(tiny.resolved(alone), tmp_path / "one")
  two_of_them = [lines(place) for place in (workdir, tmp_path / "one")]
  assert [x["round"] for x in two_of_them[0]] == [*range(1, LAST + 1)]
  assert len(two_of_them[1]) == 2
  for two, one in zip(*two_of_them, strict=False):
    assert (two["method"], two["round"]) == (one["method"], one["round"])
    assert two["wire"] == one["wire"]
    assert two["loss"] == pytest.approx(one["loss"], abs=1e-5)
  # One process can read what both saved together.
  agree(workdir)
  kept = [
    splitjax.load(workdir, "own", round=2),
    splitjax.load(tmp_path / "one", "own"),
  ]
  for n in range(7):
    two, one = (x.client(n).params for x in kept)
    chex.assert_trees_all_close(two, one, atol=1e-5)
