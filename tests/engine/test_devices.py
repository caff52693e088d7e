"""Several devices, which a process must request before jax starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PARTS = {
  "harmony-alone": "one_device and harmony",
  "others-alone": "one_device and not harmony",
  "sampled": "sampled_clients",
  "bits": "bits or round_apart",
  "rest": "evaluated or a_run_moves or too_many or faults or two_devices",
  "killed": "killed or rounding",
}
"""Name -> -k expression of a process of its own."""

EXACT = ("bits", "killed")
"""Parts on bits, compiled as users do; the others with less effort."""


def run(
  words: str, quick: bool, marked: str = "not slow", count: int = 8
) -> subprocess.CompletedProcess:
  """Runs the tests of on_eight_devices.py whose names match `words`."""
  env = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
  env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
  if quick:
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
  return subprocess.run(
    [
      sys.executable, "-m", "pytest", "-q", "-p", "no:xdist",
      "-p", "no:cacheprovider", "-k", words, "-m", marked,
      "on_eight_devices.py",
    ],
    cwd=TESTS,
    env=env,
    capture_output=True,
    text=True,
  )  # fmt: skip


@pytest.mark.slow
def test_on_two_devices():
  done = run("two_devices", quick=True, count=2)
  assert done.returncode == 0, done.stdout[-6000:]
  assert "1 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_on_eight_devices(part):
  done = run(PARTS[part], part not in EXACT)
  assert done.returncode == 0, done.stdout[-6000:]
  assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.slow
def test_slow_ones_on_eight_devices():
  done = run("killed", False, "slow")
  assert done.returncode == 0, done.stdout[-6000:]
  assert "1 passed" in done.stdout


@pytest.mark.slow
def test_every_test_is_in_one_part():
  tests = "on_eight_devices.py"
  collected = [
    subprocess.run(
      [sys.executable, "-m", "pytest", "--collect-only", "-q", *words, tests],
      cwd=TESTS,
      capture_output=True,
      text=True,
    ).stdout.count("::")
    for words in ([], ["-k", " or ".join(f"({w})" for w in PARTS.values())])
  ]
  assert collected[0] == collected[1] == 19
