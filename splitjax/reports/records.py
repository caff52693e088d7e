"""Every number of a report, each with what is needed to print it.

`report` says how results are laid out; here they are plain JSON already.
`sheet` makes a table of them, `typeset` a CSV file.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from splitjax.config import paper_numbers
from splitjax.config.paper_numbers import Printed
from splitjax.reports import forgetting

METRICS = (
  "accuracy", "offload", "latency", "id", "ood", "offload_id", "offload_ood",
  "common", "device_only", "server_only",
)  # fmt: skip
"""What a summary says of every test set."""


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
    changed: what a command line has changed of the paper's setting.
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


class Column(NamedTuple):
  """What a column shows: `metric` on the test set `set`."""

  metric: str
  set: str


def collect(results: dict[str, Any], values: dict[str, Any]) -> list[Record]:
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
  known = paper_numbers.numbers(source, values)
  if scale != "paper":
    known = {k: v for k, v in known.items() if k.metric != "latency"}
  seeds = len(results.get("seeds", (0,)))
  found = []
  changed = tuple(results["config"].get("changed", ()))
  about = seeds, source, scale, rule, changed
  sets, forgets = results["sets"], forgetting.shown(results)
  for row in results["rows"]:
    every = _numbers(row, sets)
    for metric, pair in forgetting.numbers(row).items() if forgets else ():
      every[Column(metric, sets[-1])] = pair
    for column, (value, half) in every.items():
      told = [
        number
        for at, number in known.items()
        if (at.row, at.metric) == (row["label"], column.metric)
        and paper_numbers.same_set(at.set, column.set)
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
  # Of those that have two exits to choose between.
  gated = [r for r in found if r.metric == "common" and r.value is not None]
  said += [rules[rule] for rule in dict.fromkeys(r.rule for r in gated)]
  if any(record.metric in forgetting.MEASURED for record in found):
    said.append(
      "Late accuracy, performance gap and backward transfer are medians of the"
      " last five evaluated rounds" + " of all seeds" * (seeds != {1})
    )
  if any(record.paper is not None for record in found):
    said.append(f"Paper: {first.source}; difference: ours less the paper's")
    changed = dict.fromkeys(each for r in found for each in r.changed)
    if changed:
      said.append(f"Not the paper's setting: {', '.join(changed)}")
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
  found[Column("latency", paper_numbers.LARGEST)] = found[
    Column("latency", sets[largest])
  ]
  return found
