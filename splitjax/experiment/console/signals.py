"""Requests to stop a run, after the current round or at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

CTRL_C, SIGTERM = "Ctrl-C", "SIGTERM"

Stop = Callable[[], str | None]
"""A function that returns who asked to stop, such as "SIGTERM", or None."""


class Stopped(Exception):
  """Raised when a run ends early; the message names the round.

  `asked` names who requested the stop, such as "SIGTERM".
  """

  def __init__(self, asked: str, where: str):
    super().__init__(where)
    self.asked = asked


def never() -> None:
  """Never requests a stop: the Stop of a run that ignores signals."""
  return None


@contextlib.contextmanager
def listening() -> Iterator[Stop]:
  """Makes SIGTERM and Ctrl-C request a stop; yields the Stop that reports it.

  Ctrl-C after a request raises KeyboardInterrupt. Supervisors send SIGTERM
  before they take a machine away. Called outside the main thread, this sets no
  handlers, as Python lets only the main thread set them.
  """
  asked: list[str] = []

  def on_term(number, frame):
    del number, frame
    _note(asked, SIGTERM)

  def on_interrupt(number, frame):
    del number, frame
    if asked:
      raise KeyboardInterrupt
    _note(asked, CTRL_C)

  def stop():
    return asked[0] if asked else None

  if threading.current_thread() is not threading.main_thread():
    yield stop
    return
  handlers = {signal.SIGTERM: on_term, signal.SIGINT: on_interrupt}
  before: dict[signal.Signals, Any] = {}
  for number, handler in handlers.items():
    if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
      before[number] = signal.signal(number, handler)
  try:
    yield stop
  finally:
    for number, handler in before.items():
      if handler is not None:  # None: not installed from Python
        signal.signal(number, handler)


def _note(asked: list[str], signal_name: str) -> None:
  """Notes a request; prints with os.write, which is safe in a handler."""
  asked.append(signal_name)
  more = "; again to stop at once" if signal_name == CTRL_C else ""
  line = f"\n{signal_name}: stopping after this round{more}\n"
  with contextlib.suppress(OSError):
    os.write(2, line.encode())
