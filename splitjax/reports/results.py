"""Results of a run, of its seeds, of a grid, or of several folders.

They are all the same: the table of `splitjax.reports.numbers`, and for each
run what explains its numbers. Pages, tables and figures take such results.
"""

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from splitjax.config.tree import flat
from splitjax.reports import numbers, paper_numbers, tables
from splitjax.types import UserError

Settings = Mapping[str, Any]
"""A config as nested dicts, see `splitjax.config.config.Config.to_dict`."""


@dataclasses.dataclass(frozen=True)
class Run:
  """What explains the numbers of a run, that is of one seed of one cell.

  Attributes:
    keys: the run's values in the columns that name its cell; {} without a grid.
    settings: its config.
    methods: label of each row -> key of the row's method in METHODS.
    notes: sentences for a reader, such as the hardware.
    folder: the folder of the run, for `splitjax.load`.
  """

  keys: Mapping[str, Any]
  settings: Settings
  methods: Mapping[str, str]
  notes: tuple[str, ...] = ()
  folder: str = ""

  @property
  def cell(self) -> str:
    """The run's cell in words: its folder, and the swept fields' values."""
    swept = [f"{k}={v}" for k, v in self.keys.items() if k != "run"]
    return ", ".join(filter(None, [self.keys.get("run"), *swept]))


@dataclasses.dataclass(frozen=True)
class Results:
  """The numbers of one or several runs.

  Attributes:
    title: the title of the report.
    numbers: the table, one line per number; see `splitjax.reports.numbers`.
    runs: what explains the numbers of each run.
    remarks: sentences on the runs together, such as what is not finished.

  Example:
    >>> import splitjax
    >>> results = splitjax.report_again("runs/first")
    >>> results.sets
    ['0.2', '0.8']
    >>> accuracy = results.value("HARMONY", "accuracy", "0.8")
    >>> 0 <= accuracy <= 1
    True
  """

  title: str
  numbers: pd.DataFrame
  runs: tuple[Run, ...]
  remarks: tuple[str, ...] = ()

  @property
  def axes(self) -> list[str]:
    """Columns that name a cell of a grid, or "run" for several folders."""
    return numbers.axes(self.numbers)

  @property
  def sets(self) -> list[str]:
    """Names of the test sets, in the order of the config."""
    lines = self.final[self.final.metric == "accuracy"]
    return list(dict.fromkeys(lines.set))

  @property
  def ends(self) -> list[str]:
    """The test sets with the smallest and the largest ρ."""
    return tables.ends(self.sets)

  @property
  def seeds(self) -> list[int]:
    """The seeds, in the order in which they were trained."""
    return list(dict.fromkeys(self.numbers.seed))

  @property
  def rows(self) -> list[str]:
    """Labels of the rows, in the order of the config's methods."""
    return list(dict.fromkeys(self.final.row))

  @property
  def methods(self) -> dict[str, str]:
    """Label of each row -> key of its method in METHODS."""
    return dict(collections.ChainMap(*(dict(x.methods) for x in self.runs)))

  @functools.cached_property
  def final(self) -> pd.DataFrame:
    """The numbers of whole rows after the last round."""
    return numbers.final(self.numbers)

  @functools.cached_property
  def means(self) -> pd.DataFrame:
    """`final` over seeds: "value", "half" (NaN for one seed) and "seeds".

    Where the config names a paper that prints a number, "paper" and
    "paper_half" have it, NaN elsewhere.
    """
    return with_paper(numbers.over_seeds(self.final), self.runs)

  def value(self, row: str, metric: str, set: str = "", **cell: Any) -> float:
    """Returns a number after the last round, as its mean over the seeds.

    Args:
      row: the label of a row.
      metric: a metric, with its part behind a colon, as in "bytes:up/features".
      set: the test set; "" for a metric of the whole row.
      **cell: values of the axes of a grid by the fields' last words, as in
        `alpha=0.1`; for several folders `run`.

    Raises:
      UserError: there is no such number, or there are several.
    """
    metric, _, part = metric.partition(":")
    lines = self.means
    sought = {"row": row, "metric": metric, "part": part, "set": set} | cell
    axes = {axis.split(".")[-1]: axis for axis in self.axes}
    for name, value in sought.items():
      column = axes.get(name, name)
      if column not in lines:
        raise UserError(f"{name}: a cell is named by {', '.join(axes)}")
      values = lines[column]
      lines = lines[values == value]
      if lines.empty:
        there = ", ".join(map(str, dict.fromkeys(values))) or "none"
        raise UserError(f"{name}={value!r} is not there, but {there}: name one")
    if len(lines) > 1:
      raise UserError(f"several cells have this number: name {', '.join(axes)}")
    return float(lines.value.iloc[0])

  def table(self) -> pd.DataFrame:
    """The main table as text: a line per row, with intervals over seeds."""
    return tables.main_table(self.means)

  def __str__(self) -> str:
    """The main table for a terminal."""
    return tables.terminal(self.table())


