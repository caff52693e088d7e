"""A sheet as text: Markdown, LaTeX, CSV."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable

from splitjax.reports.comparison import Line, Sheet
from splitjax.reports.records import Record

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


GREEK = dict(
  zip(
    "αβγδεζηθικλμνξπρςστυφχψω",
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu"
    " xi pi rho varsigma sigma tau upsilon varphi chi psi omega".split(),
    strict=True,
  )
) | dict(
  zip(
    "ΓΔΘΛΞΠΣΥΦΨΩ",
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split(),
    strict=True,
  )
)  # fmt: skip
"""Letters that have a command of their own; the others look like Latin."""

SIGNS = {
  "±": "pm", "×": "times", "÷": "div", "·": "cdot", "≤": "leq", "≥": "geq",
  "≠": "neq", "≈": "approx", "∞": "infty", "∼": "sim", "∈": "in", "→": "to",
  "←": "leftarrow", "↔": "leftrightarrow", "⇒": "Rightarrow", "∇": "nabla",
  "∂": "partial", "∑": "sum", "√": "surd", "⋅": "cdot", "∥": "parallel",
  "ϵ": "epsilon", "ϑ": "vartheta", "ϕ": "phi", "ϱ": "varrho", "ℓ": "ell",
}  # fmt: skip

TEX = {
  "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_",
  "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}", "|": r"\textbar{}", "<": r"\textless{}",
  ">": r"\textgreater{}", "`": r"\textasciigrave{}",
  '"': r"\textquotedblright{}", "⁄": "/",
  "−": "$-$", "–": r"\textendash{}", "—": r"\textemdash{}", "‐": "-",
  "‑": "-", "‘": r"\textquoteleft{}", "’": "'",
  "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}", "⁻": "$^-$",
  "§": r"\S{}", "°": r"$^\circ$", "ß": r"\ss{}", "ø": r"\o{}", "ı": r"\i{}",
  "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "ł": r"\l{}",
  **{letter: rf"$\{name}$" for letter, name in (GREEK | SIGNS).items()},
  **{letter: f"${latin}$" for letter, latin in zip(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)},
  **{raised: f"$^{i}$" for i, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
  **{lowered: f"$_{i}$" for i, lowered in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}  # fmt: skip
"""What LaTeX reads otherwise, or pdflatex not at all."""

ACCENTS = {
  "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~",
  "\u0304": r"\=", "\u0306": r"\u", "\u0307": r"\.", "\u0308": r'\"',
  "\u030a": r"\r", "\u030b": r"\H", "\u030c": r"\v", "\u0327": r"\c",
}  # fmt: skip
"""Combining marks, and the commands that set them."""


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
    _tex_row(map(_tex, sheet.heads)),
  ]
  for group in sheet.groups:
    out.append("\\midrule")
    for line in group:
      cells = [_tex(cell) for cell in _said(line, names)]
      bold = [
        rf"\textbf{{{c}}}" if i in line.best else c for i, c in enumerate(cells)
      ]
      out.append(_tex_row(bold))
  out += ["\\bottomrule", "\\end{tabular}}", "\\end{table}"]
  return "\n".join(out) + "\n"


def _tex_row(cells: Iterable[str]) -> str:
  """A line of a table; what stands before it must not take it for options."""
  line = " & ".join(cells) + r" \\"
  return "{}" + line if line.lstrip().startswith(("[", "*")) else line


def _tex(text: str) -> str:
  """Any text as pdflatex prints it, in ASCII."""
  said = "".join(map(_tex_letter, unicodedata.normalize("NFC", text)))
  return re.sub("-(?=-)", "-{}", said)  # two hyphens would be one dash


def _tex_letter(letter: str) -> str:
  """One letter; what has no command is taken apart, or given by its number."""
  if letter in TEX:
    return TEX[letter]
  if letter.isascii():
    return letter if letter.isprintable() else " "
  parts = unicodedata.normalize("NFKD", letter)
  if parts == letter:
    return f"U+{ord(letter):04X}"
  said = ""
  for part in parts:
    accent = ACCENTS.get(part)
    if accent is not None:
      said = f"{accent}{{{said}}}"
    elif not unicodedata.combining(part):
      said += _tex_letter(part)
  return said


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
