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
from pathlib import Path
from typing import Any

from tabulate import tabulate

GRACE = 30
"""Seconds that a process gets to end itself and its child processes."""

HASTY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
"""Environment of a smoke test: compiles in a third of the time."""


def stoppable() -> None:
  """Turns SIGTERM into an exception, so that child processes end as well."""
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def stop(process: subprocess.Popen) -> None:
  """Ends a process if it is running."""
  process.terminate()
  try:
    process.wait(GRACE)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()


def run(
  command: Sequence[str], seconds: float, env: dict[str, str] | None = None
) -> tuple[str, str]:
  """Runs a command.

  Args:
    command: and its arguments.
    seconds: time limit.
    env: changes to its environment.

  Returns:
    Its output, and the reason of a failure ("" without one).
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
      stop(process)
    out.seek(0)
    err.seek(0)
    if process.returncode and not why:
      last = err.read().strip().splitlines()[-1:]
      why = " ".join([f"exit status {process.returncode}", *last])
    return out.read(), why


class Asked:
  """A process that answers every JSON object with one, a line each."""

  def __init__(self, command: Sequence[str], env: dict[str, str] | None = None):
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as opened:
      self.errors = opened.enter_context(tempfile.TemporaryFile("w+"))
      pipes = {"stdin": pipe, "stdout": pipe, "stderr": self.errors}
      self.process = subprocess.Popen(
        command, text=True, bufsize=1, env=env, **pipes
      )
      opened.pop_all()  # closed here only if the process did not start

  def answer(self) -> dict:
    """Reads one answer.

    Raises:
      RuntimeError: the process has ended; with its last line of errors.
    """
    line = self.process.stdout.readline()
    if not line:
      self.process.wait()
      self.errors.seek(0)
      last = self.errors.read().strip().splitlines()[-1:]
      raise RuntimeError(" ".join(last) or f"exit {self.process.returncode}")
    return json.loads(line)

  def ask(self, **question) -> dict:
    """Sends a question and waits for the answer."""
    with contextlib.suppress(BrokenPipeError):  # `answer` says why
      self.process.stdin.write(json.dumps(question) + "\n")
    return self.answer()

  def close(self) -> None:
    """Lets the process end, which it does when no question can come."""
    with contextlib.suppress(BrokenPipeError):
      self.process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
      self.process.wait(GRACE)
    stop(self.process)
    self.process.stdout.close()
    self.errors.close()


def objects(text: str) -> list[dict]:
  """The lines of a text that are JSON objects."""
  result = []
  for line in text.splitlines():
    if line.startswith("{"):
      with contextlib.suppress(json.JSONDecodeError):
        result.append(json.loads(line))
  return result


def module(name: str, *arguments: str) -> list[str]:
  """The command of a benchmark."""
  return [sys.executable, "-m", f"benchmarks.{name}", *arguments]


def measure(
  point: dict[str, Any], seconds: float, env: dict[str, str] | None = None
) -> dict[str, Any]:
  """Measures a point of `measure_one`; without env nothing is cached.

  Returns:
    All that its process printed; with "failed", the reason, if it failed.
  """
  if seconds < 1:
    return {"failed": "not started, out of time"}
  cold = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
  text, why = run(
    module("measure_one", json.dumps(point)),
    seconds,
    cold if env is None else env,
  )
  result: dict[str, Any] = {}
  for part in objects(text):
    result |= part
  return {**result, "failed": why} if why else result


def cached(folder: str) -> dict[str, str]:
  """Environment of a process with a compilation cache in a folder."""
  return {
    "JAX_COMPILATION_CACHE_DIR": folder,
    "JAX_ENABLE_COMPILATION_CACHE": "true",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }


def about(points: Sequence[dict]) -> dict[str, Any]:
  """Device, cores and version of jax, as the first point that told them."""
  told = [point for point in points if "device" in point][:1]
  return {k: told[0][k] for k in ("device", "cores", "jax")} if told else {}


def table_of(columns: dict[str, str], points: dict[str, dict]) -> str:
  """Tabulates points in Markdown, without columns that none has a value of."""

  def text(value):  # floats with three digits or more
    if not isinstance(value, float):
      return value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"

  every = points.values()
  used = {h: k for h, k in columns.items() if any(p.get(k) for p in every)}
  rows = [
    [n, *(text(p.get(k)) for k in used.values())] for n, p in points.items()
  ]
  how = {"disable_numparse": True, "stralign": "right", "missingval": "–"}
  return tabulate(rows, ("", *used), "github", **how)


def keep(out: Path | None, text: str, result: dict[str, Any]) -> None:
  """Writes a JSON object and a text beside it; None: nothing."""
  if out is not None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".md").write_text(text + "\n")
