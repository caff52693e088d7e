"""The table with the papers' numbers."""

import csv
import io
import re

import pytest
from example_results import example, table_cells

from splitjax import files
from splitjax.config import paper_numbers
from splitjax.reports import formats, page, records, tables
from splitjax.types import UserError


def row(label, accuracy, half=None, **more):
  summary = {
    "accuracy": accuracy,
    "offload": [0.1, 0.4],
    "latency": [2e6, 5e6],
    "device_only": None,
    **more,
  }
  found = {"label": label, "summary": summary}
  if half is not None:
    found["interval"] = {"summary": {"accuracy": half, "latency": [1e5, 2e5]}}
  return found


def results(rows, source="", scale="", seeds=None):
  return {
    "title": "t",
    "config": {"paper": source, "scale": scale},
    "sets": ["0.0", "0.8"],
    "rows": rows,
    **({"seed": 0} if seeds is None else {"seeds": seeds}),
  }


TABLE2 = results(
  [
    row("HARMONY", [0.9, 0.7], [0.01, 0.02]),
    row("SplitGP λ=0.9", [0.95, 0.5], [0.01, None]),
    row("mine", [0.95, 0.1], [0.0, 0.0]),
  ],
  "HARMONY Table 2",
  "paper",
  [0, 1, 2],
)


def test_every_number_with_the_paper_s():
  found = records.collect(TABLE2, {})
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
    r.metric for r in records.collect(small, {}) if r.paper is not None
  }
  assert participating == {"accuracy"}, "latencies are of other networks"


def test_the_table_as_markdown():
  text = formats.markdown(tables.compare(records.collect(TABLE2, {})))
  lines = table_cells(text)
  assert lines[0][:3] == ["method", "accuracy [%] ρ=0", "accuracy [%] ρ=0.8"]
  ours, paper, apart = lines[1:4]
  assert ours[:3] == ["HARMONY", "90.00 ± 1.00", "**70.00 ± 2.00**"]
  assert paper[:3] == ["HARMONY, paper", "92.34 ± 0.98", "71.45 ± 2.82"]
  assert apart[:3] == ["HARMONY, difference", "−2.34", "−1.45"]
  # Equals lead together; one without an interval has none.
  assert lines[4][1:3] == ["**95.00 ± 1.00**", "50.00"]
  assert lines[7][:2] == ["mine", "**95.00 ± 0.00**"]
  assert len(lines) == 8


