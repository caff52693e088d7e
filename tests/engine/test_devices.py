"""Several devices, which a process must request before jax starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PARTS = {
  "sampled": ("sampled_clients", "a_buffer"),
  "faults": ("faults", "too_many"),
  "evaluated": ("not_evaluated", "a_run_moves"),
  "two": ("two_devices",),
  "killed": ("killed", "rounding", "same_bits"),
  "host": ("on_the_host",),
}
"""Name -> words of the tests of a process of its own."""

EXACT = ("killed", "host")
"""Parts on bits, compiled as users do; the others with less effort."""


def run(part: str, count: int) -> subprocess.CompletedProcess:
  """Runs a part of on_eight_devices.py with so many devices."""
  env = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
  env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
  if part not in EXACT:
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
  return pytest_of("-q", "-k", " or ".join(PARTS[part]), env=env)


def pytest_of(*arguments, env=None) -> subprocess.CompletedProcess:
  """Runs pytest on on_eight_devices.py."""
  return subprocess.run(
    [
      sys.executable, "-m", "pytest", "-p", "no:xdist",
      "-p", "no:cacheprovider", *arguments, "on_eight_devices.py",
    ],
    cwd=TESTS,
    env=env,
    capture_output=True,
    text=True,
  )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_on_several_devices(part):
  done = run(part, count=2 if part == "two" else 8)
  assert done.returncode == 0, done.stdout[-6000:]
  assert " passed" in done.stdout and "skipped" not in done.stdout


def test_every_test_is_in_one_part():
  text = (TESTS / "on_eight_devices.py").read_text()
  names = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
  assert len(names) == 13
  for name in names:
    parts = [p for p, words in PARTS.items() if any(w in name for w in words)]
    assert len(parts) == 1, name
