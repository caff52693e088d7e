"""The machine that a run is on, for its report."""

import contextlib
import os
import platform
from pathlib import Path

import jax

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux tells what processors there are."""


def hardware() -> str:
  """The machine and the versions of this process, in one line."""
  device, name = jax.devices()[0], processor()
  return (
    f"{jax.device_count()} {device.device_kind} device(s) ({device.platform}),"
    f" {os.cpu_count()} CPU cores{f' ({name})' if name else ''},"
    f" {platform.machine()}, Python {platform.python_version()},"
    f" jax {jax.__version__}"
  )


def processor() -> str:
  """The processor's name; "" where the platform does not tell it."""
  with contextlib.suppress(OSError):
    for line in CPUINFO.read_text(encoding="utf-8").splitlines():
      field, _, value = line.partition(":")
      if field.strip() == "model name":
        return value.strip()
  return platform.processor()
