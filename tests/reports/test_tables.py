"""The table with the papers' numbers."""

import csv
import io
import re

import pytest
from example_results import example, table_cells
from example_tables import TABLE2, results, row

from splitjax import files, reports


def test_every_number_with_the_paper_s():
  found = reports.collect(TABLE2, {})
  at = {(r.row, r.metric, r.set): r for r in found}
  mine = at["HARMONY", "accuracy", "0.8"]
  assert (mine.value, mine.half, mine.seeds) == (0.7, 0.02, 3)
  assert mine.paper == pytest.approx((0.7145, 0.0282))
  cost = at["HARMONY", "latency", "0.0"]
  assert cost.paper == pytest.approx((21.39e8, 3.55e8))
  assert at["HARMONY", "latency", "max"].value == 5e6
  assert at["mine", "accuracy", "0.0"].paper is None
  assert ("HARMONY", "device_only", "0.0") not in at
  small = {**TABLE2, "config": {"paper": "HARMONY Table 2", "scale": "small"}}
  participating = {
    r.metric for r in reports.collect(small, {}) if r.paper is not None
  }
  assert participating == {"accuracy"}, "latencies are of other networks"


def test_the_table_as_markdown():
  text = reports.markdown(reports.compare(reports.collect(TABLE2, {})))
  lines = table_cells(text)
  assert lines[0][:3] == ["method", "accuracy [%] ρ=0", "accuracy [%] ρ=0.8"]
  ours, paper, apart = lines[1:4]
  assert ours[:3] == ["HARMONY", "90.00 ± 1.00", "**70.00 ± 2.00**"]
  assert paper[:3] == ["HARMONY, paper", "92.34 ± 0.98", "71.45 ± 2.82"]
  assert apart[:3] == ["HARMONY, difference", "−2.34", "−1.45"]
  # Equals are not ahead of one another.
  assert lines[4][1:3] == ["95.00 ± 1.00", "50.00 ± 3.00"]
  assert lines[7][:2] == ["mine", "95.00 ± 0.00"]
  assert len(lines) == 8


def test_the_table_as_latex():
  text = reports.latex(
    reports.compare(reports.collect(TABLE2, {})), "50 % & λ_1"
  )
  assert r"\caption{50 \% \& \ensuremath{\lambda}\_1}" in text
  lines = [
    re.split(r"\s+&\s+", x.strip().removesuffix(r" \\"))
    for x in text.splitlines()
  ]
  cells = {line[0]: line[1:] for line in lines if len(line) > 1}
  pm, lam = r"\ensuremath{\pm}", r"\ensuremath{\lambda}"
  assert cells["HARMONY"][:2] == [
    f"90.00 {pm} 1.00",
    rf"\textbf{{70.00 {pm} 2.00}}",
  ]
  assert cells[f"SplitGP {lam}=0.9, difference"][:2] == [
    "+2.00",
    r"\ensuremath{-}4.00",
  ]
  assert text.isascii()
  assert text.count(r"\begin{") == text.count(r"\end{") == 2


HOSTILE = (
  "[a] \\ & % $ # _ { } ~ ^ | < > \" ` ' ≥ ≤ τ μ β θ ’ × − ± ⁻⁸ – — “x” ‘y’"
  " αΑωΩϵςο é ñ ü ﬁ µ ½ … 中 \U0001f600 \u00a0 \u200d e\u0301 \u0301 ά"
)


def test_latex_has_no_letter_that_it_reads_otherwise():
  found = files.plain(example())
  for each, label in zip(found["rows"], (HOSTILE, "[mine]", "*"), strict=False):
    each["label"] = label
  table = reports.compare(reports.collect(found, {}))
  text = reports.latex(table, HOSTILE)
  assert text.isascii()
  assert r"\ensuremath{\geq}" in text and "U+4E2D" in text
  # Without commands and escaped letters, only the separators of cells remain.
  (line,) = (
    x for x in text.splitlines() if "U+4E2D" in x and x.endswith(r"\\")
  )
  rest = re.sub(
    r"\\ensuremath\{[^{}]*\}|\\[a-zA-Z]+|\\[&%_#${}^~'\"`]", "", line
  )
  cells = rest.removesuffix(r"\\").split("&")
  assert len(cells) == len(table.heads)
  assert not set("".join(cells)) & set("\\%$#_^")
  # A line that starts with [ or * would be an option of the line before.
  lines = [x.strip() for x in text.splitlines()]
  assert any(x.startswith("{}[mine]") for x in lines)
  assert any(x.startswith("{}*") for x in lines)


def test_the_numbers_as_csv():
  cell = {"data.partition.alpha": 0.1}
  text = reports.as_csv(reports.collect(TABLE2, cell))
  lines = list(csv.DictReader(io.StringIO(text)))
  first = lines[0]
  assert first["data.partition.alpha"] == "0.1"
  assert (first["row"], first["metric"], first["set"]) == (
    "HARMONY", "accuracy", "0.0",
  )  # fmt: skip
  assert float(first["difference"]) == pytest.approx(0.9 - 0.9234)
  largest = [x for x in lines if x["set"] == "max"]
  assert {x["metric"] for x in largest} == {"latency"}
  assert largest[-1]["paper"] == ""


