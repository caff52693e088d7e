"""What the papers print, to be held beside what a run gives.

printed.csv has a line per number: where it stands (source), which cells of a
grid it belongs to (FIELD=VALUE, several with & between), the row's label, the
metric, the test set ("max": the largest over the sets), value and half-width of
the 95 % interval if printed; Hydra prints the standard deviation there.
Accuracies are percent, latencies 10^8 parameters per computing power.

References:
  HARMONY (Youn et al., 2026), Tables 2-5 and Figure 2(b).
  SplitGP (Han et al., INFOCOM 2023), Tables II-IV.
  Hydra (Tirana et al., AAAI 2026), Tables 1-9: medians over the last five
    rounds and all seeds.
"""

import csv
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from splitjax.registry import unknown
from splitjax.types import UserError

LARGEST = "max"
"""In the place of a test set: the largest value over all sets."""

SCALE = {"latency": 1e8}
"""What a metric is printed in; the others are percent."""


class Printed(NamedTuple):
  """A number of a paper.

  Attributes:
    value: a share of one, or parameters per computing power.
    half: half-width of its interval, of Hydra the standard deviation; None
      where none is printed.
  """

  value: float
  half: float | None


class Line(NamedTuple):
  """Where a number stands: cell of the grid, row, metric, test set.

  A cell is FIELD=VALUE, or several with & between them, "" where the table is
  no grid.
  """

  cell: str
  row: str
  metric: str
  set: str


@functools.cache
def _all() -> dict[str, dict[Line, Printed]]:
  """Source -> its numbers."""
  path = Path(__file__).with_name("paper_numbers.csv")
  found: dict[str, dict[Line, Printed]] = {}
  with path.open(encoding="utf-8", newline="") as file:
    for line in csv.DictReader(file):
      factor = SCALE.get(line["metric"], 0.01)
      half = factor * float(line["half"]) if line["half"] else None
      where = Line(*(line[name] for name in Line._fields))
      numbers = found.setdefault(line["source"], {})
      numbers[where] = Printed(factor * float(line["value"]), half)
  return found


def sources() -> list[str]:
  """What can be held beside a run, as a config's `paper` names it."""
  return list(_all())


def check(source: str) -> None:
  """Raises UserError where a config's `paper` names nothing that is known."""
  if source and source not in _all():
    raise UserError(unknown("paper", source, sources(), "source"))


def numbers(source: str, values: Mapping[str, Any]) -> dict[Line, Printed]:
  """The numbers of a source that belong to a cell.

  Args:
    source: one of `sources`; "" has none.
    values: of the grid's cell, field -> value, {} outside of one. Those of
      fields that the source does not vary may be anything.
  """
  lines = _all().get(source, {})
  return {at: number for at, number in lines.items() if _of(at.cell, values)}


def _of(cell: str, values: Mapping[str, Any]) -> bool:
  """Whether a printed cell is one of these values."""
  for part in filter(None, cell.split("&")):
    field, _, value = part.partition("=")
    if field not in values or not _same(value, str(values[field])):
      return False
  return True


def same_set(one: str, other: str) -> bool:
  """Whether two names mean one test set: rho is printed with few digits."""
  return _same(one, other, within=5e-4)


def _same(one: str, other: str, within: float = 0.0) -> bool:
  """Whether two texts are the same, or numbers that are as close."""
  try:
    return math.isclose(float(one), float(other), abs_tol=within)
  except ValueError:
    return one == other
