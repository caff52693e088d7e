"""Tables of a report: records pivoted into rows and columns.

`main` makes the table of a run, `compare` the table of a grid or of a run
beside a paper's numbers, `page` the others. `formats` renders them.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from splitjax.config.paper_numbers import LARGEST
from splitjax.reports import forgetting, records
from splitjax.reports.formats import Table, markdown
from splitjax.reports.quantities import QUANTITIES, RULE_KEYS, Quantity
from splitjax.reports.records import Record
from splitjax.reports.results import (
  ABSENT,
  ends,
  exponent,
  heading,
  times_ten,
  with_half,
)

POWERS = ("latency", "computation", "communication")
"""Metrics that are printed in units of a power of ten."""


class Column(NamedTuple):
  """A metric on a test set, its format, and the column's head."""

  metric: str
  set: str
  quantity: Quantity
  head: str


def column(
  metric: str,
  set_: str = "",
  *,
  place: bool = True,
  power: int = 0,
  brief: bool = False,
) -> Column:
  """Makes the column of a metric.

  `metric` is a key of QUANTITIES or of eval.metrics, or it is RULE.KEY. If
  `place` is true, the head names the test set. Metrics of POWERS are printed in
  units of 10^`power`. If `brief` is true, percentages have one digit fewer.
  """
  rule, _, key = metric.rpartition(".")
  own = Quantity("", metric.replace("_", " "), "", 1.0, 3)
  quantity = RULE_KEYS[key] if rule else QUANTITIES.get(metric, own)
  name = f"{rule} {quantity.name}".strip()
  if metric in POWERS:
    quantity = quantity._replace(unit=times_ten(power), scale=10.0**-power)
  if brief and quantity.unit == "%":
    quantity = quantity._replace(digits=quantity.digits - 1)
  unit = f" [{quantity.unit}]" if quantity.unit else ""
  where = ""
  if place and set_:
    where = " largest" if set_ == LARGEST else f" {heading(set_)}"
  return Column(metric, set_, quantity, name + unit + where)


def pivot(
  found: Sequence[Record], columns: Sequence[Column], corner: str = "method"
) -> Table:
  """Pivots records into a table with a line per row.

  If the paper prints numbers of a row, two more lines show the paper's numbers
  and the differences. Within a grid's cell, each column marks the row that is
  ahead of all others (`_ahead`). If cells have different numbers of seeds, a
  further column gives them. `corner` is the head of the column with the rows'
  labels. When workdirs are compared, the runs of a method are on neighbouring
  lines.
  """
  if corner == "method" and any("run" in r.values for r in found):
    corner = "run"
    found = [
      r._replace(values={"method": r.row}, row=r.values["run"]) for r in found
    ]
  axes = list(dict.fromkeys(field for r in found for field in r.values))
  counted = len({r.seeds for r in found}) > 1
  names = [*axis_names(axes), corner]
  names += ["seeds"] * counted
  groups: dict[tuple[str, ...], dict[str, dict[tuple[str, str], Record]]] = {}
  for r in found:
    place = tuple(text(r.values.get(axis)) for axis in axes)
    row = groups.setdefault(place, {}).setdefault(r.row, {})
    row[r.metric, r.set] = r

  lines: list[list[str]] = []
  ahead, starts = set[tuple[int, int]](), set[int]()
  for place, rows in groups.items():
    starts.add(len(lines))
    ours = {}
    for label, known in rows.items():
      each = [known.get((c.metric, c.set)) for c in columns]
      ours[label] = len(lines)
      kinds = [""]
      if any(r is not None and r.paper is not None for r in each):
        kinds += ["paper", "difference"]
      for kind in kinds:
        name = f"{label}, {kind}" if kind else label
        seeds = ABSENT if kind else str(next(iter(known.values())).seeds)
        cells = map(_cell, each, columns, [kind] * len(columns))
        lines.append([*place, name, *[seeds] * counted, *cells])
    for i, c in enumerate(columns):
      if (first := _ahead(rows, c)) is not None:
        ahead.add((ours[first], len(names) + i))
  heads = [*names, *(c.head for c in columns)]
  return Table(
    heads, lines, len(axes) + 1, frozenset(ahead), frozenset(starts - {0})
  )


def own_metrics(found: Sequence[Record]) -> list[str]:
  """Lists the metrics of eval.metrics for which there are records."""
  known = dict.fromkeys(r.metric for r in found)
  return [m for m in known if m not in QUANTITIES and "." not in m]


