"""One table of a run or a grid, the papers' numbers beside ours.

`report` says how results are laid out; here they are plain JSON already.
`typeset` turns the table into text.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from splitjax.reports import late, printed, tables
from splitjax.reports.printed import Printed
from splitjax.reports.tables import ABSENT

METRICS = (
  "accuracy", "offload", "latency", "id", "ood", "offload_id", "offload_ood",
  "common", "device_only", "server_only",
)  # fmt: skip
"""What a summary says of every test set."""

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


class Record(NamedTuple):
  """One number of a report.

  Attributes:
    values: field -> value, of the grid's cell.
    row: label.
    metric: one of METRICS, or of `late.MEASURED`: of the last set.
    set: name of the test set.
    value: a share of one; latency in parameters per computing power.
    half: half-width of its interval over seeds; None of one seed.
    paper: the same number as printed, if it is.
    seeds: how many.
    source: of the paper's numbers.
    scale: of the run, as the config says; "" if it does not.
    rule: eval.threshold_rule of the run.
  """

  values: dict[str, Any]
  row: str
  metric: str
  set: str
  value: float | None
  half: float | None
  paper: Printed | None
  seeds: int
  source: str
  scale: str
  rule: str


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


class Column(NamedTuple):
  """What a column shows: `metric` on the test set `set`."""

  metric: str
  set: str


def records(results: dict[str, Any], values: dict[str, Any]) -> list[Record]:
  """Every number of a run's rows, and the largest latency of each.

  Latencies are those of the networks: a paper's stand beside them at the
  paper's scale alone.

  Args:
    results: as `report` lays them out.
    values: of the grid's cell, {} outside of one.
  """
  source = results["config"].get("paper", "")
  scale = results["config"].get("scale", "")
  rule = results["config"].get("eval", {}).get("threshold_rule", "oracle")
  known = printed.numbers(source, values)
  if scale != "paper":
    known = {k: v for k, v in known.items() if k.metric != "latency"}
  seeds = len(results.get("seeds", (0,)))
  found = []
  about = seeds, source, scale, rule
  sets, forgets = results["sets"], late.shown(results)
  for row in results["rows"]:
    every = _numbers(row, sets)
    for metric, pair in late.numbers(row).items() if forgets else ():
      every[Column(metric, sets[-1])] = pair
    for column, (value, half) in every.items():
      told = [
        number
        for at, number in known.items()
        if (at.row, at.metric) == (row["label"], column.metric)
        and printed.same_set(at.set, column.set)
      ]
      paper = told[0] if told else None
      found.append(
        Record(
          values,
          row["label"],
          column.metric,
          column.set,
          value,
          half,
          paper,
          *about,
        )  # fmt: skip
      )
  return found


def remarks(found: Sequence[Record]) -> list[str]:
  """What a reader of the table has to be told."""
  first, seeds = found[0], {record.seeds for record in found}
  said = []
  if seeds == {1}:
    said.append("One seed: no interval")
  else:
    counts = " or ".join(map(str, sorted(seeds)))
    said.append(
      f"Mean ± half-width of the 95 % interval (Student's t) over {counts}"
      " seeds"
    )
  rules = {
    "oracle": "Thresholds are the oracle's: an upper bound",
    "fixed": "The threshold is fixed, one for all clients",
    "calibrated": "Thresholds are each client's own, without test labels",
  }
  said.append(rules[first.rule])
  if any(record.metric in late.MEASURED for record in found):
    said.append(
      "Late accuracy, performance gap and backward transfer are medians of the"
      " last five evaluated rounds" + " of all seeds" * (seeds != {1})
    )
  if any(record.paper is not None for record in found):
    said.append(f"Paper: {first.source}; difference: ours less the paper's")
    if first.scale == "small":
      said.append(
        "Ours is the small scale (network, data and rounds shrunk): compare"
        " orders and gaps, not numbers"
      )
  return said


def _numbers(row: dict[str, Any], sets: Sequence[str]) -> dict:
  """Column -> value and half-width of one row."""
  summary = row["summary"]
  spread = (row.get("interval") or {}).get("summary") or {}
  found = {}
  for metric in METRICS:
    if summary.get(metric) is None:
      continue
    halves = spread.get(metric) or [None] * len(sets)
    for name, *pair in zip(sets, summary[metric], halves, strict=True):
      found[Column(metric, name)] = tuple(pair)
  largest = max(range(len(sets)), key=summary["latency"].__getitem__)
  found[Column("latency", printed.LARGEST)] = found[
    Column("latency", sets[largest])
  ]
  return found


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
  for metric in late.MEASURED:
    shown += [Column(r.metric, r.set) for r in found if r.metric == metric]
  shown += [*compared, *costs]
  return list(dict.fromkeys(shown))


def _head(column: Column, power: int) -> str:
  """The head of a column, with its unit."""
  name = NAMES.get(column.metric, column.metric)
  if column.set == printed.LARGEST:
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
