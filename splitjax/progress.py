"""What a run says at work: a bar on a terminal, plain lines elsewhere."""

import sys
import time

from tqdm import tqdm


class Progress:
  """The rounds of one method.

  Attributes:
    label: of the method.
    rounds: R.
    quiet: say nothing.
    done: rounds of an earlier process.
  """

  def __init__(
    self, label: str, rounds: int, quiet: bool = False, done: int = 0
  ):
    self.label, self.rounds, self.quiet = label, rounds, quiet
    self.done = done
    self._start = time.monotonic()
    self._bar = (
      tqdm(
        total=rounds,
        initial=done,
        desc=label,
        unit="round",
        dynamic_ncols=True,
      )
      if sys.stderr.isatty() and not quiet
      else None
    )

  def round(self, number: int, said: str, evaluated: bool) -> None:
    """Tells that a round is over.

    Args:
      number: rounds finished.
      said: the last losses and accuracy.
      evaluated: whether this round was evaluated; without a terminal only
        those get a line.
    """
    if self._bar is not None:
      self._bar.set_postfix_str(said, refresh=False)
      self._bar.update(number - self._bar.n)
    elif evaluated and not self.quiet:
      rate = (number - self.done) / (time.monotonic() - self._start)
      left = (self.rounds - number) / rate
      print(
        f"{self.label}: round {number}/{self.rounds}"
        f"  {rate:.2f} rounds/s  {left:.0f} s left  {said}",
        flush=True,
      )

  def close(self) -> None:
    """Ends the bar."""
    if self._bar is not None:
      self._bar.close()


class Cells:
  """The runs of a grid: a bar on a terminal, a line for each elsewhere."""

  def __init__(self, count: int):
    self._count, self._begun = count, 0
    self._start = time.monotonic()
    self._bar = (
      tqdm(total=count, desc="grid", unit="cell", dynamic_ncols=True)
      if sys.stderr.isatty()
      else None
    )

  def begin(self, name: str) -> None:
    """Tells which run begins; the ones before it are over."""
    if self._bar is not None:
      self._bar.update(self._begun - self._bar.n)
      self._bar.set_postfix_str(name)
    self._begun += 1
    minutes = (time.monotonic() - self._start) / 60
    say(
      f"cell {self._begun} of {self._count}: {name}  ({minutes:.0f} min so far)"
    )

  def close(self) -> None:
    """Ends the bar."""
    if self._bar is not None:
      self._bar.update(self._begun - self._bar.n)
      self._bar.close()


def say(text: str) -> None:
  """Prints a line, above a bar if there is one."""
  tqdm.write(text)
  sys.stdout.flush()
