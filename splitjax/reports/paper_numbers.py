"""The numbers that the papers print, and their places beside ours.

Each line of paper_numbers.csv has one number, in these columns:
  source: the table or figure.
  cell: the cell of a grid, one or more FIELD=VALUE joined by &, as `plain`
    writes the value; empty outside of a grid.
  row, metric: the label of the row and the metric.
  set: the test set; "max" for the maximum over the sets.
  value: an accuracy in percent, a total latency in 10^8 parameters per unit of
    computing power, traffic in megabytes.
  half: what follows a printed ±. In HARMONY half the 95 % interval, in Hydra
    the standard deviation; SuperSFL does not say.
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

_AS_PRINTED = "target_rounds target_seconds watts watts_per_point grams".split()
SCALE = {"storage": 0.01, "total_latency": 1e8, "target_bytes": 1e6}
SCALE |= dict.fromkeys(_AS_PRINTED, 1.0)
"""Metric that depends on the network's size -> the unit it is printed in.

All others are percentages, which alone are compared unless a config's `scale`
is "paper": its network may be smaller."""


@functools.cache
def table() -> pd.DataFrame:
  """Reads all numbers as shares, bytes and so on; "half" is NaN without a ±."""
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


def of_run(
  keys: Mapping[str, Any], settings: Mapping[str, Any]
) -> pd.DataFrame:
  """Returns what a run's `paper` prints; `keys` are the fields of its grid."""
  fields = flat(settings)
  # As in the public code, a swept turn stands for phi. The paper's cells by
  # these fields are then compared only if they are swept as well.
  if "order.turn" in keys:
    for field in {"num_clients", "order.name"} - keys.keys():
      fields.pop(field, None)
  values = {f"{field}={plain(value)}" for field, value in fields.items()}
  printed = table()
  changes = ", ".join(settings.get("changed", ()))
  source = "" if "data.name=" in changes else settings.get("paper", "")
  printed = printed[printed.source == source]  # of no other data
  pairs = printed.cell.str.split("&")
  fits = pairs.map(lambda cell: values.issuperset(filter(None, cell)))
  printed = printed[fits.astype(bool)]
  full_scale = settings.get("scale") == "paper"
  return printed if full_scale else printed[~printed.metric.isin([*SCALE])]


def plain(name: Any, digits: int = 9) -> str:
  """Returns a text in which equal numbers look the same: 0.10 is "0.1"."""
  try:
    return f"{round(float(str(name)), digits):g}"
  except ValueError:
    return str(name)


set_name = functools.partial(plain, digits=3)  # as papers print it, as ρ


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
    printed = of_run(run.keys, run.settings).assign(part="")
    maxima = printed.metric[printed.set == LARGEST]
    tops = lines[lines.metric.isin(maxima) & lines.part.eq("")]
    tops = tops.dropna(subset="value").sort_values("value")
    tops = tops.groupby(["row", "metric"], sort=False).tail(1)
    lines = pd.concat([lines, tops.assign(set=LARGEST)])
    printed = printed.rename(columns=heads).drop(columns=["source", "cell"])
    printed["near"] = printed.pop("set").map(set_name)
    lines["near"] = lines.set.map(set_name)
    parts.append(lines.merge(printed, "left"))
  return pd.concat(parts, ignore_index=True).drop(columns="near")
