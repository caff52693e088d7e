"""The console: a bar or plain lines, requests to stop, the machine's name.

With several processes only the first one prints.
"""

import contextlib
import math
import os
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from splitjax.reports.quantities import heading

CTRL_C = "Ctrl-C"

Stop = Callable[[], Any]
"""A function that is asked after every round; an answer that is not false, such
as "SIGTERM" or True, ends the run."""


class Stopped(Exception):
  """Raised when a run ends early; the message names the round.

  `requester` names who requested the stop, such as "SIGTERM".
  """

  def __init__(self, requester: str, progress: str):
    super().__init__(progress)
    self.requester = requester


def never() -> None:
  """Never requests a stop: the Stop of a run that ignores signals."""


def requested(stop: Stop) -> str | None:
  """Returns who asked process 0 to stop; None if nobody did."""
  from splitjax.experiment import machine

  answer = stop()
  if not machine.of_first(bool(answer)):
    return None
  return answer if isinstance(answer, str) else "the caller"


@contextlib.contextmanager
def listening() -> Iterator[Stop]:
  """Makes SIGTERM and Ctrl-C request a stop; yields the Stop that reports it.

  Ctrl-C after a request raises KeyboardInterrupt. Supervisors send SIGTERM
  before they take a machine away. Called outside the main thread, this sets no
  handlers, as Python lets only the main thread set them.
  """
  requests: list[str] = []

  def note(number: int, frame: Any) -> None:
    del frame
    interrupt = number == signal.SIGINT
    if interrupt and requests:
      raise KeyboardInterrupt
    requests.append(CTRL_C if interrupt else "SIGTERM")
    again = "; again to stop at once" if interrupt else ""
    line = f"\n{requests[-1]}: stopping after this round{again}\n"
    with contextlib.suppress(OSError):
      os.write(2, line.encode())  # safe in a handler, in contrast to print

  handlers: dict[signal.Signals, Any] = {}
  if threading.current_thread() is threading.main_thread():
    for number in (signal.SIGTERM, signal.SIGINT):
      if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
        handlers[number] = signal.signal(number, note)
  try:
    yield lambda: requests[0] if requests else None
  finally:
    for number, handler in handlers.items():
      if handler is not None:  # None: not installed from Python
        signal.signal(number, handler)


def say(text: str, *, to_stderr: bool = False) -> None:
  """Prints a line in the first process, above a bar if there is one.

  stdout is for the results of a command and for lines that report progress.
  """
  if _is_first():
    file: Any = sys.stderr if to_stderr else sys.stdout
    if hasattr(file, "reconfigure"):  # a notebook's stdout takes any letter
      # Printing the first ρ would otherwise end a training in some terminals.
      file.reconfigure(errors="replace")
    tqdm.write(text, file=file)
    file.flush()


def _is_first() -> bool:
  # This imports jax, for which no mistake should wait.
  from splitjax.experiment import machine

  return machine.is_first_process()


class Progress:
  """The progress of one training over its rounds.

  A terminal shows a bar; elsewhere each evaluation prints a line.
  """

  def __init__(self, label: str, rounds: int, done: int = 0):
    """Starts the display after `done` finished rounds."""
    self._label = label
    self._rounds = rounds
    self._done = done
    self._begun = time.monotonic()
    self._accuracy: Mapping[str, Mapping[str, float]] = {}
    self._bar = tqdm(
      total=rounds,
      initial=done,
      desc=label,
      unit="round",
      dynamic_ncols=True,
      disable=not (sys.stderr.isatty() and _is_first()),
    )

  def round(self, number: int, line: Mapping[str, Any]) -> None:
    """Shows a round's losses and the last accuracies, from its log line."""
    self._accuracy = line.get("accuracy") or self._accuracy
    text = "loss:"
    for name, loss in line["loss"].items():
      text += f" {name} {math.nan if loss is None else loss:.3f}"
    for row, accuracy in self._accuracy.items():
      sets = list(accuracy)
      ends = dict.fromkeys([sets[0], sets[-1]])
      shown = [f"{heading(name)} {100 * accuracy[name]:.1f}" for name in ends]
      text += f"  {row}: {', '.join(shown)} %"
    self._bar.set_postfix_str(text, refresh=False)
    self._bar.update()
    if line.get("accuracy") and not sys.stderr.isatty():
      rate = (number - self._done) / (time.monotonic() - self._begun)
      say(
        f"{self._label}: round {number}/{self._rounds}"
        f"  {rate:.2f} rounds/s  {(self._rounds - number) / rate:.0f} s left"
        f"  {text}"
      )

  def close(self) -> None:
    """Closes the bar."""
    self._bar.close()


CPUINFO = Path("/proc/cpuinfo")
"""Linux's file with the names of the processors."""


def hardware() -> str:
  """Returns devices, CPU and the versions of Python and jax in one line."""
  import jax

  from splitjax import target

  name = platform.processor()
  with contextlib.suppress(OSError):
    text = CPUINFO.read_text(encoding="utf-8")
    if match := re.search(r"^model name\s*: (.*)$", text, re.M):
      name = match[1]
  aim = target.current()
  return (
    f"{len(aim.devices)} {aim.kind} device(s) ({aim.platform}),"
    f" {os.cpu_count()} CPU cores{f' ({name})' if name else ''},"
    f" {platform.machine()}, Python {platform.python_version()},"
    f" jax {jax.__version__}"
  )
