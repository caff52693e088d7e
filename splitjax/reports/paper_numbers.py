"""The numbers that the papers print, for comparison with a run.

Each line of paper_numbers.csv has one number, in these columns:
  source: the table or figure.
  cell: the cell of a grid, one or more FIELD=VALUE joined by &; empty outside
    of a grid.
  row, metric: the label of the row and the metric.
  set: the test set; "max" for the maximum over the sets.
  value: an accuracy in percent, a total latency in 10^8 parameters per unit of
    computing power, traffic in megabytes.
  half: the number after a printed ±. In HARMONY it is the half-width of the
    95 % interval, in Hydra the standard deviation; SuperSFL does not say.

References:
  HARMONY (Youn et al., 2026), Tables 2-5 and Figure 2.
  SplitGP (Han et al., INFOCOM 2023), Tables II-IV. Storage and the share of
    samples that the server answers are in the text of Section VI.
  Hydra (Tirana et al., AAAI 2026), Tables 1-9: medians over the last five
    rounds and all seeds.
  PGFedSplit (Kang and Song, 2026), Tables 2 and 3.
  SuperSFL (Al Asif et al., 2026), Tables I-III and Figure 6.
"""

import csv
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from splitjax.fields import unknown
from splitjax.types import UserError

LARGEST = "max"
"""Test-set name that stands for the maximum over all test sets."""

SCALE = {
  "storage": 0.01,
  "total_latency": 1e8,
  "target_bytes": 1e6,
  "target_rounds": 1.0,
  "target_seconds": 1.0,
  "watts": 1.0,
  "watts_per_point": 1.0,
  "grams": 1.0,
}
"""Metric that depends on the network's size -> the unit it is printed in.

All other metrics are percentages. In a config whose `scale` is not "paper", the
network may be smaller, and only percentages are compared."""


class Printed(NamedTuple):
  """A number of a paper."""

  #: in base units: percentages as a share of one, latencies in parameters per
  #: unit of computing power, traffic in bytes; all others as printed
  value: float
  half: float | None  #: the number after a printed ±, likewise


class Line(NamedTuple):
  """The position of a number in its table."""

  cell: str
  row: str
  metric: str
  set: str


@functools.cache
def tables() -> dict[str, dict[Line, Printed]]:
  """Reads all numbers: source -> position -> number."""
  path = Path(__file__).with_name("paper_numbers.csv")
  printed: dict[str, dict[Line, Printed]] = {}
  with path.open(encoding="utf-8", newline="") as file:
    for line in csv.DictReader(file):
      factor = SCALE.get(line["metric"], 0.01)
      half = factor * float(line["half"]) if line["half"] else None
      position = Line(**{name: line[name] for name in Line._fields})
      number = Printed(value=factor * float(line["value"]), half=half)
      printed.setdefault(line["source"], {})[position] = number
  return printed


def check_source(source: str) -> None:
  """Raises UserError for a config's `paper` that is none of the sources."""
  if source and source not in tables():
    raise UserError(unknown("paper", source, tables(), "source"))


def numbers(source: str, values: Mapping[str, Any]) -> dict[Line, Printed]:
  """Returns the numbers of a source that belong to a cell of a grid.

  Args:
    source: a key of `tables`, or "", which has no numbers.
    values: field -> value of the cell, {} outside of a grid. Fields that the
      source does not vary are ignored.
  """
  lines = tables().get(source, {})
  return {at: number for at, number in lines.items() if _of(at.cell, values)}


def _of(cell: str, values: Mapping[str, Any]) -> bool:
  """Checks if `values` has every FIELD=VALUE pair of a printed cell."""
  for part in filter(None, cell.split("&")):
    field, _, value = part.partition("=")
    if field not in values or not _same(value, str(values[field])):
      return False
  return True


def same_set(name: str, printed: str) -> bool:
  """Checks if two names denote the same test set, up to rounding of rho.

  Papers print rho in few digits.
  """
  return _same(name, printed, within=5e-4)


def _same(text: str, printed: str, within: float = 0.0) -> bool:
  """Checks if two texts are equal, or are numbers at most `within` apart."""
  try:
    return math.isclose(float(text), float(printed), abs_tol=within)
  except ValueError:
    return text == printed
