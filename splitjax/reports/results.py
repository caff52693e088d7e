"""Results of a run, of its seeds, of a grid, or of several folders.

They are all the same: the table of `splitjax.reports.numbers`, and for each
run what explains its numbers. Pages, tables and figures take such results.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from splitjax.config.config import flat
from splitjax.reports import numbers, paper_numbers, tables
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Run:
  """What explains the numbers of a run, that is of one seed of one cell."""

  keys: Mapping[str, Any]  #: column that names its cell -> value, if in a grid
  settings: Mapping[str, Any]  #: its config, as of `Config.to_dict`
  methods: Mapping[str, str]  #: label of each row -> key in METHODS
  notes: tuple[str, ...] = ()  #: sentences for a reader, such as the hardware
  folder: str = ""  #: for `splitjax.load`

  @property
  def name(self) -> str:
    """The run in words, as in "runs/a, optimizer.lr=0.1, seed 1"."""
    swept = [f"{k}={v}" for k, v in self.keys.items() if k != "run"]
    names = self.keys.get("run"), *swept, f"seed {self.settings['seed']}"
    return ", ".join(filter(None, names))


@dataclasses.dataclass(frozen=True)
class Results:
  """The numbers of one or several runs.

  Example:
    >>> import splitjax
    >>> results = splitjax.report_again("runs/first")
    >>> results.sets
    ['0.0', '0.2', '0.4', '0.6', '0.8']
    >>> accuracy = results.value("splitgp", "accuracy", "0.8")
    >>> 0 <= accuracy <= 1
    True
  """

  title: str  #: of the report
  numbers: pd.DataFrame  #: a line per number, see `splitjax.reports.numbers`
  runs: tuple[Run, ...]  #: what explains the numbers of each run
  remarks: tuple[str, ...] = ()  #: on the runs together: what is not finished

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
    """The first and the last test set."""
    return list(dict.fromkeys([*self.sets[:1], *self.sets[-1:]]))

  @property
  def seeds(self) -> list[int]:
    """The seeds, in the order in which they were trained."""
    return list(dict.fromkeys(self.numbers.seed))

  @property
  def rows(self) -> list[str]:
    """Labels of the rows, in the order of the config's methods."""
    return list(dict.fromkeys(self.final.row))

  @functools.cached_property
  def final(self) -> pd.DataFrame:
    """The numbers of whole rows after the last round."""
    return numbers.final(self.numbers)

  @functools.cached_property
  def means(self) -> pd.DataFrame:
    """`final` over seeds, with the paper's numbers: see docs/reports.md."""
    return paper_numbers.joined(numbers.over_seeds(self.final), self.runs)

  def value(self, row: str, metric: str, set: str = "", **cell: Any) -> float:
    """Returns a number after the last round, as its mean over the seeds.

    A part stands behind its metric, as in "bytes:up/features". `set` is "" for
    numbers of a whole row. `cell` has the `run` of several folders and a grid's
    fields, by their last words. Raises UserError without exactly one number.
    """
    metric, _, part = metric.partition(":")
    axes = {axis.split(".")[-1]: axis for axis in self.axes}
    sought = {"row": row, "metric": metric, "part": part, "set": set} | cell
    lines = self.means
    for name, value in sought.items():
      column = axes.get(name, name)
      there = list(dict.fromkeys(lines.get(column, axes)))
      if value not in there:
        names = ", ".join(map(str, there))
        raise UserError(f"{name}={value!r} is not there, but {names}")
      lines = lines[lines[column] == value]
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

  `values` name each part, as in {"optimizer.lr": 0.1}; seeds need none. A field
  that a part does not name has the value of its config.
  """
  values = values or [{}] * len(parts)
  axes = dict.fromkeys(itertools.chain(*values))
  joined = list[pd.DataFrame]()
  runs = list[Run]()
  for part, cell in zip(parts, values, strict=True):
    fields = {**dict.fromkeys(axes, ""), **flat(part.runs[0].settings), **cell}
    keys = {axis: numbers.as_column_value(fields[axis]) for axis in axes}
    table = part.numbers.assign(**keys)
    joined.append(table[[*keys, *part.numbers]])
    runs += [dataclasses.replace(run, keys=keys) for run in part.runs]
  table = pd.concat(joined, ignore_index=True)
  return Results(title, table, tuple(runs), tuple(remarks))
