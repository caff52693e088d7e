"""Two real processes of one run: stopped, gone on, with a broken checkpoint."""

import signal
import time

import pytest
from broken import data_file, flip, step
from processes import config_text, free_port, start

LONG = ("--config.rounds=5000", "--config.checkpoint.every=1")
"""More rounds than anybody waits for."""


def rounds_of(workdir):
  """How many lines the log has."""
  log = workdir / "metrics.jsonl"
  return log.read_bytes().count(b"\n") if log.exists() else 0


def stopped(pair, workdir, who):
  """SIGTERM to some, three rounds from now; what each said in the end."""
  goal = rounds_of(workdir) + 3
  while rounds_of(workdir) < goal and all(p.poll() is None for p in pair):
    time.sleep(0.02)
  for n in who:
    pair[n].send_signal(signal.SIGTERM)
  return ended(pair)


def ended(pair):
  said = [process.communicate(timeout=300) for process in pair]
  return [(p.returncode, *s) for p, s in zip(pair, said, strict=True)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  path = tmp_path_factory.mktemp("two") / "config.py"
  path.write_text(config_text())
  return path


def pair(path, workdir):
  flags = (f"--config={path}", f"--workdir={workdir}", *LONG)
  port = free_port()
  return [start(n, port, *flags) for n in range(2)]


@pytest.mark.slow
def test_stopped_gone_on_and_broken(path, tmp_path):
  workdir = tmp_path / "w"
  # Preemption may reach one machine only: all end after the same round.
  told = stopped(pair(path, workdir), workdir, [1])
  for status, _, err in told:
    assert status == 0, err
  assert "the same command" in told[0][1]
  before = rounds_of(workdir)
  assert before

  told = stopped(pair(path, workdir), workdir, [0, 1])
  for status, _, err in told:
    assert status == 0, err
  assert f"resumes after round {before}" in told[0][1]
  after = rounds_of(workdir)
  assert after > before

  # Neither may go on from what the other cannot read, and nothing is moved.
  broken = step(workdir, after, "splitgp")
  flip(data_file(broken))
  for status, _, err in ended(pair(path, workdir)):
    assert status == 2
    assert "cannot be read by all processes" in err
  assert broken.exists()
