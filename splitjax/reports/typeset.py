"""A sheet as text: Markdown, LaTeX, CSV."""

import csv
import io
from collections.abc import Iterable

from splitjax.reports.sheet import Line, Record, Sheet

MARKS = {"ours": "{}", "paper": "{}, paper", "difference": "{}, difference"}
"""How the lines of a row are told apart."""


def _said(line: Line, names: int) -> list[str]:
  """The cells of a line, its name saying whose numbers they are."""
  cells = list(line.cells)
  cells[names - 1] = MARKS[line.kind].format(cells[names - 1])
  return cells


def markdown(sheet: Sheet) -> str:
  """A sheet as a Markdown table, the best in bold."""
  names = sheet.heads.index("method") + 1
  rule = [":--"] * names + ["--:"] * (len(sheet.heads) - names)
  lines = [sheet.heads, rule]
  for line in (line for group in sheet.groups for line in group):
    cells = [cell.replace("|", "\\|") for cell in _said(line, names)]
    lines.append(
      [f"**{c}**" if i in line.best else c for i, c in enumerate(cells)]
    )
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def terminal(sheet: Sheet) -> str:
  """A sheet as aligned text, the best starred."""
  names = sheet.heads.index("method") + 1
  lines = [
    [c + " *"[i in line.best] for i, c in enumerate(_said(line, names))]
    for group in sheet.groups
    for line in group
  ]
  table = [[f"{head} " for head in sheet.heads], *lines]
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  out = []
  for line in table:
    cells = [
      cell.ljust(width) if i < names else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    out.append("  ".join(cells).rstrip())
  rule = "-" * max(map(len, out))
  return "\n".join([out[0], rule, *out[1:]])


TEX = {
  "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_",
  "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}", "λ": r"$\lambda$", "ρ": r"$\rho$",
  "γ": r"$\gamma$", "α": r"$\alpha$", "±": r"$\pm$", "−": "$-$",
  "×": r"$\times$", "–": "--", "⁻": "$^-$",
  **{raised: f"$^{i}$" for i, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip
"""What LaTeX reads otherwise, or pdflatex not at all."""


def latex(sheet: Sheet, caption: str) -> str:
  """A sheet as a LaTeX table (packages booktabs and graphicx).

  Args:
    sheet: the table.
    caption: plain text.
  """
  names = sheet.heads.index("method") + 1
  align = "l" * names + "r" * (len(sheet.heads) - names)
  out = [
    "% \\usepackage{booktabs,graphicx}",
    "\\begin{table}",
    "\\centering",
    f"\\caption{{{_tex(caption)}}}",
    "\\resizebox{\\linewidth}{!}{%",
    f"\\begin{{tabular}}{{{align}}}",
    "\\toprule",
    " & ".join(map(_tex, sheet.heads)) + r" \\",
  ]
  for group in sheet.groups:
    out.append("\\midrule")
    for line in group:
      cells = [_tex(cell) for cell in _said(line, names)]
      bold = [
        rf"\textbf{{{c}}}" if i in line.best else c for i, c in enumerate(cells)
      ]
      out.append(" & ".join(bold) + r" \\")
  out += ["\\bottomrule", "\\end{tabular}}", "\\end{table}"]
  return "\n".join(out) + "\n"


def _tex(text: str) -> str:
  return "".join(TEX.get(letter, letter) for letter in text)


def as_csv(found: Iterable[Record]) -> str:
  """Records as CSV, a line per number, with full digits.

  Shares are shares of one, latencies parameters per computing power.
  """
  found = list(found)
  axes = list(dict.fromkeys(k for record in found for k in record.values))
  file = io.StringIO()
  writer = csv.writer(file, lineterminator="\n")
  fixed = ["row", "metric", "set", "value", "half", "seeds"]
  paper = ["paper", "paper_half", "difference"]
  writer.writerow([*axes, *fixed, *paper])
  for r in found:
    apart = None
    if r.paper is not None and r.value is not None:
      apart = r.value - r.paper.value
    writer.writerow(
      [
        *(r.values.get(axis) for axis in axes),
        r.row,
        r.metric,
        r.set,
        r.value,
        r.half,
        r.seeds,
        *(r.paper or (None, None)),
        apart,
      ]  # fmt: skip
    )
  return file.getvalue()
