"""One table of a run or a grid, the papers' numbers beside ours.

`typeset` turns it into text.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from splitjax.config import paper_numbers
from splitjax.reports import forgetting, tables
from splitjax.reports.records import Column, Record
from splitjax.reports.tables import ABSENT

NAMES = {
  "device_only": "device only",
  "server_only": "server only",
  "late_accuracy": "late accuracy",
  "gap": "performance gap",
  "backward": "backward transfer",
}

BEST: dict[str, Callable] = {
  "accuracy": max, "late_accuracy": max, "gap": min, "backward": min,
}  # fmt: skip
"""Of what the best is marked: which of several it is."""

SEEDS = "seeds"
"""Head of the column that says over how many, where rows differ in that."""


class Line(NamedTuple):
  """A line of a sheet.

  Attributes:
    kind: whose numbers.
    cells: text, the first ones name the row.
    best: columns in which it leads its group.
  """

  kind: Literal["ours", "paper", "difference"]
  cells: list[str]
  best: frozenset[int] = frozenset()


class Sheet(NamedTuple):
  """A table: heads, and lines by group; a group is a cell of the grid."""

  heads: list[str]
  groups: list[list[Line]]


def make(found: Sequence[Record]) -> Sheet:
  """Records as a table: accuracies, what a paper prints, the costs.

  Args:
    found: of one run or of the cells of a grid, in their order. Where these
      have not as many seeds, a column says how many.
  """
  axes = list(dict.fromkeys(k for record in found for k in record.values))
  columns = _columns(found)
  costs = [r.value for r in found if r.metric == "latency"]
  power = tables.exponent(costs)
  groups: dict[tuple[str, ...], list[Record]] = {}
  for record in found:
    place = tuple(_text(record.values.get(axis)) for axis in axes)
    groups.setdefault(place, []).append(record)
  heads = [*(axis.split(".")[-1] for axis in axes), "method"]
  counted = len({record.seeds for record in found}) > 1
  heads += [SEEDS] * counted
  heads += [_head(column, power) for column in columns]
  return Sheet(
    heads,
    [
      _group(list(values), each, columns, power, counted)
      for values, each in groups.items()
    ],
  )


def _columns(found: Sequence[Record]) -> list[Column]:
  """What is shown of all that is known."""
  sets = list(dict.fromkeys(r.set for r in found if r.metric == "accuracy"))
  compared = dict.fromkeys(
    Column(r.metric, r.set)
    for r in found
    if r.paper is not None and r.metric != "accuracy"
  )
  costs = [Column("offload", sets[-1]), Column("latency", sets[-1])]
  shown = [Column("accuracy", name) for name in sets]
  for metric in forgetting.MEASURED:
    shown += [Column(r.metric, r.set) for r in found if r.metric == metric]
  shown += [*compared, *costs]
  return list(dict.fromkeys(shown))


def _head(column: Column, power: int) -> str:
  """The head of a column, with its unit."""
  name = NAMES.get(column.metric, column.metric)
  if column.set == paper_numbers.LARGEST:
    place = "largest"
  else:
    place = tables.heading(column.set)
  unit = tables.times_ten(power) if column.metric == "latency" else "%"
  return f"{name} [{unit}] {place}"


def _group(
  values: list[str],
  found: Sequence[Record],
  columns: Sequence[Column],
  power: int,
  counted: bool,
) -> list[Line]:
  """The lines of one cell: of every row ours, the paper's, the difference.

  `counted`: ours say over how many seeds.
  """
  rows = list(dict.fromkeys(record.row for record in found))
  at = {(r.row, Column(r.metric, r.set)): r for r in found}
  ahead = len(values) + 1 + counted
  seeds, none = [str(found[0].seeds)] * counted, [ABSENT] * counted
  leads: dict[str, set[int]] = {row: set() for row in rows}
  for i, column in enumerate(columns):
    shown = {
      row: round(value, 4)
      for row in rows
      if (row, column) in at and (value := at[row, column].value) is not None
    }
    if column.metric in BEST and len(shown) > 1:
      top = BEST[column.metric](shown.values())
      for row in (row for row, value in shown.items() if value == top):
        leads[row].add(ahead + i)
  lines = []
  for row in rows:
    each = [at.get((row, column)) for column in columns]
    cells = [_cell(r, power) for r in each]
    ours = [*values, row, *seeds, *cells]
    lines.append(Line("ours", ours, frozenset(leads[row])))
    if any(r is not None and r.paper is not None for r in each):
      names = [*values, row, *none]
      lines.append(Line("paper", [*names, *(_paper(r, power) for r in each)]))
      lines.append(
        Line("difference", [*names, *(_apart(r, power) for r in each)])
      )
  return lines


def _scaled(metric: str, power: int) -> float:
  return 10.0**-power if metric == "latency" else 100.0


def _cell(record: Record | None, power: int) -> str:
  if record is None or record.value is None:
    return ABSENT
  scale = _scaled(record.metric, power)
  return _with_half(scale, record.value, record.half)


def _with_half(scale: float, value: float, half: float | None) -> str:
  text = f"{scale * value:.2f}"
  return text if half is None else f"{text} ± {scale * half:.2f}"


def _paper(record: Record | None, power: int) -> str:
  if record is None or record.paper is None:
    return ABSENT
  return _with_half(_scaled(record.metric, power), *record.paper)


def _apart(record: Record | None, power: int) -> str:
  """Ours less the paper's."""
  if record is None or record.paper is None or record.value is None:
    return ABSENT
  apart = record.value - record.paper.value
  return f"{_scaled(record.metric, power) * apart:+.2f}".replace("-", "−")


def _text(value: Any) -> str:
  """A value of a grid's cell; (1, 2) was written as a list."""
  if isinstance(value, list | tuple):
    return f"({', '.join(map(str, value))})"
  return ABSENT if value is None else str(value)
