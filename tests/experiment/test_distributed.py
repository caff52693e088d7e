"""Two real processes of one run: stopped, gone on, compared with one."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny
from broken import step
from events import agree
from launched import ROOT
from runs import lines, log_of

from splitjax import experiment, load

ROUNDS = 15
"""Seconds, of which a checkpoint after each takes most; all are kept."""

LONG = (
  f"--config.rounds={ROUNDS}",
  "--config.checkpoint.every=1",
  f"--config.eval.every={ROUNDS}",
  f"--config.checkpoint.keep={ROUNDS}",
)

CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests/helpers")!r})
sys.path.insert(0, {str(ROOT / "tests/experiment")!r})
import test_distributed, undrawn
undrawn.draw_nothing()
get_config = test_distributed.draft
"""


def draft():
  """The config of the run; its clients do not fill all devices."""
  c = tiny.tiny(splitgp="splitgp")
  c.num_clients = 7
  c.data.partition.num_shards = 14
  return c


def pair(path, workdir):
  """Starts two processes, each with two devices."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  flags = os.environ.get("XLA_FLAGS", "")
  env = {
    **os.environ,
    "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
  }
  command = [
    *(sys.executable, "launch.py", f"--config={path}", f"--workdir={workdir}"),
    *(f"--coordinator_address=127.0.0.1:{port}", "--num_processes=2", *LONG),
    f"--compilation_cache={ROOT / '.jax_cache'}",
  ]
  pipe = subprocess.PIPE
  options = {"cwd": ROOT, "env": env, "stdout": pipe, "stderr": pipe}
  return [
    subprocess.Popen([*command, f"--process_id={n}"], text=True, **options)
    for n in range(2)
  ]


def ended(processes):
  """What each process printed; asserts that none failed."""
  said = [process.communicate(timeout=300) for process in processes]
  for process, (_, err) in zip(processes, said, strict=True):
    assert process.returncode == 0, err
  return [out for out, _ in said]


@pytest.mark.slow
def test_two_processes_are_one_run(tmp_path):
  path, workdir = tmp_path / "config_of_pair.py", tmp_path / "w"
  path.write_text(CONFIG)
  both, log = pair(path, workdir), log_of(workdir, "splitgp")
  while all(process.poll() is None for process in both):
    if log.exists() and log.read_bytes().count(b"\n") >= 3:
      both[0].send_signal(signal.SIGTERM)
      break
    time.sleep(0.02)
  assert "the same command" in ended(both)[0]
  before = len(lines(workdir, "splitgp"))
  assert 3 <= before < ROUNDS and step(workdir, before, "splitgp").exists()

  # They go on to the end.
  first, second = ended(pair(path, workdir))
  assert f"resumes after round {before}" in first and "report.md" in first
  assert "accuracy" not in second, "only process 0 reports"

  # The first two rounds are those of one process.
  alone = tmp_path / "one"
  assert experiment.run(tiny.resolved(draft()), alone).rows
  two_of_them = [lines(place, "splitgp") for place in (workdir, alone)]
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
    two, one = (k.client(n).params for k in kept)
    assert two.keys() == one.keys()
    bias = [p["block1"]["Dense_0"]["bias"] for p in (two, one)]
    np.testing.assert_allclose(*bias, atol=1e-5)