def axis_names(axes: Sequence[str]) -> list[str]:
  """Returns each field's last word, or last two if the last is ambiguous."""
  last = [axis.split(".")[-1] for axis in axes]
  return [
    ".".join(axis.split(".")[-2:]) if last.count(name) > 1 else name
    for axis, name in zip(axes, last, strict=True)
  ]


def _ahead(rows: dict[str, dict], c: Column) -> str | None:
  """Finds the row that leads all others by more than the interval, if any.

  The lead must exceed sqrt(h^2 + h'^2), the half-width of the difference of two
  independent means with half-widths h and h'. Without intervals no row leads.
  """
  known = [(label, each.get((c.metric, c.set))) for label, each in rows.items()]
  found = [(k, r) for k, r in known if r is not None and r.value is not None]
  if c.quantity.best is None or len(found) < 2:
    return None
  name, top = c.quantity.best(found, key=lambda each: each[1].value)
  others = [r for label, r in found if label != name]
  if any(r.half is None for r in (top, *others)):
    return None
  beyond = all(
    abs(top.value - r.value) > math.hypot(top.half, r.half) for r in others
  )
  return name if beyond else None


def _cell(r: Record | None, c: Column, kind: str) -> str:
  """Formats one cell of a table.

  `kind` is "" for our value, "paper" for the paper's value, and "difference"
  for our value minus the paper's.
  """
  if r is None:
    return ABSENT
  scale, digits = c.quantity.scale, c.quantity.digits
  if kind == "difference":
    return with_half((records.difference(r), None), scale, digits, "+")
  return with_half(r.paper if kind else (r.value, r.half), scale, digits)


def text(value: Any) -> str:
  """Formats a value of a grid's field; tuples (lists in JSON) as "(a, b)"."""
  if isinstance(value, list | tuple):
    return f"({', '.join(map(str, value))})"
  return ABSENT if value is None else str(value)


def main(results: dict[str, Any], brief: bool) -> Table:
  """Makes a run's table: accuracy on all test sets, other metrics on two.

  These two sets have the smallest and the largest ρ (`ends`). A `brief` table
  fits a terminal of 100 characters: it has the other metrics on the second of
  the two only, and percentages over seeds have fewer digits.
  """
  names = results["sets"]
  shown = [names[r] for r in sorted(ends(results))]
  if brief:
    shown = [names[ends(results)[-1]]]
  found = [r._replace(paper=None) for r in records.collect(results, {})]
  power = exponent(
    r.value for r in found if r.metric == "latency" and r.set in shown
  )
  several = brief and "seeds" in results
  keys = [("accuracy", name) for name in names]
  costs = *own_metrics(found), "offload", "latency"
  keys += [(metric, name) for metric in costs for name in shown]
  columns = [column(*key, power=power, brief=several) for key in keys]
  if several:
    return pivot(found, columns)
  seconds = ["train"] if brief else ["train", "compile", "evaluate"]
  columns += [column(metric) for metric in ("bytes_per_round", *seconds)]
  return pivot(found, columns)


def compare(found: Sequence[Record]) -> Table:
  """Makes the table of a grid, or of a run beside its paper.

  It has accuracy on every test set, forgetting if it is measured, all other
  numbers that the paper prints, and eval.metrics, offload ratio and latency on
  the last set.
  """
  sets = list(dict.fromkeys(r.set for r in found if r.metric == "accuracy"))
  keys = [("accuracy", name) for name in sets]
  for metric in forgetting.METRICS:
    keys += [(r.metric, r.set) for r in found if r.metric == metric]
  keys += [(r.metric, r.set) for r in found if r.paper and not r.over]
  costs = *own_metrics(found), "offload", "latency"
  keys += [(metric, sets[-1]) for metric in costs]
  power = exponent(r.value for r in found if r.metric == "latency")
  columns = [column(*key, power=power) for key in dict.fromkeys(keys)]
  return pivot(found, columns)


def section(
  title: str, found: Sequence[Record], columns: Sequence[Column], *words: str
) -> list[str]:
  """Makes heading, table and words; returns [] if no record fits `columns`."""
  metrics = {c.metric for c in columns}
  known = [r for r in found if r.metric in metrics]
  if not known:
    return []
  return [f"## {title}", markdown(pivot(known, columns)), *words]
