"""Tables of a report: as text in a frame, as Markdown, LaTeX, for a terminal.

A frame of text has the names of a line (a grid's cell, the method) in its index
and numbers in its columns; `**` around a number marks the leading row. What
users named, in the index and in the heads, is escaped when it is written.
"""

import decimal
import html
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import tabulate

from splitjax import files
from splitjax.reports import numbers
from splitjax.reports.quantities import QUANTITIES, Quantity, heading, quantity

_ABSENT = "–"  # stands for a number that does not exist
_MARKED = r"\*\*(.*?)\*\*"


class Column(NamedTuple):
  """A column of a table: the numbers of a metric, set and part."""

  metric: str
  set: str = ""
  part: str = ""
  head: str = ""  #: "" is the name, the unit and the test set
  digits: int | None = None  #: after the point; None are the quantity's

  def lines(self, means: pd.DataFrame) -> pd.DataFrame:
    """The lines of a table of means that the column shows."""
    lines = means[means.metric.eq(self.metric) & means.set.eq(self.set)]
    return lines[lines.part == self.part]

  def form(self, means: pd.DataFrame) -> tuple[str, Quantity]:
    """Its head, as in "accuracy [%] ρ=0.8", and the unit, alike on all sets."""
    alike = means.metric.eq(self.metric) & means.part.eq(self.part)
    unit = quantity(self.metric).fitted(means.value[alike])
    name = f"{unit.name}, {self.part}".removesuffix(", ")
    words = [name, unit.unit and f"[{unit.unit}]", heading(self.set)]
    head = self.head or " ".join(filter(None, words))
    digits = unit.digits if self.digits is None else self.digits
    return head, unit._replace(digits=digits)


def table(
  means: pd.DataFrame, columns: Iterable[Column], by: Sequence[str] = ("row",)
) -> pd.DataFrame:
  """Makes a table of text, with a line for each value of `by` in the index.

  A cell is ours, with the paper's number, if it prints one, in parentheses.
  Among the lines that differ in the last of `by` alone, each column marks the
  one that leads all others by more than the interval. Columns without lines of
  `means`, see `Results.means`, are left out; lacking numbers are "–".
  """
  shown = {column: column.lines(means) for column in columns}
  shown = {column: lines for column, lines in shown.items() if len(lines)}
  if not shown:
    return pd.DataFrame()
  names = pd.concat(shown.values())[[*by]].drop_duplicates().sort_index()
  order = pd.concat(_rivals(names, by))
  index = pd.MultiIndex.from_frame(order).set_names(axis_names(by))
  body = {}
  for column, lines in shown.items():
    head, unit = column.form(means)
    texts = _texts(lines, unit, by)
    body[head] = [texts.get(key, _ABSENT) for key in index]
  return pd.DataFrame(body, index, dtype=object)


def _rivals(lines: pd.DataFrame, by: Sequence[str]) -> list[pd.DataFrame]:
  """Groups the lines that differ in the last of `by` alone."""
  cell = list(by[:-1]) or np.zeros(len(lines))
  return [rivals for _, rivals in lines.groupby(cell, sort=False)]


def _texts(
  lines: pd.DataFrame, unit: Quantity, by: Sequence[str]
) -> dict[tuple, str]:
  """Formats the numbers of a column: the values of `by` -> text."""
  marked = {_leader(rivals, unit.best) for rivals in _rivals(lines, by)}
  texts = {}
  for i, line in lines.iterrows():
    ours = number(line.value, line.half, unit)
    ours = f"**{ours}**" if i in marked else ours
    if not pd.isna(line.get("paper")):
      ours += f" ({number(line.paper, line.paper_half, unit)})"
    texts[tuple(line[list(by)])] = ours
  return texts


def _leader(rivals: pd.DataFrame, best: str) -> object:
  """Finds the line that leads all others by more than the interval, if any.

  The lead must exceed √(h² + h′²), the half-width of the difference of two
  independent means with half-widths h and h′. Without intervals no line leads.
  """
  lines = rivals.dropna(subset="value")
  if not best or len(lines) < 2 or lines.half.isna().any():
    return None
  lines = lines.sort_values("value", ascending=best == "min", kind="stable")
  top = lines.iloc[0]
  behind = lines.iloc[1:]
  apart = (behind.value - top.value).abs()
  leads = (apart > np.hypot(behind.half, top.half)).all()
  return top.name if leads else None


def number(value: float, half: float, unit: Quantity) -> str:
  """Formats a value and its half-width, if any, as in "1.20 ± 0.30"."""
  if pd.isna(value):
    return _ABSENT
  text = rounded(unit.scale * value, unit.digits)
  if unit.sign:
    text = text if text.startswith("-") else f"+{text}"
    text = text.replace("-", "−")
  if pd.isna(half):
    return text
  return f"{text} ± {rounded(unit.scale * half, unit.digits)}"