def test_the_table_as_latex():
  text = formats.latex(
    tables.compare(records.collect(TABLE2, {})), "50 % & λ_1"
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
  table = tables.compare(records.collect(found, {}))
  text = formats.latex(table, HOSTILE)
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
  text = records.as_csv(records.collect(TABLE2, cell))
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
  one = results([row("a", [0.1, 0.2]), row("b", [0.3, 0.1])])
  two = results([row("a", [0.9, 0.8])])
  found = records.collect(one, {"x.k": 1}) + records.collect(two, {"x.k": 2})
  text = formats.markdown(tables.compare(found))
  lines = table_cells(text)
  assert lines[0][:2] == ["k", "method"]
  assert lines[1][:4] == ["1", "a", "10.00", "**20.00**"]
  assert lines[2][:4] == ["1", "b", "**30.00**", "10.00"]
  assert lines[3][:4] == ["2", "a", "90.00", "80.00"], (
    "a single row is not marked"
  )
  shown = formats.terminal(tables.compare(found)).splitlines()
  first = next(line for line in shown if line.startswith("1"))
  assert first.split()[:4] == ["1", "a", "10.00", "*20.00"]


def test_a_cell_may_be_of_several_numbers():
  field, run = "backbone.depths", results([row("a", [0.1, 0.2])])
  found = [
    record
    for value in ([1, 2], [1, 2, 3], None)
    for record in records.collect(run, {field: value})
  ]
  text = formats.markdown(tables.compare(found))
  lines = table_cells(text)
  assert [line[0] for line in lines[1:]] == ["(1, 2)", "(1, 2, 3)", "–"]
  (first, *_) = csv.DictReader(io.StringIO(records.as_csv(found)))
  assert first[field] == "[1, 2]"


def test_how_many_seeds_where_cells_differ():
  whole = {**TABLE2, "rows": TABLE2["rows"][:1]}
  other = results([row("a", [0.1, 0.2]), row("b", [0.3, 0.1])])
  found = records.collect(whole, {"k": 1}) + records.collect(other, {"k": 2})
  text = formats.markdown(tables.compare(found))
  lines = table_cells(text)
  assert lines[0][:4] == ["k", "method", "seeds", "accuracy [%] ρ=0"]
  assert lines[1][:4] == ["1", "HARMONY", "3", "90.00 ± 1.00"]
  assert lines[2][:4] == ["1", "HARMONY, paper", "–", "92.34 ± 0.98"]
  assert lines[4][:4] == ["2", "a", "1", "10.00"]
  assert lines[5][:4] == ["2", "b", "1", "**30.00**"]
  assert len({len(line) for line in lines}) == 1
  same = formats.markdown(tables.compare(records.collect(whole, {"k": 1})))
  assert "seeds" not in same


def test_what_a_cell_of_a_table_prints():
  drift = results([row("HARMONY", [0.9, 0.8])], "HARMONY Table 5, CINIC-10")
  drift["sets"] = ["w/o drift", "w/ drift"]
  field = "data.partition.alpha"
  for more in ({}, {"optimizer.lr": 0.05}, {"backbone.depths": [1, 2]}):
    found = records.collect(drift, {**more, field: 0.3})
    printed = {r.set: r.paper for r in found if r.metric == "accuracy"}
    assert printed["w/o drift"].value == pytest.approx(0.7534), more
    assert printed["w/ drift"].value == pytest.approx(0.5272), more
  for other in ({}, {field: 0.2}, {"optimizer.lr": 0.3}, {field: None}):
    found = records.collect(drift, other)
    assert not [r for r in found if r.paper is not None], other
  one = records.collect(TABLE2, {"optimizer.lr": 0.05})
  assert {r.paper for r in one} == {
    r.paper for r in records.collect(TABLE2, {})
  }


def test_what_a_cell_of_two_fields_prints():
  source = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"

  def printed(**values):
    lines = paper_numbers.numbers(
      source, {k.replace("__", "."): v for k, v in values.items()}
    )
    (number,) = [n for at, n in lines.items() if at.metric == "gap"] or [None]
    return number and round(100 * number.value, 1)

  assert printed(order__name="cyclic", num_clients=10) == 29
  assert printed(order__name="cyclic", num_clients=100) == 43.4
  # Of random order it prints one number, with one client for each label.
  assert printed(order__name="random", num_clients=10) == 46.4
  assert printed(order__name="random", num_clients=100) is None
  assert printed(order__name="random") is None
  assert printed(order__name="cyclic", num_clients=20) is None
  assert (
    printed(order__name="cyclic") is None and printed(num_clients=10) is None
  )


def test_what_is_said_of_a_table():
  gated = row("a", [0.1, 0.2], common=[0.1, 0.2])
  one, rule = records.remarks(records.collect(results([gated]), {}))
  assert one == "One seed: no interval" and "an upper bound" in rule
  single = row("b", [0.1, 0.2], common=None)
  assert records.remarks(records.collect(results([single]), {})) == [one]
  small = {**TABLE2, "config": {"paper": "HARMONY Table 2", "scale": "small"}}
  remarks = " ".join(records.remarks(records.collect(small, {})))
  assert "over 3 seeds" in remarks and "HARMONY Table 2" in remarks
  assert "small scale" in remarks
  assert "small" not in " ".join(records.remarks(records.collect(TABLE2, {})))


def test_another_setting_than_the_paper_s_and_every_rule_are_said():
  config = {**TABLE2["config"], "changed": ["rounds=2", "num_clients=9"]}
  remarks = records.remarks(records.collect({**TABLE2, "config": config}, {}))
  assert "Settings unlike the paper's: rounds=2, num_clients=9" in remarks
  both = []
  for rule in ("oracle", "fixed"):
    run = results([row("a", [0.1, 0.2], common=[0.1, 0.2])])
    run["config"]["eval"] = {"threshold_rule": rule}
    both += records.collect(run, {"eval.threshold_rule": rule})
  remarks = " ".join(records.remarks(both))
  assert "the oracle's" in remarks and "The threshold is fixed" in remarks


def test_a_page_without_a_paper_has_no_such_table():
  found = files.plain(example())
  assert "## Comparison with the paper" not in page.text(found)
  found["config"] |= {"paper": "HARMONY Table 2", "scale": "small"}
  text = page.text(found).split("## Comparison with the paper")[1]
  assert "| HARMONY, paper" in text.split("##")[0]


def test_an_unknown_source():
  paper_numbers.check("")
  with pytest.raises(UserError, match="did you mean 'SplitGP Table II'"):
    paper_numbers.check("SplitGP table II")


def test_every_printed_number_can_be():
  for source in paper_numbers.sources():
    numbers = paper_numbers._all()[source]
    for at, number in numbers.items():
      assert number.half is None or number.half > 0
      if at.metric == "latency":
        assert 1e6 < number.value < 1e11
      elif at.metric in paper_numbers.SCALE:  # rounds, bytes, seconds, watts
        assert 1 < number.value < 2e11
      else:
        assert 0 < number.value < 1, at