NONE = Results(title="", numbers=numbers.frame([], seed=0), runs=())
"""The results of a process that is not the first one."""


def gather(
  title: str,
  parts: Sequence[Results],
  values: Sequence[Mapping[str, Any]] = (),
  remarks: Sequence[str] = (),
) -> Results:
  """Joins the results of seeds, cells or folders.

  `values` has the columns that name each part, such as {"optimizer.lr": 0.1};
  seeds need none.
  """
  named = [
    {field: numbers.key(value) for field, value in cell.items()}
    for cell in values or [{}] * len(parts)
  ]
  table = numbers.gather([part.numbers for part in parts], named)
  unset = dict.fromkeys(numbers.axes(table), "")
  runs = list[Run]()
  for part, cell in zip(parts, named, strict=True):
    for run in part.runs:
      keys = {**unset, **cell, **run.keys}
      runs.append(dataclasses.replace(run, keys=keys))
  return Results(
    title=title, numbers=table, runs=tuple(runs), remarks=tuple(remarks)
  )


def with_paper(means: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
  """Adds the columns "paper" and "paper_half", NaN where no paper has a number.

  For a set that a paper calls "max", the largest of the row's sets is added as
  a line.
  """
  axes = numbers.axes(means)
  means = means.assign(paper=float("nan"), paper_half=float("nan"))
  cells = {tuple(run.keys[axis] for axis in axes): run for run in runs}
  joined = []
  for cell, run in cells.items():
    lines = means[means[axes].eq(list(cell)).all(axis=1)]
    printed = printed_numbers(run)
    maxima = [at.metric for at in printed if at.set == paper_numbers.LARGEST]
    tops = lines[lines.metric.isin(maxima) & lines.part.eq("")]
    tops = tops.dropna(subset="value").sort_values("value")
    tops = tops.groupby(["row", "metric"], sort=False).tail(1)
    tops = tops.assign(set=paper_numbers.LARGEST)
    lines = pd.concat([lines, tops], ignore_index=True)
    for at, number in printed.items():
      ours = lines.row.eq(at.row) & lines.metric.eq(at.metric)
      ours &= lines.part.eq("")
      for i, name in lines.set[ours].items():
        if paper_numbers.same_set(at.set, name):
          lines.loc[i, ["paper", "paper_half"]] = number.value, number.half
    joined.append(lines)
  return pd.concat(joined, ignore_index=True)


def printed_numbers(
  run: Run,
) -> dict[paper_numbers.Line, paper_numbers.Printed]:
  """Returns the numbers that the paper of a run's config prints for its cell.

  In a config whose scale is not "paper" only percentages are compared, since
  the network may be smaller.
  """
  fields = flat(run.settings)
  # As in the public code, a swept turn stands for phi. The paper's cells by
  # these fields are then compared only if they are swept as well.
  if "order.turn" in run.keys:
    for field in {"num_clients", "order.name"} - run.keys.keys():
      fields.pop(field, None)
  printed = paper_numbers.numbers(run.settings.get("paper", ""), fields)
  full_scale = run.settings.get("scale") == "paper"
  return {
    line: number
    for line, number in printed.items()
    if full_scale or line.metric not in paper_numbers.SCALE
  }
