"""A table as text: Markdown, a terminal, LaTeX."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tabulate import SEPARATING_LINE, tabulate


class Table(NamedTuple):
  """A table of text.

  Attributes:
    heads: of the columns.
    lines: cells, line by line.
    names: how many columns at the left name the line.
    best: (line, column) of the best values.
    starts: lines that begin a group, such as a cell of a grid.
  """

  heads: list[str]
  lines: list[list[str]]
  names: int = 1
  best: frozenset[tuple[int, int]] = frozenset()
  starts: frozenset[int] = frozenset()


def markdown(table: Table) -> str:
  """A table in Markdown, the best values in bold."""
  lines = [
    [
      f"**{cell}**" if (i, j) in table.best else cell.replace("|", "\\|")
      for j, cell in enumerate(line)
    ]
    for i, line in enumerate(table.lines)
  ]
  heads = [head.replace("|", "\\|") for head in table.heads]
  text = _render(table, heads, lines, "pipe")
  return re.sub(" {2,}", " ", text)  # wide tables are read rendered


def terminal(table: Table) -> str:
  """A table as aligned text, the best values starred."""
  lines = [
    [
      ("*" if (i, j) in table.best else "") + cell.replace(" ± ", "±")
      for j, cell in enumerate(line)
    ]
    for i, line in enumerate(table.lines)
  ]
  # As a line, not as headers: tabulate widens columns by its headers.
  heads = [head.replace(" ", "\n") for head in table.heads]
  text = _render(table, (), [heads, SEPARATING_LINE, *lines], "simple")
  return "\n".join(line.rstrip() for line in text.splitlines())


def latex(table: Table, caption: str) -> str:
  """A table in LaTeX (packages booktabs and graphicx), the best in bold."""
  from pylatexenc.latexencode import UnicodeToLatexEncoder

  unknown: Any = {
    "unknown_char_policy": lambda letter: f"U+{ord(letter):04X}",
    "unknown_char_warning": False,
  }
  # tabulate escapes ASCII, pylatexenc the rest. Marks become \textbf after.
  lines: list[Any] = []
  for i, line in enumerate(table.lines):
    lines += [SEPARATING_LINE] * (i in table.starts)
    lines.append(
      [
        f"\x02{cell}\x03" if (i, j) in table.best else cell
        for j, cell in enumerate(line)
      ]
    )
  body = _render(table, table.heads, lines, "latex_booktabs")
  body = body.replace("\x02", r"\textbf{").replace("\x03", "}")
  # A line that starts with [ or * would be read as an option of \\.
  body = re.sub(r"^(\s*)(?=[\[*])", r"\1{}", body, flags=re.MULTILINE)
  body = UnicodeToLatexEncoder(non_ascii_only=True, **unknown).unicode_to_latex(
    body
  )
  title = UnicodeToLatexEncoder(**unknown).unicode_to_latex(caption)
  return (
    "% \\usepackage{booktabs,graphicx}\n\\begin{table}\n\\centering\n"
    f"\\caption{{{title}}}\n\\resizebox{{\\linewidth}}{{!}}{{%\n{body}}}\n"
    "\\end{table}\n"
  )


def _render(
  table: Table, heads: Sequence[str], lines: Sequence[Any], form: str
) -> str:
  right = len(table.heads) - table.names
  return tabulate(
    lines,
    heads,
    tablefmt=form,
    colalign=["left"] * table.names + ["right"] * right,
    disable_numparse=True,
  )