def test_cells_are_groups_of_their_own():
  half = [0.01, 0.01]
  three = {"seeds": [0, 1, 2]}
  one = results([row("a", [0.1, 0.2], half), row("b", [0.3, 0.1], half)])
  two = results([row("a", [0.9, 0.8], half)])
  one, two = one | three, two | three
  found = reports.collect(one, {"x.k": 1}) + reports.collect(two, {"x.k": 2})
  text = reports.markdown(reports.compare(found))
  lines = table_cells(text)
  assert lines[0][:2] == ["k", "method"]
  each = [line[:4] for line in lines[1:]]
  assert each[0] == ["1", "a", "10.00 ± 1.00", "**20.00 ± 1.00**"]
  assert each[1] == ["1", "b", "**30.00 ± 1.00**", "10.00 ± 1.00"]
  # A single row is not marked.
  assert each[2] == ["2", "a", "90.00 ± 1.00", "80.00 ± 1.00"]
  shown = reports.terminal(reports.compare(found)).splitlines()
  first = next(line for line in shown if line.startswith("1"))
  assert first.split()[:4] == ["1", "a", "10.00±1.00", "*20.00±1.00"]


@pytest.mark.parametrize(
  ("values", "halves", "marked"),
  [
    ([0.9, 0.84], [0.05, 0.05], []),  # 6 points against 7.07
    ([0.9, 0.84], [0.02, 0.05], ["a"]),  # 6 against 5.39
    ([0.8, 0.9, 0.84], [0.01, 0.02, 0.05], ["b"]),
    ([0.8, 0.9, 0.895], [0.01, 0.02, 0.05], []),  # of two, one is too near
    ([0.9, 0.1], [0.01, None], []),
    ([0.9, 0.9], [0.0, 0.0], []),
    ([0.9, 0.1, None], [0.01, 0.01, None], ["a"]),
  ],
)
def test_what_is_marked_is_ahead_beyond_the_interval(values, halves, marked):
  rows = [
    row(name, [0.5, value], [0.0, half])
    for name, value, half in zip("abc", values, halves, strict=False)
  ]
  found = reports.collect(results(rows, seeds=[0, 1]), {})
  for metric, names in (("accuracy", marked), ("offload", [])):
    table = reports.pivot(found, [reports.column(metric, "0.8")])
    assert [table.lines[i][0] for i, _ in sorted(table.ahead)] == names


def test_a_cell_may_be_of_several_numbers():
  field, run = "backbone.depths", results([row("a", [0.1, 0.2])])
  found = [
    record
    for value in ([1, 2], [1, 2, 3], None)
    for record in reports.collect(run, {field: value})
  ]
  text = reports.markdown(reports.compare(found))
  lines = table_cells(text)
  assert [line[0] for line in lines[1:]] == ["(1, 2)", "(1, 2, 3)", "–"]
  (first, *_) = csv.DictReader(io.StringIO(reports.as_csv(found)))
  assert first[field] == "[1, 2]"


def test_how_many_seeds_where_cells_differ():
  whole = {**TABLE2, "rows": TABLE2["rows"][:1]}
  other = results([row("a", [0.1, 0.2]), row("b", [0.3, 0.1])])
  found = reports.collect(whole, {"k": 1}) + reports.collect(other, {"k": 2})
  text = reports.markdown(reports.compare(found))
  lines = table_cells(text)
  assert lines[0][:4] == ["k", "method", "seeds", "accuracy [%] ρ=0"]
  assert lines[1][:4] == ["1", "HARMONY", "3", "90.00 ± 1.00"]
  assert lines[2][:4] == ["1", "HARMONY, paper", "–", "92.34 ± 0.98"]
  assert lines[4][:4] == ["2", "a", "1", "10.00"]
  assert lines[5][:4] == ["2", "b", "1", "30.00"], "no interval, no mark"
  assert len({len(line) for line in lines}) == 1
  same = reports.markdown(reports.compare(reports.collect(whole, {"k": 1})))
  assert "seeds" not in same


def test_what_is_said_of_a_table():
  gated = row("a", [0.1, 0.2], common=[0.1, 0.2])
  one, rule = reports.remarks(reports.collect(results([gated]), {}))
  assert one.startswith("One seed") and "choice from the grid" in rule
  single = row("b", [0.1, 0.2], common=None)
  assert reports.remarks(reports.collect(results([single]), {})) == [one]
  small = {**TABLE2, "config": {"paper": "HARMONY Table 2", "scale": "small"}}
  remarks = " ".join(reports.remarks(reports.collect(small, {})))
  assert "over 3 seeds" in remarks and "HARMONY Table 2" in remarks
  assert "small scale" in remarks
  assert "small" not in " ".join(reports.remarks(reports.collect(TABLE2, {})))


def test_another_setting_than_the_paper_s_and_every_rule_are_said():
  config = {**TABLE2["config"], "changed": ["rounds=2", "num_clients=9"]}
  remarks = reports.remarks(reports.collect({**TABLE2, "config": config}, {}))
  assert "Settings unlike the paper's: rounds=2, num_clients=9" in remarks
  both = []
  for rule in ("oracle", "fixed"):
    run = results([row("a", [0.1, 0.2], common=[0.1, 0.2])])
    run["config"]["eval"] = {"threshold_rule": rule}
    both += reports.collect(run, {"eval.threshold_rule": rule})
  remarks = " ".join(reports.remarks(both))
  assert "the oracle's" in remarks and "The threshold is fixed" in remarks
