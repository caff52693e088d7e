"""All numbers of a report in long form: one record per number.

`splitjax.reports.report` defines the layout of results. `tables` turns records
into tables, `as_csv` into a CSV file.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from splitjax.config import paper_numbers
from splitjax.config.paper_numbers import Line, Printed
from splitjax.registry import flat
from splitjax.reports import forgetting
from splitjax.reports.quantities import LATE, QUANTITIES, TARGET
from splitjax.reports.results import gains, rule

MEANS = ("accuracy", "weighted", "best", "best_weighted")
"""How papers report accuracy: the mean over clients or over their samples, in
the last round or in the best round."""

RULES = {
  "oracle": "Thresholds are the oracle's, the best of the grid for each client"
  " and test set, chosen with the test labels: no choice from the grid is"
  " better",
  "fixed": "The threshold is fixed, the same for all clients and test sets",
  "calibrated": "Each client chooses its own threshold without test labels, the"
  " same for all test sets",
}
"""eval.threshold_rule -> description of how thresholds are chosen."""


AHEAD = (
  "bold is ahead of every other row by more than √(h² + h′²), h and h′ being"
  " their half-widths"
)
"""Explanation of the marks in a table (`tables.pivot`)."""


class Record(NamedTuple):
  """One number of a report.

  Attributes:
    values: field -> value of the grid's cell; {} outside of a grid.
    row: label of the row.
    metric: key of QUANTITIES or of the config's eval.metrics; "RULE.KEY" for a
      rule that chooses thresholds; or "gain".
    set: name of the test set; "max" for the largest latency over the sets; ""
      for a metric of the whole row.
    value: the number before Quantity.scale, such as a fraction, bytes, seconds,
      or parameters per computing power.
    half: half-width of the 95 % interval over seeds; None for a single seed.
    paper: the number that the paper prints, or None.
    seeds: number of seeds behind the value.
    source: table or figure of the paper's numbers.
    scale: "paper", "small" or "", as in the config.
    rule: eval.threshold_rule of the run.
    changed: changes that the command line makes to the paper's setting.
    over: the best other row if the metric is "gain" (`results.gains`); else "".
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
  changed: tuple[str, ...] = ()
  over: str = ""


def collect(results: dict[str, Any], values: dict[str, Any]) -> list[Record]:
  """Collects all numbers of a run's rows, with the paper's number if any.

  A paper's latencies, storage, power and cost to a target depend on its
  networks, so they are compared at the paper's scale only.

  Args:
    results: results of one run or of several seeds of it.
    values: field -> value of the grid's cell, {} outside of a grid.
  """
  config, sets = results["config"], results["sets"]
  source, scale = config.get("paper", ""), config.get("scale", "")
  seeds, changed = results.get("seeds", (0,)), tuple(config.get("changed", ()))
  run: Any = len(seeds), source, scale, rule(results), changed
  asked = {**flat(config), **values}
  # As in the public code, a swept turn stands for phi. The paper's cells by
  # num_clients and order.name are then used only if these are swept as well.
  if "order.turn" in values:
    for field in {"num_clients", "order.name"} - values.keys():
      asked.pop(field, None)
  printed = paper_numbers.numbers(source, asked)
  forgets = forgetting.shown(results)
  records = []
  for row in results["rows"]:
    for metric, name, value, half in _numbers(row, sets, forgets):
      # Power is compared, too: the paper's is measured, ours modelled.
      same = scale == "paper" or metric not in paper_numbers.SCALE
      paper = _printed(printed, row["label"], metric, name) if same else None
      where = values, row["label"], metric, name
      records.append(Record(*where, value, half, paper, *run))
  for g in gains(results):
    both = [_printed(printed, x, "accuracy", g.set) for x in (g.row, g.over)]
    a, b = (x and x.value for x in both)
    paper = Printed(a - b, None) if a is not None and b is not None else None
    gain = Record(values, g.row, "gain", g.set, g.value, g.half, paper, *run)
    records.append(gain._replace(over=g.over))
  return records


def _printed(
  numbers: Mapping[Line, Printed], row: str, metric: str, name: str
) -> Printed | None:
  """Finds the number that the paper prints for a row's metric on a test set."""
  for line, number in numbers.items():
    same_line = (line.row, line.metric) == (row, metric)
    if same_line and paper_numbers.same_set(line.set, name):
      return number
  return None


