"""Processes that benchmarks start: one for each point, with a time limit.

A peak of memory is that of a process, and a compilation that takes too long can
only be ended with its process. The parent process uses no device.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

GRACE = 30
"""Seconds that a process gets to end itself and its child processes."""

HASTY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
"""Environment of a smoke test: compiles in a third of the time."""


def stoppable() -> None:
  """Turns SIGTERM into an exception, so that child processes end as well."""
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def run(
  command: Sequence[str], seconds: float, env: dict[str, str] | None = None
) -> tuple[str, str]:
  """Runs a command for at most so many seconds; `env` changes its environment.

  Returns its output, and the reason of a failure ("" without one).
  """
  with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
    process = subprocess.Popen(
      command, stdout=out, stderr=err, env={**os.environ, **(env or {})}
    )
    why = ""
    try:
      process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
      why = f"stopped after {seconds:.0f} s"
    finally:
      process.terminate()
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
      process.kill()
      process.wait()
    out.seek(0)
    err.seek(0)
    if process.returncode and not why:
      last = err.read().strip().splitlines()[-1:]
      why = " ".join([f"exit status {process.returncode}", *last])
    return out.read(), why


def merged(text: str) -> dict[str, Any]:
  """Joins the lines of a text that are JSON objects; later keys count."""
  result: dict[str, Any] = {}
  for line in text.splitlines():
    if line.startswith("{"):
      with contextlib.suppress(json.JSONDecodeError):
        result |= json.loads(line)
  return result


def module(name: str, *arguments: str) -> list[str]:
  """The command of a benchmark."""
  return [sys.executable, "-m", f"benchmarks.{name}", *arguments]


def cached(folder: str) -> dict[str, str]:
  """Environment of a process with a compilation cache in a folder."""
  return {
    "JAX_COMPILATION_CACHE_DIR": folder,
    "JAX_ENABLE_COMPILATION_CACHE": "true",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
