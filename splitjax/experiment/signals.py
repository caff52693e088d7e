"""Being told to stop: after the round, with everything kept; or at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

CTRL_C = "Ctrl-C"

Stop = Callable[[], str | None]
"""Says who asked to stop, "SIGTERM" or "Ctrl-C"; None while nobody has."""


class Stopped(Exception):
  """A run ended early, as it was asked to; the text says where.

  Attributes:
    asked: who asked, as `Stop` says it.
  """

  def __init__(self, asked: str, where: str):
    super().__init__(where)
    self.asked = asked


def never() -> None:
  """The Stop of whoever does not listen."""
  return None


@contextlib.contextmanager
def listening() -> Iterator[Stop]:
  """Takes SIGTERM and the first Ctrl-C as a wish, the second as an order.

  What supervisors send before they take a machine away is SIGTERM. Outside of
  the main thread nothing is changed: there Python gives no say.

  Yields:
    A Stop.
  """
  asked: list[str] = []

  def on_term(number, frame):
    del number, frame
    _note(asked, "SIGTERM")

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
  wanted = {signal.SIGTERM: on_term, signal.SIGINT: on_interrupt}
  before: dict[signal.Signals, Any] = {}
  for number, handler in wanted.items():
    if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, say
      before[number] = signal.signal(number, handler)
  try:
    yield stop
  finally:
    for number, handler in before.items():
      if handler is not None:  # else it was not Python's: it stays ours
        signal.signal(number, handler)


def _note(asked: list[str], who: str) -> None:
  """Remembers a wish; says so by a bare write, as a handler must."""
  asked.append(who)
  more = "; again to stop at once" if who == CTRL_C else ""
  line = f"\n{who}: stopping after this round{more}\n"
  with contextlib.suppress(OSError):
    os.write(2, line.encode())
