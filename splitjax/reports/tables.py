"""Tables of a report: as text in a frame, as Markdown, LaTeX, for a terminal.

A frame of text has the names of a line (a grid's cell, the method) in its index
and numbers in its columns; `**` around a number marks the leading row. What
users named, in the index and in the heads, is escaped when it is written.
"""

import decimal
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import tabulate

from splitjax import files
from splitjax.reports import quantities
from splitjax.reports.quantities import Quantity

ABSENT = "–"
"""What stands for a number that does not exist."""

MARKED = re.compile(r"\*\*(.*?)\*\*")

_RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_LETTERS = {
  "ρ": r"$\rho$", "λ": r"$\lambda$", "α": r"$\alpha$", "β": r"$\beta$",
  "γ": r"$\gamma$", "ε": r"$\varepsilon$", "φ": r"$\varphi$", "±": r"$\pm$",
  "×": r"$\times$", "−": "$-$", "–": "--", "₂": "$_2$",
  **{_RAISED[i]: f"$^{x}$" for i, x in enumerate("-0123456789")},
}  # fmt: skip
"""Letters that pdfLaTeX lacks; others are written as they are."""


class Column(NamedTuple):
  """A metric in a table.

  Attributes:
    metric, set, part: of the lines that it shows, see `numbers`.
    head: its head; "": the quantity's name and unit, and the test set.
    digits: digits after the point; None: those of the quantity.
  """

  metric: str
  set: str = ""
  part: str = ""
  head: str = ""
  digits: int | None = None

  def named(self, quantity: Quantity) -> str:
    """The head of the column, as in "accuracy [%] ρ=0.8"."""
    if self.head:
      return self.head
    name = ", ".join(filter(None, [quantity.name, self.part]))
    unit = f"[{quantity.unit}]" if quantity.unit else ""
    return " ".join(filter(None, [name, unit, quantities.heading(self.set)]))

  def lines(self, means: pd.DataFrame) -> pd.DataFrame:
    """The lines of a table of means that the column shows."""
    same = means.metric.eq(self.metric) & means.set.eq(self.set)
    return means[same & means.part.eq(self.part)]


def table(
  means: pd.DataFrame, columns: Sequence[Column], by: Sequence[str] = ("row",)
) -> pd.DataFrame:
  """Makes a table of text.

  A cell is ours, with the paper's number, if it prints one, in parentheses.
  Among the lines that differ in the last of `by` alone, each column marks the
  one that leads all others by more than the interval.

  Args:
    means: numbers over seeds, see `Results.means`.
    columns: what it shows; numbers that do not exist are "–".
    by: the columns of `means` that name a line.

  Returns:
    A frame of text, with a line for each value of `by` and these in the index.
  """
  shown = [column.lines(means) for column in columns]
  lines = pd.concat(shown)[[*by]].drop_duplicates().sort_index()
  lines = pd.concat(_groups(lines, by))
  index = list(lines.itertuples(index=False, name=None))
  body = {}
  for column, numbers in zip(columns, shown, strict=True):
    same = [
      lines
      for other, lines in zip(columns, shown, strict=True)
      if (other.metric, other.part) == (column.metric, column.part)
    ]
    quantity = quantities.quantity(column.metric)
    quantity = quantity.fitted(pd.concat(same).value)
    if column.digits is not None:
      quantity = quantity._replace(digits=column.digits)
    text = _texts(numbers, quantity, by)
    body[column.named(quantity)] = [text.get(line, ABSENT) for line in index]
  frame = pd.DataFrame(body, dtype=object)
  frame.index = pd.MultiIndex.from_tuples(index, names=axis_names(by))
  return frame


def _groups(lines: pd.DataFrame, by: Sequence[str]) -> list[pd.DataFrame]:
  """Splits lines into those that differ in the last of `by` alone."""
  names = list(by[:-1])
  parts = lines.groupby(names, sort=False) if names else [("", lines)]
  return [part for _, part in parts]


def _texts(
  numbers: pd.DataFrame, quantity: Quantity, by: Sequence[str]
) -> dict[tuple, str]:
  """Formats the numbers of a column: the values of `by` -> text."""
  marked = {leader(group, quantity.best) for group in _groups(numbers, by)}
  text = {}
  for i, line in numbers.iterrows():
    ours = number(line.value, line.half, quantity)
    ours = f"**{ours}**" if i in marked else ours
    if not pd.isna(line.get("paper")):
      ours += f" ({number(line.paper, line.paper_half, quantity)})"
    text[tuple(line[name] for name in by)] = ours
  return text


