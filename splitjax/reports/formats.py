"""Tables as text: Markdown, terminal, LaTeX."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tabulate import SEPARATING_LINE, tabulate


class Table(NamedTuple):
  """A table of text."""

  heads: list[str]  # of the columns
  lines: list[list[str]]
  names: int = 1  # how many columns at the left name the line
  ahead: frozenset[tuple[int, int]] = frozenset()  # (line, column), marked
  starts: frozenset[int] = frozenset()  # lines that begin a cell of a grid


def markdown(table: Table) -> str:
  """Writes a table in Markdown and sets the leading cells (`ahead`) in bold."""
  lines = [
    [cell.replace("|", "\\|") for cell in line]
    for line in _marked(table, "**", "**")
  ]
  heads = [head.replace("|", "\\|") for head in table.heads]
  text = _render(table, heads, lines, "pipe")
  return re.sub(" {2,}", " ", text)  # Markdown needs no padding


def terminal(table: Table) -> str:
  """Writes a table as aligned text and puts a star at the leading cells."""
  lines = [
    [cell.replace(" ± ", "±") for cell in line] for line in _marked(table, "*")
  ]
  # The heads are passed as a line: tabulate widens columns that have headers.
  heads = [head.replace(" ", "\n") for head in table.heads]
  text = _render(table, (), [heads, SEPARATING_LINE, *lines], "simple")
  return "\n".join(line.rstrip() for line in text.splitlines())


def latex(table: Table, caption: str) -> str:
  """Writes a table in LaTeX, with the leading cells (`ahead`) in bold.

  The text needs the packages booktabs and graphicx.
  """
  from pylatexenc.latexencode import UnicodeToLatexEncoder

  unknown: Any = {
    "unknown_char_policy": lambda letter: f"U+{ord(letter):04X}",
    "unknown_char_warning": False,
  }
  # tabulate escapes ASCII; marks become \textbf; pylatexenc escapes the rest.
  lines: list[Any] = []
  for i, line in enumerate(_marked(table, "\x02", "\x03")):
    lines += [SEPARATING_LINE] * (i in table.starts) + [line]
  body = _render(table, table.heads, lines, "latex_booktabs")
  body = body.replace("\x02", r"\textbf{").replace("\x03", "}")
  # LaTeX reads [ or * at the start of a line as an option of \\.
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


def _marked(table: Table, before: str, after: str = "") -> list[list[str]]:
  """Puts the text of the leading cells between two marks."""
  return [
    [
      f"{before}{cell}{after}" if (i, j) in table.ahead else cell
      for j, cell in enumerate(line)
    ]
    for i, line in enumerate(table.lines)
  ]


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
