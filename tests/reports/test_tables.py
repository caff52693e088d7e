"""The table with the papers' numbers."""

import csv
import io
import re

import pytest
from example_results import example, table_cells

from splitjax import files
from splitjax.config import paper_numbers
from splitjax.reports import (
  by_seed,
  formats,
  grid_report,
  page,
  records,
  tables,
)


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
    row("SplitGP λ=0.9", [0.95, 0.5], [0.01, 0.03]),
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
  # Equals are not ahead of one another.
  assert lines[4][1:3] == ["95.00 ± 1.00", "50.00 ± 3.00"]
  assert lines[7][:2] == ["mine", "95.00 ± 0.00"]
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
  half = [0.01, 0.01]
  three = {"seeds": [0, 1, 2]}
  one = results([row("a", [0.1, 0.2], half), row("b", [0.3, 0.1], half)])
  two = results([row("a", [0.9, 0.8], half)])
  one, two = one | three, two | three
  found = records.collect(one, {"x.k": 1}) + records.collect(two, {"x.k": 2})
  text = formats.markdown(tables.compare(found))
  lines = table_cells(text)
  assert lines[0][:2] == ["k", "method"]
  each = [line[:4] for line in lines[1:]]
  assert each[0] == ["1", "a", "10.00 ± 1.00", "**20.00 ± 1.00**"]
  assert each[1] == ["1", "b", "**30.00 ± 1.00**", "10.00 ± 1.00"]
  # A single row is not marked.
  assert each[2] == ["2", "a", "90.00 ± 1.00", "80.00 ± 1.00"]
  shown = formats.terminal(tables.compare(found)).splitlines()
  first = next(line for line in shown if line.startswith("1"))
  assert first.split()[:4] == ["1", "a", "10.00±1.00", "*20.00±1.00"]


@pytest.mark.parametrize(
  ("values", "halves", "marked"),
  [
    ([0.9, 0.8], [0.05, 0.05], ["a"]),  # 10 points against 7.07
    ([0.9, 0.84], [0.05, 0.05], []),  # 6 against 7.07
    ([0.9, 0.84], [0.02, 0.05], ["a"]),  # 6 against 5.39
    ([0.5682, 0.2], [0.7077, 0.01], []),
    ([0.8, 0.9, 0.84], [0.01, 0.02, 0.05], ["b"]),
    ([0.8, 0.9, 0.895], [0.01, 0.02, 0.05], []),  # of two, one is too near
    ([0.9, 0.1], [None, 0.01], []),
    ([0.9, 0.1], [0.01, None], []),
    ([0.9, 0.9], [0.0, 0.0], []),
    ([0.9, None], [0.01, None], []),
    ([0.9, 0.1, None], [0.01, 0.01, None], ["a"]),
  ],
)
def test_what_is_marked_is_ahead_beyond_the_interval(values, halves, marked):
  rows = [
    row(name, [0.5, value], [0.0, half])
    for name, value, half in zip("abc", values, halves, strict=False)
  ]
  found = records.collect(results(rows, seeds=[0, 1]), {})
  for metric, names in (("accuracy", marked), ("offload", [])):
    table = tables.pivot(found, [tables.column(metric, "0.8")])
    assert [table.lines[i][0] for i, _ in sorted(table.ahead)] == names


def beside(**seeds):
  """Workdirs side by side: run -> {seed: the accuracies of method a}."""
  cells = []
  for run, each in seeds.items():
    values = list(each.values())
    rows = [row("a", values[0]), row(run, [0.5, 0.5])]
    rows[0]["by_seed"] = {"accuracy": values}
    rows[1]["by_seed"] = {"accuracy": [[0.5, 0.5]] * len(each)}
    tree = results(rows, seeds=list(each) if len(each) > 1 else None)
    if len(each) == 1:
      tree["seed"] = next(iter(each))
    cells.append(({"run": run}, tree))
  return cells


