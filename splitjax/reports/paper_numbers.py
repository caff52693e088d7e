"""The numbers that the papers print, and their places beside ours.

Each line of paper_numbers.csv has one number, in these columns:
  source: the table or figure.
  cell: the cell of a grid, one or more FIELD=VALUE joined by &, as `plain`
    writes the value; empty outside of a grid.
  row, metric: the label of the row and the metric.
  set: the test set; "max" for the maximum over the sets.
  value: an accuracy in percent, a total latency in 10^8 parameters per unit of
    computing power, traffic in megabytes.
  half: the number after a printed ±. In HARMONY it is the half-width of the
    95 % interval, in Hydra the standard deviation; SuperSFL does not say.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax.config.config import flat
from splitjax.fields import unknown
from splitjax.reports import numbers
from splitjax.reports.quantities import LARGEST
from splitjax.types import UserError

SCALE = {"storage": 0.01, "total_latency": 1e8, "target_bytes": 1e6}
SCALE |= dict.fromkeys(
  ("target_rounds", "target_seconds", "watts", "watts_per_point", "grams"), 1.0
)
"""Metric that depends on the network's size -> the unit it is printed in.

All other metrics are percentages. In a config whose `scale` is not "paper", the
network may be smaller, and only percentages are compared."""


@functools.cache
def table() -> pd.DataFrame:
  """Reads all numbers, in the columns of the file, as shares, bytes and so on.

  "half" is NaN where nothing is printed.
  """
  path = Path(__file__).with_name("paper_numbers.csv")
  names = dict.fromkeys(("source", "cell", "row", "metric", "set"), "str")
  empty: Any = {"keep_default_na": False, "na_values": {"half": [""]}}
  printed = pd.read_csv(path, dtype=names, **empty)
  factor = printed.metric.map(SCALE).fillna(0.01)
  return printed.assign(
    value=factor * printed.value, half=factor * printed.half
  )


def check_source(source: str) -> None:
  """Raises UserError for a config's `paper` that is none of the sources."""
  sources = list(dict.fromkeys(table().source))
  if source and source not in sources:
    raise UserError(unknown("paper", source, sources, "source"))


def of_cell(source: str, values: Mapping[str, Any]) -> pd.DataFrame:
  """Returns the numbers of a source, "" has none, that belong to a cell.

  `values` are the fields of the cell; those that the source does not vary are
  ignored.
  """
  fields = {f"{field}={plain(value)}" for field, value in values.items()}
  printed = table()
  printed = printed[printed.source == source]
  pairs = printed.cell.str.split("&")
  fits = pairs.map(lambda cell: fields.issuperset(filter(None, cell)))
  return printed[fits.astype(bool)]


def plain(name: Any, digits: int = 9) -> str:
  """Returns a text in which equal numbers look the same: 0.10 is "0.1"."""
  try:
    return f"{round(float(str(name)), digits):g}"
  except ValueError:
    return str(name)


def set_name(name: str) -> str:
  """Returns a test set's name as papers print it: ρ in three digits."""
  return plain(name, digits=3)


def _of_run(
  keys: Mapping[str, Any], settings: Mapping[str, Any]
) -> pd.DataFrame:
  """Returns what the paper of a run prints; `keys` are its swept fields."""
  fields = flat(settings)
  # As in the public code, a swept turn stands for phi. The paper's cells by
  # these fields are then compared only if they are swept as well.
  if "order.turn" in keys:
    for field in {"num_clients", "order.name"} - keys.keys():
      fields.pop(field, None)
  printed = of_cell(settings.get("paper", ""), fields)
  full_scale = settings.get("scale") == "paper"
  return printed if full_scale else printed[~printed.metric.isin([*SCALE])]


def joined(means: pd.DataFrame, runs: Sequence[Any]) -> pd.DataFrame:
  """Adds the columns "paper" and "paper_half", NaN where no paper has a number.

  For a set that a paper calls "max", the largest of the row's sets is added as
  a line. `means` are those of `numbers.over_seeds`, `runs` those of `Results`.
  """
  axes = numbers.axes(means)
  cells = {tuple(run.keys[axis] for axis in axes): run for run in runs}
  heads = {"value": "paper", "half": "paper_half"}
  parts = []
  for cell, run in cells.items():
    lines = means[means[axes].eq(list(cell)).all(axis=1)]
    # Papers print no parts of a metric.
    printed = _of_run(run.keys, run.settings).assign(part="")
    printed["near"] = printed.set.map(set_name)
    maxima = printed.metric[printed.set == LARGEST]
    tops = lines[lines.metric.isin(maxima) & lines.part.eq("")]
    tops = tops.dropna(subset="value").sort_values("value")
    tops = tops.groupby(["row", "metric"], sort=False).tail(1)
    lines = pd.concat([lines, tops.assign(set=LARGEST)])
    lines["near"] = lines.set.map(set_name)
    printed = printed.drop(columns=["source", "cell", "set"])
    keys = ["row", "metric", "part", "near"]
    parts.append(lines.merge(printed.rename(columns=heads), "left", keys))
  return pd.concat(parts, ignore_index=True).drop(columns="near")
