"""Two real processes of one run: stopped, gone on, with a broken checkpoint."""

import re
import shlex
import shutil
import signal
import time

import numpy as np
import pytest
import tiny
from broken import data_file, flip, step
from events import agree
from processes import ROOT, config_text, draft, free_port, start
from runs import lines

from splitjax import load
from splitjax.experiment import runner

ROUNDS = 15
"""Seconds, of which a checkpoint after each takes most; all are kept."""

LONG = (
  f"--config.rounds={ROUNDS}",
  "--config.checkpoint.every=1",
  f"--config.eval.every={ROUNDS}",
  f"--config.checkpoint.keep={ROUNDS}",
)


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


def pair(path, workdir, *more):
  flags = (f"--config={path}", f"--workdir={workdir}", *LONG, *more)
  port = free_port()
  return [start(n, port, *flags) for n in range(2)]


@pytest.mark.slow
def test_two_tasks_of_slurm_are_one_run(tmp_path):
  path, workdir = tmp_path / "config.py", tmp_path / "w"
  path.write_text(config_text())
  # The flags of the page, for another config and workdir.
  page = (ROOT / "docs" / "running.md").read_text()
  (line,) = re.findall(r"^srun python launch.py (.*)$", page, re.M)
  config, place, *flags = shlex.split(line)
  assert config.startswith("--config=") and place.startswith("--workdir=")
  # Preemption may reach one machine only: all end after the same round.
  told = stopped(pair(path, workdir, *flags), workdir, [1])
  for status, _, err in told:
    assert status == 0, err
  assert "the same command" in told[0][1]
  before = rounds_of(workdir)
  assert 3 <= before < ROUNDS
  other = shutil.copytree(workdir, tmp_path / "other")

  # They go on to the end.
  told = ended(pair(path, workdir))
  for status, _, err in told:
    assert status == 0, err
  assert f"resumes after round {before}" in told[0][1]
  assert "report.md" in told[0][1]
  assert "accuracy" not in told[1][1], "only the first process reports"

  # The first two rounds are those of one process.
  alone = tmp_path / "one"
  assert runner.run(tiny.resolved(draft()), alone)["rows"]
  two_of_them = lines(workdir), lines(alone)
  assert [x["round"] for x in two_of_them[0]] == [*range(1, ROUNDS + 1)]
  assert len(two_of_them[1]) == 2
  for two, one in zip(*two_of_them, strict=False):
    assert (two["method"], two["round"]) == (one["method"], one["round"])
    assert two["wire"] == one["wire"]
    for name, loss in one["loss"].items():
      assert two["loss"][name] == pytest.approx(loss, abs=1e-5)
  # One process can read what both saved together.
  agree(workdir, "splitgp")
  kept = load(workdir, "splitgp", round=2), load(alone, "splitgp")
  for n in range(7):
    two, one = (k.client(n).segment.params for k in kept)
    assert two.keys() == one.keys()
    bias = [p["block1"]["Dense_0"]["bias"] for p in (two, one)]
    np.testing.assert_allclose(*bias, atol=1e-5)

  # Neither may go on from what the other cannot read, and nothing is moved.
  broken = step(other, before, "splitgp")
  flip(data_file(broken))
  for status, _, err in ended(pair(path, other)):
    assert status == 2
    assert "cannot be read by all processes" in err
  assert broken.exists()
