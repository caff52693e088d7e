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

References:
  HARMONY (Youn et al., 2026), Tables 2-5 and Figure 2.
  SplitGP (Han et al., INFOCOM 2023), Tables II-IV. Storage and the share of
    samples that the server answers are in the text of Section VI.
  Hydra (Tirana et al., AAAI 2026), Tables 1-9: medians over the last five
    rounds and all seeds.
  PGFedSplit (Kang and Song, 2026), Tables 2 and 3.
  SuperSFL (Al Asif et al., 2026), Tables I-III and Figure 6.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax.config.tree import flat
from splitjax.fields import unknown
from splitjax.reports import numbers
from splitjax.reports.quantities import LARGEST
from splitjax.types import UserError

SCALE = {
  "storage": 0.01,
  "total_latency": 1e8,
  "target_bytes": 1e6,
  "target_rounds": 1.0,
  "target_seconds": 1.0,
  "watts": 1.0,
  "watts_per_point": 1.0,
  "grams": 1.0,
}
"""Metric that depends on the network's size -> the unit it is printed in.

All other metrics are percentages. In a config whose `scale` is not "paper", the
network may be smaller, and only percentages are compared."""


@functools.cache
def table() -> pd.DataFrame:
  """Reads all numbers, in the columns of the file.

  Percentages are shares of one, latencies in parameters per unit of computing
  power, traffic in bytes; "half" is NaN where nothing is printed.
  """
  path = Path(__file__).with_name("paper_numbers.csv")
  names = dict.fromkeys(("source", "cell", "row", "metric", "set"), "str")
  empty: Any = {"half": [""]}
  printed = pd.read_csv(
    path, dtype=names, keep_default_na=False, na_values=empty
  )
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
  """Returns the numbers of a source that belong to a cell of a grid.

  Args:
    source: a config's `paper`; "" has no numbers.
    values: field -> value of the cell, {} outside of a grid. Fields that the
      source does not vary are ignored.
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


def of_run(
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
  return printed if full_scale else printed[~printed.metric.isin(list(SCALE))]


def joined(means: pd.DataFrame, runs: Sequence[Any]) -> pd.DataFrame:
  """Adds the columns "paper" and "paper_half", NaN where no paper has a number.

  For a set that a paper calls "max", the largest of the row's sets is added as
  a line. `means` are those of `numbers.over_seeds`, `runs` those of `Results`.
  """
  axes = numbers.axes(means)
  cells = {tuple(run.keys[axis] for axis in axes): run for run in runs}
  parts = []
  for cell, run in cells.items():
    lines = means[means[axes].eq(list(cell)).all(axis=1)]
    printed = of_run(run.keys, run.settings)
    maxima = printed.metric[printed.set == LARGEST]
    tops = lines[lines.metric.isin(maxima) & lines.part.eq("")]
    tops = tops.dropna(subset="value").sort_values("value")
    tops = tops.groupby(["row", "metric"], sort=False).tail(1)
    lines = pd.concat([lines, tops.assign(set=LARGEST)])
    # Papers print no parts of a metric.
    printed = printed.assign(part="", near=printed.set.map(set_name))
    printed = printed.drop(columns=["source", "cell", "set"])
    printed = printed.rename(columns={"value": "paper", "half": "paper_half"})
    lines = lines.assign(near=lines.set.map(set_name))
    parts.append(
      lines.merge(printed, "left", ["row", "metric", "part", "near"])
    )
  return pd.concat(parts, ignore_index=True).drop(columns="near")
