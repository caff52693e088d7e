"""The console: a bar or plain lines, and requests to stop.

With several processes only the first one prints.
"""

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

from splitjax.reports.quantities import heading

CTRL_C = "Ctrl-C"

Stop = Callable[[], Any]
"""A function that is asked after every round; an answer that is not false, such
as "SIGTERM" or True, ends the run."""


class Stopped(Exception):
  """Raised when a run ends early; says which round and who asked for it."""

  def __init__(self, requester: str, progress: str):
    super().__init__(progress)
    self.requester = requester


def requested(stop: Stop | None) -> str | None:
  """Returns who asked process 0 to stop; None if nobody did."""
  from splitjax.experiment import machine

  answer = stop() if stop else None
  if not machine.of_first(bool(answer)):
    return None
  return answer if isinstance(answer, str) else "the caller"


@contextlib.contextmanager
def listening() -> Iterator[Stop]:
  """Makes SIGTERM and Ctrl-C request a stop; yields the Stop that reports it.

  Ctrl-C after a request raises KeyboardInterrupt. Supervisors send SIGTERM
  before they take a machine away. Outside the main thread nothing is noticed.
  """
  requests = list[str]()

  def note(number: int, frame: Any) -> None:
    del frame
    if number == signal.SIGINT and requests:
      raise KeyboardInterrupt
    requests.append(CTRL_C if number == signal.SIGINT else "SIGTERM")
    line = f"\n{requests[-1]}: stopping after this round; Ctrl-C: at once\n"
    with contextlib.suppress(OSError):
      os.write(2, line.encode())  # safe in a handler, in contrast to print

  handlers = dict[signal.Signals, Any]()
  try:
    with contextlib.suppress(ValueError):  # not the main thread
      for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
          handlers[number] = signal.signal(number, note)
    yield lambda: requests[0] if requests else None
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler or signal.SIG_DFL)


def say(text: str) -> None:
  """Prints a line in the first process, above a bar if there is one."""
  if _is_first():
    stdout: Any = sys.stdout
    if hasattr(stdout, "reconfigure"):  # a notebook's takes any letter
      # Printing the first ρ would otherwise end a training in some terminals.
      stdout.reconfigure(errors="replace")
    tqdm.write(text)
    stdout.flush()


def _is_first() -> bool:
  # This imports jax, for which no mistake should wait.
  from splitjax.experiment import machine

  return machine.is_first_process()


class Progress:
  """The progress of one training over its rounds.

  Each evaluation prints a line; a terminal shows a bar, too.
  """

  def __init__(self, key: str, label: str, rounds: int, trained: int = 0):
    """Starts the display of a method after `trained` rounds."""
    self._key = key
    self._label = label
    self._rounds = rounds
    self._trained = trained
    self._begun = time.monotonic()
    self._bar = tqdm(
      total=rounds,
      initial=trained,
      desc=label,
      unit="round",
      dynamic_ncols=True,
      disable=not (sys.stderr.isatty() and _is_first()),
    )

  def round(self, number: int, line: Mapping[str, Any]) -> None:
    """Shows a round, from its log line."""
    text = "loss:"
    for name, loss in line["loss"].items():
      text += f" {name} {math.nan if loss is None else loss:.3f}"
    if line.get("masked"):
      text += f"  updates left out: {len(line['masked'])}"
    self._bar.set_postfix_str(text, refresh=False)
    new = number - self._trained  # 0: a checkpoint's round
    self._bar.update(number - self._bar.n)
    if not line.get("accuracy") or not new:
      return
    for row, accuracy in line["accuracy"].items():
      sets = list(accuracy)
      ends = dict.fromkeys([sets[0], sets[-1]])
      shown = [f"{heading(name)} {100 * accuracy[name]:.1f}" for name in ends]
      name = self._label + row.removeprefix(self._key)
      text += f"  {name}: {', '.join(shown)} %"
    rate = new / (time.monotonic() - self._begun)
    say(
      f"{self._label}: round {number}/{self._rounds}  {rate:.2f} rounds/s"
      f"  {(self._rounds - number) / rate:.0f} s left  {text}"
    )

  def close(self) -> None:
    """Closes the bar."""
    self._bar.close()
