"""Any label is something that LaTeX sets as it stands."""

import re

from test_report import example

from splitjax import files
from splitjax.reports import comparison, formats, records

HOSTILE = (
  "[a] \\ & % $ # _ { } ~ ^ | < > \" ` ' -- --- ≥ ≤ τ μ β θ ’ × − ± ⁻⁸ – — “x”"
  " ‘y’ αΑωΩϵςο é ñ ü ﬁ µ ½ … 中 \U0001f600 \u00a0 \u200d e\u0301 \u0301 ά"
)


def test_latex_has_no_letter_that_it_reads_otherwise():
  text = formats._tex(HOSTILE)
  assert text.isascii() and text.isprintable()
  for each in (r"$\geq$", r"$\tau$", r"$\mu$", r"\textbar{}", "$A$", "U+4E2D"):
    assert each in text
  # Without formulas, commands and what these take, nothing special is left.
  text = re.sub(r"(?<!\\)\$[^$]*\$", "", text)
  text = re.sub(r"\\[&%_#${}]", "", text)
  text = re.sub(r"\\(['~\"]\{\w?\}|[a-z]+\{\})", "", text)
  assert not set(text.replace("-{}", "-")) & set('\\&%$#_{}~^|<>"`')
  assert "--" not in text


def test_latex_takes_no_label_for_an_option():
  found = example()
  for each, label in zip(found["rows"], ("[mine]", "*"), strict=False):
    each["label"] = label
  text = formats.latex(
    comparison.make(records.collect(files.plain(found), {})), "c"
  )
  assert "\n{}[mine] & " in text and "\n{}* & " in text
  assert "\n[" not in text and "\n*" not in text
