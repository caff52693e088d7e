"""What a run says at work: a bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

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
        leave=None,  # below another bar it goes when it is over
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


class Overall:
  """All trainings of several seeds or of a grid: each method of each run.

  On a terminal a bar over all of them, elsewhere lines on where it stands.

  Attributes:
    total: trainings, those that are over included.
    cell: of a grid, which one is at work; "" without a grid.
  """

  def __init__(self, total: int, quiet: bool = False):
    self.total, self.quiet, self.cell = total, quiet, ""
    self._over: set[Path] = set()
    self._trained = 0
    self._start = time.monotonic()
    self._bar = (
      tqdm(
        total=total,
        desc="all",
        unit="training",
        smoothing=0,
        dynamic_ncols=True,
      )
      if sys.stderr.isatty() and not quiet
      else None
    )

  def begin(self, what: str = "") -> None:
    """Tells what begins: a seed, or the cell itself."""
    where = ", ".join(filter(None, (self.cell, what)))
    if self._bar is not None:
      self._bar.set_postfix_str(where)
    elif not self.quiet:
      say(f"{where} ({self.said()})")

  def over(self, place: Path, trained: bool) -> None:
    """Counts a training.

    Args:
      place: folder of the method in its run; it counts once.
      trained: by this process just now; others tell nothing of the time left.
    """
    if place in self._over:
      return
    self._over.add(place)
    self._trained += trained
    if self._bar is not None:
      self._bar.initial += not trained  # no part of the rate
      self._bar.update()

  def said(self) -> str:
    """How many are done, and the time."""
    spent = time.monotonic() - self._start
    parts = [
      f"{len(self._over)} of {self.total} done",
      f"{spent / 60:.0f} min so far",
    ]
    left = self.total - len(self._over)
    if left and self._trained:
      parts.append(f"about {spent / self._trained * left / 60:.0f} min left")
    return ", ".join(parts)

  def close(self) -> None:
    """Ends the bar."""
    if self._bar is not None:
      self._bar.close()


_OPEN: ContextVar[Overall | None] = ContextVar("_OPEN", default=None)
"""The screen is one, and so is what it shows."""


@contextlib.contextmanager
def overall(total: int, quiet: bool = False) -> Iterator[Overall]:
  """Counts trainings meanwhile; within a grid, it is the grid's that counts.

  Args:
    total: trainings, those that are over included.
    quiet: say nothing.
  """
  if (outer := _OPEN.get()) is not None:
    yield outer
    return
  mine = Overall(total, quiet)
  token = _OPEN.set(mine)
  try:
    yield mine
  finally:
    _OPEN.reset(token)
    mine.close()


def over(place: Path, trained: bool) -> None:
  """Counts a training of whatever is under way, as `Overall.over`."""
  if (mine := _OPEN.get()) is not None:
    mine.over(place, trained)


def say(text: str) -> None:
  """Prints a line, above a bar if there is one."""
  tqdm.write(text)
  sys.stdout.flush()
