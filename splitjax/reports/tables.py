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
    selected = means.metric.eq(self.metric) & means.part.eq(self.part)
    return means[selected & means.set.eq(self.set)]

  def form(self, means: pd.DataFrame) -> tuple[str, Quantity]:
    """Its head, as in "accuracy [%] ρ=0.8", and its unit, one for all sets."""
    on_all_sets = means.metric.eq(self.metric) & means.part.eq(self.part)
    unit = quantity(self.metric).fitted(means.value[on_all_sets])
    name = f"{unit.name}, {self.part}".removesuffix(", ")
    words = [name, unit.unit and f"[{unit.unit}]", heading(self.set)]
    head = self.head or " ".join(filter(None, words))
    digits = unit.digits if self.digits is None else self.digits
    return head, unit._replace(digits=digits)


def table(
  means: pd.DataFrame, columns: Iterable[Column], by: Sequence[str] = ("row",)
) -> pd.DataFrame:
  """Makes a table of text, with a line for each value of `by` in the index.

  An entry is our number, then the paper's in parentheses, if it prints one.
  Among rivals, the lines that differ in the last of `by` alone, each column
  marks the one that leads all others by more than the interval. Columns without
  lines of `means`, see `Results.means`, are left out; lacking numbers are "–".
  """
  shown = {column: column.lines(means) for column in columns}
  shown = {column: lines for column, lines in shown.items() if len(lines)}
  if not shown:
    return pd.DataFrame()
  # The index is a line's number in `means`: it restores their order.
  names = pd.concat(shown.values())[[*by]].drop_duplicates().sort_index()
  neighbours = pd.concat(_rivals(names, by))
  index = pd.MultiIndex.from_frame(neighbours).set_names(axis_names(by))
  body = {}
  for column, lines in shown.items():
    head, unit = column.form(means)
    texts = _texts(lines, unit, by)
    body[head] = [texts.get(key, _ABSENT) for key in index]
  return pd.DataFrame(body, index, dtype=object)


def _rivals(lines: pd.DataFrame, by: Sequence[str]) -> list[pd.DataFrame]:
  """Groups the lines that differ in the last of `by` alone."""
  if len(by) == 1:
    return [lines]
  return [rivals for _, rivals in lines.groupby([*by[:-1]], sort=False)]


def _texts(
  lines: pd.DataFrame, unit: Quantity, by: Sequence[str]
) -> dict[tuple, str]:
  """Formats the numbers of a column: the values of `by` -> text."""
  marked = {_leader(rivals, unit.best) for rivals in _rivals(lines, by)}
  texts = {}
  for i, line in lines.iterrows():
    text = number(line.value, line.half, unit)
    text = f"**{text}**" if i in marked else text
    if not pd.isna(line.get("paper")):
      text += f" ({number(line.paper, line.paper_half, unit)})"
    texts[tuple(line[list(by)])] = text
  return texts


def _leader(rivals: pd.DataFrame, best: str) -> object:
  """Finds the line that leads all others by more than the interval, if any.

  The lead must exceed √(h² + h′²), the half-width of the difference of two
  independent means with half-widths h and h′. Without intervals no line leads.
  """
  rivals = rivals.dropna(subset="value")
  if not best or len(rivals) < 2 or rivals.half.isna().any():
    return None
  ranked = rivals.sort_values("value", ascending=best == "min", kind="stable")
  top = ranked.iloc[0]
  followers = ranked.iloc[1:]
  lead = (followers.value - top.value).abs()
  leads = (lead > np.hypot(followers.half, top.half)).all()
  return top.name if leads else None


def number(value: float, half: float, unit: Quantity) -> str:
  """Formats a value and its half-width, if any, as in "1.20 ± 0.30"."""
  if pd.isna(value):
    return _ABSENT
  text = rounded(unit.scale * value, unit.digits)
  if unit.sign:
    text = f"+{text}".replace("+-", "−")
  if pd.isna(half):
    return text
  return f"{text} ± {rounded(unit.scale * half, unit.digits)}"


