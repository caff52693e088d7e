"""Differences seed by seed, gains over the best other row, means over data."""

import csv
import io

import pytest
from example_results import table_cells
from example_tables import of_data, one, results, row

from splitjax import reports


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
  found = [r for v, tree in cells for r in reports.collect(tree, v)]
  lines = table_cells(reports.markdown(reports.compare(found)))
  assert lines[0][:2] == ["method", "run"]
  names = [["a", "one"], ["a", "two"], ["one", "one"], ["two", "two"]]
  assert [line[:2] for line in lines[1:]] == names
  # The numbers for other programs stay by run.
  first = next(csv.DictReader(io.StringIO(reports.as_csv(found))))
  assert (first["run"], first["row"]) == ("one", "a")
  text = reports.seed_section(
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
  ],
)  # fmt: skip
def test_runs_are_compared_seed_by_seed(first, second, wanted):
  cells = beside(old=first, new=second)
  (line,) = reports.differences(cells).lines
  assert line == ["a", "new − old", *wanted]
  named = [{"values": v, "results": t} for v, t in cells]
  told = reports.sections(named, [])
  assert told[0] == "## Differences, seed by seed" and line[-1] in told[2]


def test_without_two_runs_of_a_method_nothing_is_compared():
  cells = beside(old={0: [0.1, 0.2]}, new={0: [0.1, 0.2]})
  cells[1][1]["rows"].pop(0)
  assert reports.differences(cells) is None
  apart = beside(old={0: [0.1, 0.2]}, new={1: [0.1, 0.2]})
  assert reports.differences(apart) is None


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
  found = reports.collect(with_gains(), {})
  words, line = reports.gains(found)
  assert "best other row" in words
  assert line == (
    "- ρ=0 −3.00 ± 25.41 (paper −0.66), HARMONY − SplitGP λ=0.9; ρ=0.8 +2.00 ±"
    " 50.82 (paper +6.99), HARMONY − SplitGP λ=0.2+FT"
  )
  lines = csv.DictReader(io.StringIO(reports.as_csv(found)))
  first, second = (x for x in lines if x["metric"] == "gain")
  assert (first["row"], first["over"]) == ("HARMONY", "SplitGP λ=0.9")
  assert float(second["value"]) == pytest.approx(0.02)
  assert float(second["half"]) == pytest.approx(0.5082, abs=1e-4)
  cells = [{"values": {}, "results": with_gains()}]
  told = reports.sections(cells, found)
  assert told[:2] == [words, line]
  # Its table shows no gains: the line has them.
  assert "gain" not in reports.markdown(reports.compare(found))


def test_notes_name_cell_and_seed(tmp_path):
  cells = [
    {"name": f"k={k}", "values": {"data.partition.k": k}, "results": results}
    for k, results in ((1, with_gains()), (2, with_gains()))
  ]
  whole = {"title": "t", "fields": ["data.partition.k"], "cells": cells}
  one, two = (cell["results"] for cell in cells)
  one["notes"], two["notes"] = ["all", "some"], ["all", "seed 3: lost"]
  page = reports.write_grid(whole, tmp_path, ["a", "b"], []).read_text()
  notes = [x for x in page.splitlines() if x[2:].endswith(("all", "e", "lost"))]
  assert notes == ["- all", "- k=1: some", "- k=2: seed 3: lost"]


def test_the_gain_of_another_method_of_one_seed_and_of_cells():
  (_, line) = reports.gains(reports.collect(with_gains(seeds=[0]), {}))
  assert line.startswith("- ρ=0 −5.00 (paper −0.66), HARMONY − SplitGP λ=0.9;")
  (_, line) = reports.gains(reports.collect(with_gains(""), {"x.k": 2}))
  assert line.startswith("- k=2: ρ=0 −44.00 ± 12.71 (paper"), "the first"
  assert "SplitGP λ=0.2+FT − HARMONY" in line
  # Its own fine-tuned row is no other method.
  own = with_gains()
  own["rows"].append(row("HARMONY+FT", [0.99, 0.99]))
  assert reports.gains(reports.collect(own, {})) == reports.gains(
    reports.collect(with_gains(), {})
  )
  alone = {**with_gains(), "rows": with_gains()["rows"][-1:]}
  one_set = results([one("a", 0.5), one("b", 0.6)])
  one_set["sets"] = ["global"]
  for tree in (alone, one_set):
    assert reports.gains(reports.collect(tree, {})) == []


def test_means_over_data_sets_by_hand(cell="alpha=0.1"):
  cells = [
    of_data("a", cell, {"Local": 0.6, "FedAvg": 0.5}, ""),
    of_data("b", cell, {"Local": 0.8}, ""),
  ]
  found = [r for c in cells for r in reports.collect(c["results"], c["values"])]
  means = reports.over_data_sets(cells, found)
  # Seeds' means 69 and 71 %, ± 12.706 · 1.414 / √2; FedAvg lacks a data set.
  assert [(r.row, r.metric, r.values["run"]) for r in means] == [
    ("Local", metric, f"mean/{cell}") for metric in ("accuracy", "best")
  ]
  assert [r.value for r in means] == pytest.approx([0.7, 0.7])
  assert means[0].half == pytest.approx(0.12706, abs=1e-5)
  assert means[1].half is None  # seeds' best rounds are not kept
  assert reports.over_data_sets(cells[:1], found) == []
  same = [cells[0], {**cells[1], "results": cells[0]["results"]}]
  assert reports.over_data_sets(same, found) == [], "one data set twice"