def test_runs_of_a_method_stand_beside_each_other():
  cells = beside(one={0: [0.1, 0.2], 1: [0.2, 0.3]}, two={0: [0.3, 0.4]})
  found = [r for v, tree in cells for r in records.collect(tree, v)]
  lines = table_cells(formats.markdown(tables.compare(found)))
  assert lines[0][:2] == ["method", "run"]
  names = [["a", "one"], ["a", "two"], ["one", "one"], ["two", "two"]]
  assert [line[:2] for line in lines[1:]] == names
  # The numbers for other programs stay by run.
  first = next(csv.DictReader(io.StringIO(records.as_csv(found))))
  assert (first["run"], first["row"]) == ("one", "a")
  text = by_seed.section(
    beside(x={0: [0, 0], 1: [0, 0]}, y={0: [1, 1], 1: [1, 1]})
  )
  lines = table_cells(text[1])
  assert [line[:2] for line in lines[:3]] == [
    ["method", "run"], ["a", "x"], ["a", "y"],
  ]  # fmt: skip


@pytest.mark.parametrize(
  ("first", "second", "wanted"),
  [
    # Differences 10 and 20, 0 and −4: half-widths 12.7 s / √2, 63.53 and 25.41.
    (
      {0: [0.1, 0.5], 1: [0.2, 0.5]},
      {1: [0.4, 0.46], 0: [0.2, 0.5]},
      ["2", "+15.00 ± 63.53", "−2.00 ± 25.41"],
    ),
    ({0: [0.1, 0.5], 1: [0.2, 0.5]}, {1: [0.4, 0.46], 7: [0, 0]},
     ["1", "+20.00", "−4.00"]),
    ({3: [0.1, None]}, {3: [0.4, 0.5]}, ["1", "+30.00", "–"]),
    ({3: [0.1, 0.2]}, {4: [0.4, 0.5]}, ["0", "–", "–"]),
  ],
)  # fmt: skip
def test_runs_are_compared_seed_by_seed(first, second, wanted):
  cells = beside(old=first, new=second)
  (line,) = by_seed.differences(cells).lines
  assert line == ["a", "new − old", *wanted]
  named = [{"values": v, "results": t} for v, t in cells]
  told = grid_report.sections(named, [])
  assert told[0] == "## Differences, seed by seed" and line[-1] in told[2]


def test_without_two_runs_of_a_method_nothing_is_compared():
  cells = beside(old={0: [0.1, 0.2]}, new={0: [0.1, 0.2]})
  cells[1][1]["rows"].pop(0)
  assert by_seed.differences(cells) is None


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
  assert lines[5][:4] == ["2", "b", "1", "30.00"], "no interval, no mark"
  assert len({len(line) for line in lines}) == 1
  same = formats.markdown(tables.compare(records.collect(whole, {"k": 1})))
  assert "seeds" not in same


GAINS = {
  # (HARMONY, two other rows) of seeds 0 and 1 at rho 0 and 0.8
  "HARMONY": [[0.9, 0.7], [0.92, 0.74]],
  "SplitGP λ=0.9": [[0.95, 0.5], [0.93, 0.5]],
  "SplitGP λ=0.2+FT": [[0.5, 0.72], [0.5, 0.68]],
}


def with_gains(headline="harmony", seeds=(0, 1)):
  rows = []
  for label, each in GAINS.items():
    mean = [sum(x) / len(seeds) for x in zip(*each[: len(seeds)], strict=True)]
    rows.append(row(label, mean))
    rows[-1]["by_seed"] = {"accuracy": each}
  tree = results(rows[::-1], "HARMONY Table 2", "small")
  if len(seeds) > 1:
    del tree["seed"]
    tree["seeds"] = list(seeds)
  labels = {"ft": "SplitGP λ=0.2+FT", "harmony": "HARMONY"}
  tree["config"]["methods"] = {k: {"label": v} for k, v in labels.items()}
  tree["config"]["headline"] = headline
  return tree