def leader(group: pd.DataFrame, best: str) -> int | None:
  """Finds the line that leads all others by more than the interval, if any.

  The lead must exceed √(h² + h′²), the half-width of the difference of two
  independent means with half-widths h and h′. Without intervals no line leads.
  """
  known = group.dropna(subset="value")
  if not best or len(known) < 2 or known.half.isna().any():
    return None
  order = known.sort_values("value", ascending=best == "min", kind="stable")
  top, others = order.iloc[0], order.iloc[1:]
  apart = (others.value - top.value).abs()
  leads = (apart > np.hypot(others.half, top.half)).all()
  return order.index[0] if leads else None


def number(value: float, half: float, quantity: Quantity) -> str:
  """Formats a value and its half-width, if any, as in "1.20 ± 0.30"."""
  if pd.isna(value):
    return ABSENT
  text = rounded(quantity.scale * value, quantity.digits)
  if quantity.sign:
    text = text if text.startswith("-") else f"+{text}"
    text = text.replace("-", "−")
  if pd.isna(half):
    return text
  return f"{text} ± {rounded(quantity.scale * half, quantity.digits)}"


def rounded(value: float, digits: int) -> str:
  """Rounds halves up, whatever binary makes of the decimal number."""
  if not math.isfinite(value):
    return str(value)
  exact = decimal.Decimal(str(round(value, max(6, digits + 2))))
  last = decimal.Decimal(1).scaleb(-digits)
  # Adding 0 removes the sign of a zero.
  return f"{exact.quantize(last, decimal.ROUND_HALF_UP) + 0:f}"


def axis_names(axes: Iterable[str]) -> list[str]:
  """Names the columns of an index: a field's last word, "method" for "row".

  A last word that several fields have is preceded by the word before.
  """
  names = ["method" if axis == "row" else axis for axis in axes]
  last = [name.split(".")[-1] for name in names]
  return [
    ".".join(name.split(".")[-2:]) if last.count(word) > 1 else word
    for name, word in zip(names, last, strict=True)
  ]


def markdown(frame: pd.DataFrame) -> str:
  """Writes a table in Markdown."""
  heads, lines = _cells(frame, escaped)
  names = frame.index.nlevels
  aligned = [":--"] * names + ["--:"] * (len(heads) - names)
  return "\n".join(
    f"| {' | '.join(line)} |" for line in (heads, aligned, *lines)
  )


def escaped(text: object) -> str:
  """Escapes a user's text so that Markdown and HTML show it letter by letter.

  Line breaks, control letters and marks of direction become their codes.
  """
  shown = files.printable(text)
  shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
  shown = re.sub(r"([\\`*|~$#])|\](?=[(\[:])", r"\\\g<0>", shown)
  return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", shown)


def terminal(frame: pd.DataFrame) -> str:
  """Writes a table as aligned text, a word of a head in a line.

  A star marks the leading row.
  """
  heads, lines = _cells(frame, files.printable)
  body: list = [[head.replace(" ", "\n") for head in heads]]
  body += [tabulate.SEPARATING_LINE]
  body += [
    [MARKED.sub(r"*\1", cell).replace(" ± ", "±") for cell in line]
    for line in lines
  ]
  # The heads are passed as a line: tabulate widens columns that have headers.
  text = _tabulate(body, (), frame, "simple")
  return "\n".join(line.rstrip() for line in text.splitlines())


def latex(frame: pd.DataFrame, caption: str) -> str:
  """Writes a table in LaTeX, for the package booktabs."""
  heads, lines = _cells(frame, files.printable)
  lines = [[MARKED.sub("\x02\\1\x03", cell) for cell in x] for x in lines]
  body = _tabulate(lines, heads, frame, "latex_booktabs")
  body = body.replace("\x02", r"\textbf{").replace("\x03", "}")
  # LaTeX reads [ or * at the start of a line as an option of \\.
  body = re.sub(r"^(\s*)(?=[\[*])", r"\1{}", body, flags=re.MULTILINE)
  title = files.printable(caption)
  title = "".join(tabulate.LATEX_ESCAPE_RULES.get(x, x) for x in title)
  text = (
    "% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n"
    f"\\caption{{{title}}}\n{body}\n\\end{{table}}\n"
  )
  return "".join(_LETTERS.get(letter, letter) for letter in text)


def _cells(
  frame: pd.DataFrame, write: Callable[[object], str]
) -> tuple[list[str], list[list[str]]]:
  """Returns heads and lines; `write` writes what users named."""
  heads = [*map(write, frame.index.names), *map(write, frame.columns)]
  names = [line if isinstance(line, tuple) else (line,) for line in frame.index]
  cells = frame.itertuples(index=False, name=None)
  lines = [
    [*map(write, name), *cell] for name, cell in zip(names, cells, strict=True)
  ]
  return heads, lines


def _tabulate(
  lines: Sequence, heads: Sequence[str], frame: pd.DataFrame, form: str
) -> str:
  names = frame.index.nlevels
  return tabulate.tabulate(
    lines,
    heads,
    tablefmt=form,
    colalign=["left"] * names + ["right"] * len(frame.columns),
    disable_numparse=True,
  )