def rounded(value: float, digits: int) -> str:
  """Rounds decimal halves away from 0, also those that binary makes smaller."""
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
  The seeds are a column if their number differs between the lines.
  """
  sets = list(dict.fromkeys(means.set[means.metric == "accuracy"]))
  in_paper = means.loc[means.paper.notna(), ["metric", "set", "part"]]
  own_metrics = [name for name in means.metric if name not in QUANTITIES]
  columns = [
    *(Column("accuracy", name) for name in sets),
    *(Column(name, sets[-1]) for name in ("late_accuracy", "gap", "backward")),
    *itertools.starmap(Column, in_paper.to_numpy()),
    *(Column(name, sets[-1]) for name in [*own_metrics, "offload", "latency"]),
    Column("bytes_per_round"),
    Column("seconds", part="train"),
  ]
  by = line_names(means)
  # A paper's number may be one of the other columns, which then come twice.
  main = table(means, dict.fromkeys(columns), by)
  if means.seeds.nunique() > 1:
    counts = {key: str(x.max()) for key, x in means.groupby(by).seeds}
    main.insert(0, "seeds", [counts[key] for key in main.index])
  return main


def line_names(means: pd.DataFrame) -> list[str]:
  """Lists the columns that name a line: a grid's fields, the row, the run."""
  # The run is the last, so that a leader is marked among a method's runs.
  return sorted([*numbers.axes(means), "row"], key=lambda name: name == "run")


def markdown(frame: pd.DataFrame) -> str:
  """Writes a table in Markdown."""
  names = frame.index.nlevels
  heads, *body = _written(frame, escaped)
  aligned = [":--"] * names + ["--:"] * (len(heads) - names)
  return "\n".join(f"| {' | '.join(x)} |" for x in (heads, aligned, *body))


def escaped(text: object) -> str:
  """Escapes a user's text so that Markdown and HTML show it as it is."""
  shown = html.escape(files.printable(text), quote=False)
  marks = r"[\\`*|~$#]"
  end_of_link = r"\](?=[(\[:])"
  end_of_word = r"(?<!\w)_|_(?!\w)"  # inside of a word an underscore is plain
  return re.sub(f"{marks}|{end_of_link}|{end_of_word}", r"\\\g<0>", shown)


def terminal(frame: pd.DataFrame) -> str:
  """Writes a table as aligned text; a star marks the leading row."""
  short = frame.replace({_MARKED: r"*\1", " ± ": "±"}, regex=True)
  heads, *body = _written(short, files.printable)
  # The heads are passed as a line: tabulate widens columns that have headers.
  stacked = [head.replace(" ", "\n") for head in heads]
  rows = [stacked, tabulate.SEPARATING_LINE, *body]
  text = _tabulate(rows, (), frame, "simple")
  return "\n".join(map(str.rstrip, text.splitlines()))


def latex(frame: pd.DataFrame) -> str:
  """Writes a tabular for booktabs; LuaLaTeX and XeLaTeX know letters as ρ."""
  heads, *body = _written(frame, files.printable)
  text = _tabulate(body, heads, frame, "latex_booktabs")
  return re.sub(_MARKED, r"\\textbf{\1}", text) + "\n"


def _written(
  frame: pd.DataFrame, write: Callable[[object], str]
) -> list[list[str]]:
  """Returns the heads, then the lines; `write` writes what users named."""
  heads = [*map(write, frame.index.names), *map(write, frame.columns)]
  names = frame.index.to_frame().map(write).to_numpy()
  return [heads, *np.hstack([names, frame.to_numpy()]).tolist()]


def _tabulate(
  rows: Sequence, heads: Sequence[str], frame: pd.DataFrame, form: str
) -> str:
  sides = ["left"] * frame.index.nlevels + ["right"] * len(frame.columns)
  options = {"colalign": sides, "disable_numparse": True}
  return tabulate.tabulate(rows, heads, tablefmt=form, **options)
