"""Accuracy of every seed, and differences between runs paired by seed."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from splitjax.config.paper_numbers import Printed
from splitjax.evaluation import metrics
from splitjax.reports.formats import Table, markdown
from splitjax.reports.quantities import Quantity
from splitjax.reports.records import MEANS, Record
from splitjax.reports.results import (
  Accuracies,
  accuracies,
  ends,
  heading,
  paired,
  with_half,
)
from splitjax.reports.tables import Column, axis_names, pivot, text

Cells = Sequence[tuple[dict[str, Any], dict[str, Any]]]
"""Pairs of (field -> value, results), one per cell of a grid."""

WORDS = (
  "In per cent, on the first and the last test set. Methods of one run and seed"
  " have the same clients, data and first network, so that they can be compared"
  " seed by seed."
)
"""Explanation of the table."""

PAIRED = (
  "In points: a run's accuracy minus that of the first run with the method, the"
  " mean over the seeds that both have, ± the half-width of its 95 % interval"
  " (Student's t over the paired differences). Within a seed, runs have the"
  " same clients and data unless their configs differ in a field that decides"
  " them."
)


def seed_section(cells: Cells) -> list[str]:
  """Makes title, table and explanation; returns [] for fewer than two seeds.

  For a run, `cells` is [({}, results)]. Cells of a single seed are left out.
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
    for seed, each in accuracies(tree, row).items()
    for name, value in each.items()
  ]
  columns = [
    Column("accuracy", f"{x} {seed}", share, f"{heading(x)}, seed {seed}")
    for x in sets
    for seed in seeds
  ]
  return ["## Accuracy of each seed", markdown(pivot(found, columns)), WORDS]


def differences(cells: Cells) -> Table | None:
  """Compares a method's later runs with its first run, paired by seed.

  The table has one line for each method and each later run. The line has the
  later run's accuracy minus the first run's, averaged over common seeds. In
  each of `cells`, the field `run` holds the name of the compared workdir.
  Returns None if no later run shares a seed with the first.
  """
  sets = list(dict.fromkeys(name for _, tree in cells for name in tree["sets"]))
  found: dict[str, list[tuple[str, Accuracies]]] = {}
  for values, tree in cells:
    for row in tree["rows"]:
      each = values["run"], accuracies(tree, row)
      found.setdefault(row["label"], []).append(each)
  lines, starts = list[list[str]](), set[int]()
  for label, ((first, before), *others) in found.items():
    starts.add(len(lines))
    for run, now in others:
      if both := len(before.keys() & now.keys()):
        apart = (paired(before, now, name) for name in sets)
        cell = [with_half(pair, sign="+") for pair in apart]
        lines.append([label, f"{run} − {first}", str(both), *cell])
  heads = ["method", "runs", "seeds", *map(heading, sets)]
  table = Table(heads, lines, 3, starts=frozenset(starts - {0}))
  return table if lines else None


def over_data_sets(
  cells: Sequence[dict[str, Any]], found: Sequence[Record]
) -> list[Record]:
  """Averages accuracies over compared workdirs with different data sets.

  PGFedSplit's Table 2 prints such means. For compared runs, the mean is over
  the runs, and the record's field `run` is "mean". For compared grids, cells
  with the same name are averaged, and `run` is "mean/CELL". If all workdirs
  have the same seeds, the accuracy has an interval: that of the means over
  workdirs, one mean per seed.

  Args:
    cells: `name`, `results` and `cell`, the cell's name in its grid or "".
    found: the records of the cells.
  """
  groups: dict[str, dict[str, dict[str, Any]]] = {}
  for each in cells:
    if "cell" in each:
      groups.setdefault(each["cell"], {})[each["name"]] = each["results"]
  out = []
  for cell, trees in groups.items():
    names = {tree["config"]["data"]["name"] for tree in trees.values()}
    if not 1 < len(names) == len(trees):
      continue
    places: dict[tuple[str, str, str], list[Record]] = {}
    for r in found:
      if r.values["run"] in trees and r.metric in MEANS:
        places.setdefault((r.row, r.metric, r.set), []).append(r)
    for same in places.values():
      values = [r.value for r in same if r.value is not None]
      papers = [r.paper.value for r in same if r.paper is not None]
      if not len(values) == len(same) == len(trees):
        continue
      mean = Printed(fmean(papers), None) if len(papers) == len(same) else None
      run, half = f"mean/{cell}".rstrip("/"), _half(trees, same)
      whole = same[0]._replace(values={"run": run}, paper=mean)
      out.append(whole._replace(value=fmean(values), half=half))
  return out


def _half(
  trees: dict[str, dict[str, Any]], each: Sequence[Record]
) -> float | None:
  """Computes the half-width over seeds of the runs' mean accuracy.

  Returns None for other metrics, or if the runs have different seeds.
  """
  rows = [
    accuracies(tree, row)
    for tree in trees.values()
    for row in tree["rows"]
    if row["label"] == each[0].row and each[0].metric == "accuracy"
  ]
  seeds = {frozenset(row) for row in rows}
  if len(seeds) != 1:
    return None
  name = each[0].set
  means = [fmean([row[s][name] for row in rows]) for s in rows[0]]  # type: ignore[misc]
  return metrics.confidence_interval(means)[1]


def gains(found: Sequence[Record]) -> list[str]:
  """Lists the gains of a run, or of each grid cell; returns [] without any."""
  cells: dict[str, list[str]] = {}
  for r in found:
    if r.metric != "gain" or r.value is None:
      continue
    each = zip(axis_names(list(r.values)), r.values.values(), strict=True)
    cell = ", ".join(f"{name}={text(value)}" for name, value in each)
    gain = with_half((r.value, r.half), sign="+")
    if r.paper is not None:
      gain += f" (paper {with_half(r.paper, sign='+')})"
    cells.setdefault(cell, []).append(
      f"{heading(r.set)} {gain}, {r.row} − {r.over}"
    )
  if not cells:
    return []
  words = (
    "Gain over the best other row, in points of accuracy (the mean over seeds"
    " of the differences within a seed, ± the half-width of its 95 % interval):"
  )
  lines = [f"{cell}: {'; '.join(each)}" for cell, each in cells.items()]
  return [words, "\n".join(f"- {x.removeprefix(': ')}" for x in lines)]
