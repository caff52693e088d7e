"""Several devices, which a process must request before jax starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


@pytest.mark.slow
def test_on_eight_devices():
  """A process of its own, which runs the tests of on_eight_devices.py."""
  command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
  # Beside the flags of all tests: this process inherits that they were tried.
  flags = os.environ["XLA_FLAGS"], "--xla_force_host_platform_device_count=8"
  done = subprocess.run(
    [*command, "-p", "no:cacheprovider", "on_eight_devices.py"],
    cwd=TESTS,
    env={**os.environ, "XLA_FLAGS": " ".join(flags)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout[-6000:]
  assert " passed" in done.stdout and "skipped" not in done.stdout
