"""Facts about the machine, for a run's report."""

import contextlib
import os
import platform
from pathlib import Path

import jax

from splitjax import target

CPUINFO = Path("/proc/cpuinfo")
"""Linux's file with the names of the processors."""


def hardware() -> str:
  """Returns devices, CPU and the versions of Python and jax in one line."""
  goal, name = target.current(), processor()
  return (
    f"{len(goal.devices)} {goal.kind} device(s) ({goal.platform}),"
    f" {os.cpu_count()} CPU cores{f' ({name})' if name else ''},"
    f" {platform.machine()}, Python {platform.python_version()},"
    f" jax {jax.__version__}"
  )


def processor() -> str:
  """Returns the processor's name; "" where the platform does not tell it."""
  with contextlib.suppress(OSError):
    for line in CPUINFO.read_text(encoding="utf-8").splitlines():
      field, _, value = line.partition(":")
      if field.strip() == "model name":
        return value.strip()
  return platform.processor()