def test_the_gain_over_the_best_other_row_by_hand():
  """Best others: λ=0.9 at 0 (94 %), +FT at 0.8 (70 %).

  Differences −5 and −1, −2 and +6: half-widths 12.706 s / √2, s = 2.83 and
  5.66. The paper's: 92.34 − 93.00 and 71.45 − 64.46.
  """
  found = records.collect(with_gains(), {})
  words, line = by_seed.gains(found)
  assert "best other row" in words
  assert line == (
    "- ρ=0 −3.00 ± 25.41 (paper −0.66), HARMONY − SplitGP λ=0.9; ρ=0.8 +2.00 ±"
    " 50.82 (paper +6.99), HARMONY − SplitGP λ=0.2+FT"
  )
  lines = csv.DictReader(io.StringIO(records.as_csv(found)))
  first, second = (x for x in lines if x["metric"] == "gain")
  assert (first["row"], first["over"]) == ("HARMONY", "SplitGP λ=0.9")
  assert float(second["value"]) == pytest.approx(0.02)
  assert float(second["half"]) == pytest.approx(0.5082, abs=1e-4)
  cells = [{"values": {}, "results": with_gains()}]
  told = grid_report.sections(cells, found)
  assert told[:2] == [words, line]
  # Its table shows no gains: the line has them.
  assert "gain" not in formats.markdown(tables.compare(found))


def one(label, accuracy, **more):
  """A row of one test set."""
  return row(label, [accuracy], offload=[0.0], latency=[1e6], **more)


def test_the_gain_of_another_method_of_one_seed_and_of_cells():
  (_, line) = by_seed.gains(records.collect(with_gains(seeds=[0]), {}))
  assert line.startswith("- ρ=0 −5.00 (paper −0.66), HARMONY − SplitGP λ=0.9;")
  (_, line) = by_seed.gains(records.collect(with_gains(""), {"x.k": 2}))
  assert line.startswith("- k=2: ρ=0 −44.00 ± 12.71 (paper"), "the first"
  assert "SplitGP λ=0.2+FT − HARMONY" in line
  alone = {**with_gains(), "rows": with_gains()["rows"][-1:]}
  one_set = results([one("a", 0.5), one("b", 0.6)])
  one_set["sets"] = ["global"]
  for tree in (alone, one_set):
    assert by_seed.gains(records.collect(tree, {})) == []


def test_the_gains_of_harmony_s_abstract_are_over_splitgp_02():
  """43.0 and 28.3 points, Table 3; over the best row there it gains less."""
  at = {
    (line.row, line.set): 100 * number.value
    for line, number in paper_numbers.numbers("HARMONY Table 3", {}).items()
    if line.metric == "accuracy"
  }
  over = {
    label: [at["HARMONY", x] - at[label, x] for x in ("0", "0.49")]
    for label in ("SplitGP λ=0.2", "SplitGP λ=0.9")
  }
  assert over["SplitGP λ=0.2"] == pytest.approx([43.0, 28.3], abs=0.05)
  assert over["SplitGP λ=0.9"] == pytest.approx([1.89, 1.26], abs=0.005)


def test_the_best_lambda_of_splitgp_s_table_3():
  """Its own numbers as ours: it says 0.2 in [0, 1] and 0.3 in [0, 0.2].

  (95.10 + 90.93 + 87.95 + 85.74 + 84.15) / 5 = 88.774, (96.93 + 91.69) / 2.
  """
  printed = paper_numbers.numbers("SplitGP Table III", {})
  rows, methods = [], {}
  for lam in (0.2, 0.3, 0.5, 0.9):
    label = f"SplitGP λ={lam}"
    own = [n.value for line, n in printed.items() if line.row == label]
    rows.append(row(label, own, offload=own, latency=own))
    methods[f"m{lam}"] = {"name": "splitgp", "label": label, "lam": lam}
  tree = results(rows, "SplitGP Table III", "small")
  tree["config"]["methods"] = methods
  tree["sets"] = ["0.0", "0.2", "0.4", "0.6", "0.8"]
  (text,) = page._best_option(tree, records.collect(tree, {}))
  assert "in [0, 1] (here 0, 0.2, 0.4, 0.6, 0.8) 0.2 with 88.77 % and" in text
  assert text.endswith(
    "in [0, 0.2] (here 0, 0.2) 0.3 with 94.31 % and 0.3 with 94.31 % in the"
    " paper."
  )
  methods["m0.2"]["gamma"] = 0.1  # two options: no sweep of one
  assert page._best_option(tree, records.collect(tree, {})) == []


