"""Tables: which row leads, digits and units, and texts that users chose."""

import pandas as pd
import pytest

from splitjax.reports import quantities, tables
from splitjax.reports.tables import Column


def means(**rows):
  """Accuracies on "0.8": row -> (value, half) or (value, half, paper)."""
  columns = ["value", "half", "paper", "paper_half"]
  none = [float("nan")] * 4
  frame = pd.DataFrame(
    [[*values, *none][:4] for values in rows.values()], columns=columns
  )
  fixed = {"metric": "accuracy", "part": "", "set": "0.8", "seeds": 3}
  return frame.assign(row=list(rows), **fixed).astype(
    dict.fromkeys(columns, float)
  )


ACCURACY = [Column("accuracy", "0.8")]


@pytest.mark.parametrize(
  ("metric", "rows", "marked"),
  [
    ("accuracy", [(0.9, 0.05), (0.84, 0.05)], ""),  # 6 points against 7.07
    ("accuracy", [(0.9, 0.02), (0.84, 0.05)], "a"),  # 6 against 5.39
    ("accuracy", [(0.8, 0.01), (0.9, 0.02), (0.84, 0.05)], "b"),
    # Of two, one is near.
    ("accuracy", [(0.8, 0.01), (0.9, 0.02), (0.895, 0.01)], ""),
    ("accuracy", [(0.9, 0.01), (0.1, None)], ""),
    ("accuracy", [(0.9, 0.0), (0.9, 0.0)], ""),
    ("accuracy", [(0.9, 0.01), (0.1, 0.01), (None, None)], "a"),
    ("accuracy", [(0.9, 0.01)], ""),
    ("gap", [(0.2, 0.01), (0.1, 0.01)], "b"),  # smaller is better
    ("offload", [(0.2, 0.01), (0.1, 0.01)], ""),  # neither is
  ],
)
def test_what_is_marked_leads_beyond_the_interval(metric, rows, marked):
  ours = means(**dict(zip("abc", rows, strict=False))).assign(metric=metric)
  table = tables.table(ours, [Column(metric, "0.8")])
  (cells,) = (table[name] for name in table)
  names = [key[0] for key, cell in cells.items() if cell.startswith("**")]
  assert "".join(names) == marked


@pytest.mark.parametrize(
  ("metric", "value", "half", "text"),
  [
    ("accuracy", 0.7, 0.01234, "70.00 ± 1.23"),
    ("accuracy", 0.93455, None, "93.46"),  # halves up: 93.455 in binary is less
    ("accuracy", None, None, "–"),
    ("gap", -0.00001, None, "0.00"),
    ("difference", 0.012, 0.5, "+1.20 ± 50.00"),
    ("difference", -0.012, None, "−1.20"),
    ("position", 3.0, None, "3"),
    ("bytes_per_round", 1.2e7, None, "12.00"),
    ("epsilon", float("inf"), None, "inf"),
    ("mine", 0.123456, 0.1, "0.123 ± 0.100"),
  ],
)
def test_numbers_in_their_units(metric, value, half, text):
  pair = [float("nan") if x is None else x for x in (value, half)]
  assert tables.number(*pair, quantities.quantity(metric)) == text


def test_a_power_of_ten_fits_the_column():
  ours = means(a=(2.5e5, 1e4), b=(3e6, 0.0), c=(0.0, 0.0))
  table = tables.table(
    ours.assign(metric="total_latency"), [Column("total_latency", "0.8")]
  )
  assert table.to_dict("list") == {
    "latency of all samples [×10⁵] ρ=0.8": [
      "2.50 ± 0.10", "30.00 ± 0.00", "0.00 ± 0.00",
    ]
  }  # fmt: skip


def test_equal_last_words_are_told_apart():
  assert tables.axis_names(["a.lr", "b.lr", "run", "row"]) == [
    "a.lr", "b.lr", "run", "method",
  ]  # fmt: skip


def test_the_table_for_a_terminal():
  table = tables.table(means(**{"a\n": (0.9, 0.01), "b": (0.1, 0)}), ACCURACY)
  text = tables.terminal(table)
  lines = [line.split() for line in text.splitlines() if "±" in line]
  assert lines == [["a\\n", "*90.00±1.00"], ["b", "10.00±0.00"]]
  assert max(map(len, text.splitlines())) < 30


def test_the_table_for_latex():
  rows = {"λ_1": (0.9, 0.01, 0.8), "a & b": (0.1, 0)}
  text = tables.latex(tables.table(means(**rows), ACCURACY))
  assert r"λ\_1" in text and r"a \& b" in text
  assert r"\textbf{90.00 ± 1.00} (80.00)" in text
  assert text.count(r"\begin{") == text.count(r"\end{") == 1
