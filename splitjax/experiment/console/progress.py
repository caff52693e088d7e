"""A run's progress: a bar on a terminal, plain lines elsewhere.

With several processes only the first one prints.
"""

import sys
import time

from tqdm import tqdm

from splitjax import machine
from splitjax.files import print_anywhere


class Progress:
  """The progress of one training over its rounds.

  A terminal shows a bar; elsewhere each evaluation prints a line.
  """

  def __init__(self, label: str, rounds: int, done: int = 0):
    """Starts the display after `done` finished rounds."""
    self._label, self._rounds, self._done = label, rounds, done
    self._lines = not sys.stderr.isatty()
    self._begun = time.monotonic()
    self._bar = tqdm(
      total=rounds,
      initial=done,
      desc=label,
      unit="round",
      dynamic_ncols=True,
      disable=self._lines or not machine.is_first_process(),
    )

  def round(self, number: int, text: str, evaluated: bool) -> None:
    """Shows that round `number` is over; `text` describes it."""
    self._bar.set_postfix_str(text, refresh=False)
    self._bar.update()
    if evaluated and self._lines:
      rate = (number - self._done) / (time.monotonic() - self._begun)
      left = (self._rounds - number) / rate
      say(
        f"{self._label}: round {number}/{self._rounds}"
        f"  {rate:.2f} rounds/s  {left:.0f} s left  {text}"
      )

  def close(self) -> None:
    """Closes the bar."""
    self._bar.close()


def say(text: str, *, aside: bool = False) -> None:
  """Prints a line in the first process, above a bar if there is one.

  With `aside` the line goes to stderr; stdout is left to a command's result.
  """
  if machine.is_first_process():
    print_anywhere()  # a run from Python has not called it
    file = sys.stderr if aside else sys.stdout
    tqdm.write(text, file=file)
    file.flush()