def of_data(name, cell, values, source):
  """A workdir side by side, of PGFedSplit's Table 2 on a data set."""
  rows = [one(label, x, best=[x]) for label, x in values.items()]
  tree = results(rows, source, "small", [0, 1])
  for each, x in zip(rows, values.values(), strict=True):
    each["by_seed"] = {"accuracy": [[x - 0.01], [x + 0.01]]}
  tree["sets"] = ["local"]
  tree["config"] |= {"data": {"name": name, "partition": {"alpha": 0.1}}}
  run = f"{name}/{cell}".rstrip("/")
  return {"name": run, "cell": cell, "values": {"run": run}, "results": tree}


@pytest.mark.parametrize("cell", ["", "alpha=0.1"])
def test_means_over_data_sets_by_hand(cell):
  cells = [
    of_data("a", cell, {"Local": 0.6, "FedAvg": 0.5}, ""),
    of_data("b", cell, {"Local": 0.8}, ""),
  ]
  found = [r for c in cells for r in records.collect(c["results"], c["values"])]
  means = by_seed.over_data_sets(cells, found)
  # Seeds' means 69 and 71 %, ± 12.706 · 1.414 / √2; FedAvg lacks a data set.
  assert [(r.row, r.metric, r.values["run"]) for r in means] == [
    ("Local", metric, f"mean/{cell}".rstrip("/"))
    for metric in ("accuracy", "best")
  ]
  assert [r.value for r in means] == pytest.approx([0.7, 0.7])
  assert means[0].half == pytest.approx(0.12706, abs=1e-5)
  assert means[1].half is None  # seeds' best rounds are not kept
  assert by_seed.over_data_sets(cells[:1], found) == []
  same = [cells[0], {**cells[1], "results": cells[0]["results"]}]
  assert by_seed.over_data_sets(same, found) == [], "one data set twice"


def test_the_averages_of_pgfedsplit_s_table_2_are_means_of_its_columns():
  """PGFedSplit, beta 0.1: (97.62 + 90.57 + 64.41 + 38.45) / 4 = 72.76."""
  titles = "Fashion-MNIST", "CIFAR-10", "CIFAR-100", "Tiny-ImageNet"
  apart = []
  for alpha in (0.1, 1.0):
    values = {"data.partition.alpha": alpha}
    columns = [
      paper_numbers.numbers(f"PGFedSplit Table 2, {title}", values)
      for title in titles
    ]
    average = paper_numbers.numbers("PGFedSplit Table 2, average", values)
    for line, number in average.items():
      each = [x for of in columns for at, x in of.items() if at.row == line.row]
      assert len(each) == 4
      mean = sum(x.value for x in each) / 4
      apart.append((line.row, alpha, round(100 * (mean - number.value), 3)))
  assert [x for x in apart if abs(x[2]) > 0.006] == []
  cells = [
    of_data(title, "", {"PGFedSplit": 0.5}, f"PGFedSplit Table 2, {title}")
    for title in titles
  ]
  found = [r for c in cells for r in records.collect(c["results"], c["values"])]
  (paper,) = (
    r.paper for r in by_seed.over_data_sets(cells, found) if r.metric == "best"
  )
  assert 100 * paper.value == pytest.approx(72.7625)


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
  assert one == "One seed: no interval" and "no choice from the grid" in rule
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


def test_every_printed_number_can_be():
  for source in paper_numbers.sources():
    numbers = paper_numbers._all()[source]
    for at, number in numbers.items():
      assert number.half is None or number.half > 0
      if at.metric == "latency":
        assert 1e6 < number.value < 1e11
      elif at.metric == "storage":  # |phi| and |h| of |phi| and |theta|
        assert 0 < number.value < 0.2
      elif at.metric in paper_numbers.SCALE:  # rounds, bytes, seconds, watts
        assert 1 < number.value < 2e11
      else:
        assert 0 < number.value < 1, at
