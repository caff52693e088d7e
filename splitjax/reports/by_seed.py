"""Accuracy of every seed, and differences between runs paired by seed."""

from collections.abc import Sequence
from typing import Any

from splitjax.evaluation import metrics
from splitjax.reports.formats import Table, markdown
from splitjax.reports.quantities import Quantity
from splitjax.reports.records import Record
from splitjax.reports.results import ABSENT, ends, heading
from splitjax.reports.tables import Column, pivot

Cells = Sequence[tuple[dict[str, Any], dict[str, Any]]]
"""Pairs of (field -> value, results), one per cell of a grid."""

Accuracies = dict[Any, dict[str, float | None]]
"""Seed -> test set -> accuracy."""

WORDS = (
  "In per cent, on the first and the last test set. Methods of one run and seed"
  " have the same clients, data and first network, so that they can be compared"
  " seed by seed."
)
"""Explanation of the table."""

PAIRED = (
  "In points of accuracy: a run's minus that of the first run that has the"
  " method, in each seed that both have; the mean over these seeds, ± the"
  " half-width of its 95 % interval (Student's t over the paired differences)."
  " Runs share clients and data within a seed unless a field that decides them"
  " is among what differs."
)


def section(cells: Cells) -> list[str]:
  """Makes title, table and explanation; [] if there is only one seed.

  A run has one cell, without values. Cells of a single seed are left out.
  """
  known = [(values, tree) for values, tree in cells if "seeds" in tree]
  seeds = list(dict.fromkeys(s for _, tree in known for s in tree["seeds"]))
  if len(seeds) < 2:
    return []
  sets = dict.fromkeys(tree["sets"][i] for _, tree in known for i in ends(tree))
  share, none = Quantity("", "accuracy"), (None, None, 1, "", "", "")
  found = [
    Record(values, row["label"], "accuracy", f"{name} {seed}", value, *none)
    for values, tree in known
    for row in tree["rows"]
    for seed, each in _accuracies(tree, row).items()
    for name, value in each.items()
  ]
  columns = [
    Column("accuracy", f"{x} {seed}", share, f"{heading(x)}, seed {seed}")
    for x in sets
    for seed in seeds
  ]
  return ["## Accuracy of each seed", markdown(pivot(found, columns)), WORDS]


def differences(cells: Cells) -> Table | None:
  """Compares runs of a method with the first that has it, paired by seed.

  The table has a line per method and later run; None if no method has two runs.
  The cells are the compared workdirs, with the value `run`.
  """
  sets = list(dict.fromkeys(name for _, tree in cells for name in tree["sets"]))
  found: dict[str, list[tuple[str, Accuracies]]] = {}
  for values, tree in cells:
    for row in tree["rows"]:
      each = values["run"], _accuracies(tree, row)
      found.setdefault(row["label"], []).append(each)
  lines, starts = list[list[str]](), set[int]()
  for label, ((first, before), *others) in found.items():
    starts.add(len(lines))
    for run, now in others:
      both = str(len(before.keys() & now.keys()))
      cell = [_difference(before, now, name) for name in sets]
      lines.append([label, f"{run} − {first}", both, *cell])
  heads = ["method", "runs", "seeds", *map(heading, sets)]
  table = Table(heads, lines, 3, starts=frozenset(starts - {0}))
  return table if lines else None


def _accuracies(tree: dict[str, Any], row: dict[str, Any]) -> Accuracies:
  """Returns the accuracies of a row."""
  seeds, each = [tree.get("seed")], [row["summary"]["accuracy"]]
  if "seeds" in tree:
    seeds, each = tree["seeds"], row["by_seed"]["accuracy"]
  return {
    seed: dict(zip(tree["sets"], one, strict=True))
    for seed, one in zip(seeds, each, strict=True)
  }


def _difference(before: Accuracies, now: Accuracies, name: str) -> str:
  """Formats the mean of paired differences in points, ± half-width if any."""
  pairs = [(before[s].get(name), now[s].get(name)) for s in before if s in now]
  apart = [100 * (b - a) for a, b in pairs if a is not None and b is not None]
  if not apart:
    return ABSENT
  mean, half = metrics.confidence_interval(apart)
  shown = f"{mean:+.2f}".replace("-", "−")
  return shown if half is None else f"{shown} ± {half:.2f}"