def rounded(value: float, digits: int) -> str:
  """Rounds halves up, whatever binary makes of the decimal number."""
  if not math.isfinite(value):
    return str(value)
  exact = decimal.Decimal(str(round(value, max(6, digits + 2))))
  step = decimal.Decimal(1).scaleb(-digits)
  # Adding 0 removes the sign of a zero.
  return f"{exact.quantize(step, decimal.ROUND_HALF_UP) + 0:f}"


def axis_names(axes: Sequence[str]) -> list[str]:
  """Names the columns of an index: a field's last word, "method" for "row".

  Fields whose last words are equal are named in full.
  """
  words = [name.rpartition(".")[2].replace("row", "method") for name in axes]
  return [
    word if words.count(word) == 1 else name
    for name, word in zip(axes, words, strict=True)
  ]


def main_table(means: pd.DataFrame) -> pd.DataFrame:
  """Makes the first table of a report, as text, of `Results.means`.

  Forgetting, eval.metrics, offloading and latency are those on the last set.
  Cells may have different numbers of seeds.
  """
  sets = list(dict.fromkeys(means.set[means.metric == "accuracy"]))
  printed = means.loc[means.paper.notna(), ["metric", "set", "part"]]
  metrics = [metric for metric in means.metric if metric not in QUANTITIES]
  columns = [
    *(Column("accuracy", name) for name in sets),
    *(Column(name, sets[-1]) for name in ("late_accuracy", "gap", "backward")),
    *itertools.starmap(Column, printed.to_numpy()),
    *(Column(name, sets[-1]) for name in [*metrics, "offload", "latency"]),
    Column("bytes_per_round"),
    Column("seconds", part="train"),
  ]
  by = line_names(means)
  lines = table(means, dict.fromkeys(columns), by)
  if means.seeds.nunique() > 1:
    ordered = means.sort_values("seeds")
    names = ordered[by].itertuples(index=False, name=None)
    counts = dict(zip(names, ordered.seeds.astype(str), strict=True))
    lines.insert(0, "seeds", [counts[name] for name in lines.index])
  return lines


def line_names(means: pd.DataFrame) -> list[str]:
  """Lists the columns that name a line: the runs of a method are neighbours."""
  names = [*numbers.axes(means), "row"]
  return sorted(names, key="run".__eq__)


def markdown(lines: pd.DataFrame) -> str:
  """Writes a table in Markdown."""
  names = lines.index.nlevels
  heads, *body = _written(lines, escaped)
  aligned = [":--"] * names + ["--:"] * (len(heads) - names)
  return "\n".join(f"| {' | '.join(x)} |" for x in (heads, aligned, *body))


def escaped(text: object) -> str:
  """Escapes a user's text so that Markdown and HTML show it as it is."""
  shown = html.escape(files.printable(text), quote=False)
  shown = re.sub(r"([\\`*|~$#])|\](?=[(\[:])", r"\\\g<0>", shown)
  return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", shown)


def terminal(lines: pd.DataFrame) -> str:
  """Writes a table as aligned text; a star marks the leading row."""
  short = lines.replace({_MARKED: r"*\1", " ± ": "±"}, regex=True)
  heads, *body = _written(short, files.printable)
  # The heads are passed as a line: tabulate widens columns that have headers.
  stacked = [head.replace(" ", "\n") for head in heads]
  rows = [stacked, tabulate.SEPARATING_LINE, *body]
  text = _tabulate(rows, (), lines, "simple")
  return "\n".join(map(str.rstrip, text.splitlines()))


def latex(lines: pd.DataFrame) -> str:
  """Writes a tabular for booktabs; LuaLaTeX and XeLaTeX know letters as ρ."""
  heads, *body = _written(lines, files.printable)
  text = _tabulate(body, heads, lines, "latex_booktabs")
  return re.sub(_MARKED, r"\\textbf{\1}", text) + "\n"


def _written(
  lines: pd.DataFrame, write: Callable[[object], str]
) -> list[list[str]]:
  """Returns the heads, then the lines; `write` writes what users named."""
  heads = [*map(write, lines.index.names), *map(write, lines.columns)]
  names = lines.index.to_frame().map(write).to_numpy()
  return [heads, *np.hstack([names, lines.to_numpy()]).tolist()]


def _tabulate(
  rows: Sequence, heads: Sequence[str], lines: pd.DataFrame, form: str
) -> str:
  sides = ["left"] * lines.index.nlevels + ["right"] * len(lines.columns)
  options = {"colalign": sides, "disable_numparse": True}
  return tabulate.tabulate(rows, heads, tablefmt=form, **options)
