"""The first table of a report, from means over seeds."""

from collections.abc import Sequence

import pandas as pd

from splitjax.reports import numbers, tables
from splitjax.reports.quantities import QUANTITIES, quantity
from splitjax.reports.tables import Column

FORGETTING = ("late_accuracy", "gap", "backward")


def main_table(means: pd.DataFrame, brief: bool = True) -> pd.DataFrame:
  """Makes the first table of a report, as text.

  It has accuracy on every test set; forgetting; what the paper prints; metrics
  of eval.metrics, offload ratio and latency; traffic and times. If cells have
  different numbers of seeds, a column says them. A brief table fits a terminal:
  the metrics behind the accuracy are on the last set only, and of the times it
  has the training's.

  Args:
    means: as of `Results.means`.
    brief: whether it is for a terminal.
  """
  sets = list(dict.fromkeys(means.set[means.metric == "accuracy"]))
  shown = ends(sets)[-1:] if brief else ends(sets)
  keys = [("accuracy", name, "") for name in sets]
  keys += [(metric, sets[-1], "") for metric in FORGETTING]
  compared = means[means.paper.notna()]
  keys += list(zip(compared.metric, compared.set, compared.part, strict=True))
  own = [m for m in dict.fromkeys(means.metric) if m not in QUANTITIES]
  keys += [(m, s, "") for m in (*own, "offload", "latency") for s in shown]
  keys += [("bytes_per_round", "", "")]
  times = ("train",) if brief else ("train", "compile", "evaluate")
  keys += [("seconds", "", part) for part in times]
  short = brief and means.seeds.max() > 1
  columns = [
    Column(*key, digits=1 if short and quantity(key[0]).unit == "%" else None)
    for key in dict.fromkeys(keys)
  ]
  table = by_row(means, columns)
  if means.seeds.nunique() > 1:
    counts = means.groupby(line_names(means)).seeds.max()
    keys = [key if len(key) > 1 else key[0] for key in table.index]
    table.insert(0, "seeds", [str(counts[key]) for key in keys])
  return table


def ends(sets: Sequence[str]) -> list[str]:
  """Returns the test sets with the smallest and the largest ρ.

  If the sets are not mixtures, these are the first and the last set.
  """
  try:
    order = sorted(sets, key=float)
  except ValueError:
    order = list(sets)
  return list(dict.fromkeys([*order[:1], *order[-1:]]))


def by_row(means: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
  """Makes a table with a line per cell and row, of the columns with numbers."""
  known = [column for column in columns if len(column.lines(means))]
  return tables.table(means, known, line_names(means))


def line_names(means: pd.DataFrame) -> list[str]:
  """Lists the columns that name a line of a table.

  Where folders are compared, the runs of a method are neighbours.
  """
  axes = numbers.axes(means)
  if "run" in axes:
    return [*(axis for axis in axes if axis != "run"), "row", "run"]
  return [*axes, "row"]