def _numbers(
  row: dict[str, Any], sets: Sequence[str], forgets: bool
) -> Iterator[tuple[str, str, float | None, float | None]]:
  """Yields metric, test set, value and half-width of every number of a row."""
  summary, interval = row["summary"], row.get("interval")
  # Metrics per test set, and the largest latency over the sets.
  paths = {m: f"summary.{m}" for m, each in QUANTITIES.items() if not each.at}
  for name, keys in (summary.get("rules") or {}).items():
    paths |= {f"{name}.{k}": f"summary.rules.{name}.{k}" for k in keys}
  paths |= {k: f"summary.metrics.{k}" for k in summary.get("metrics") or ()}
  for metric, path in paths.items():
    values, halves = (at(tree, path.split(".")) for tree in (row, interval))
    for i, value in enumerate(values or ()):
      yield metric, sets[i], value, halves[i] if halves else None
    if metric == "latency" and any(values):
      i = max(range(len(sets)), key=lambda i: values[i] or 0)
      half = halves[i] if halves else None
      yield metric, paper_numbers.LARGEST, values[i], half
  # Metrics of the whole row; those of forgetting belong to the last set.
  for metric, each in QUANTITIES.items():
    late = each.at.startswith(LATE)
    if not each.at or late and not (forgets and summary.get("forgetting")):
      continue
    value, half = (at(tree, each.at.split(".")) for tree in (row, interval))
    asked = each.at.startswith(TARGET) and "to_target" in row
    if value is not None or asked or metric in forgetting.METRICS:
      yield metric, sets[-1] if late else "", value, half


def at(tree: Any, path: Sequence[str]) -> Any:
  """Returns the value at a path of nested dicts; None if the path breaks."""
  for step in path:
    if tree is None:
      return None
    tree = tree.get(step)
  return tree


def remarks(records: Sequence[Record]) -> list[str]:
  """Writes sentences on a table's intervals, thresholds and paper numbers."""
  seeds = {record.seeds for record in records}
  several = seeds != {1}
  sentences = ["One seed: no interval"]
  if several:
    counts = " or ".join(map(str, sorted(seeds)))
    sentences = [
      f"Mean ± half-width of the 95 % interval (Student's t) over {counts}"
      f" seeds; {AHEAD}"
    ]
  # A threshold matters only to methods with two exits.
  gated = [r for r in records if r.metric == "common" and r.value is not None]
  sentences += [RULES[rule] for rule in dict.fromkeys(r.rule for r in gated)]
  if any(record.metric in forgetting.METRICS for record in records):
    sentences.append(
      "Late accuracy, performance gap and backward transfer are medians of the"
      " last five evaluated rounds" + " of all seeds" * several
    )
  compared = [record for record in records if record.paper is not None]
  if compared:
    sources = " and ".join(dict.fromkeys(r.source for r in compared))
    sentences.append(f"Paper: {sources}; difference: ours minus the paper's")
    changed = dict.fromkeys(each for r in records for each in r.changed)
    if changed:
      sentences.append(f"Settings unlike the paper's: {', '.join(changed)}")
    if compared[0].scale == "small":
      sentences.append(
        "Ours is the small scale (smaller network, less data, fewer rounds):"
        " compare orders and gaps, not numbers"
      )
  return sentences


def as_csv(records: Iterable[Record]) -> str:
  """Writes records as CSV, one line per number, with all digits."""
  records = list(records)
  axes = list(dict.fromkeys(field for r in records for field in r.values))
  file = io.StringIO()
  writer = csv.writer(file, lineterminator="\n")
  fixed = ["row", "metric", "set", "value", "half", "seeds"]
  writer.writerow([*axes, *fixed, "paper", "paper_half", "difference", "over"])
  for r in records:
    ours = [r.row, r.metric, r.set, r.value, r.half, r.seeds]
    paper = [*(r.paper or (None, None)), difference(r)]
    place = [r.values.get(axis) for axis in axes]
    writer.writerow([*place, *ours, *paper, r.over])
  return file.getvalue()


def difference(record: Record) -> float | None:
  """Returns our value minus the paper's; None if either is missing."""
  if record.paper is None or record.value is None:
    return None
  return record.value - record.paper.value
