"""The papers' numbers beside ours: which cell prints which."""

import re

import pytest
from example_results import example
from example_tables import TABLE2, of_data, results, row

from splitjax import config, files, reports


def listed(value):
  """Whether a summary's value has a number for each of three test sets."""
  return isinstance(value, list) and len(value) == 3


def best_options(tree):
  """The lines of a page about the best value of a swept option."""
  lines = reports.page_text(tree).splitlines()
  return [line for line in lines if line.startswith("The best lam")]


def test_the_best_lambda_of_splitgp_s_table_3():
  """Its own numbers as ours: it says 0.2 in [0, 1] and 0.3 in [0, 0.2].

  (95.10 + 90.93 + 87.95 + 85.74 + 84.15) / 5 = 88.774, (96.93 + 91.69) / 2.
  """
  printed = config.numbers("SplitGP Table III", {})
  tree = files.plain(example())
  tree["sets"] = ["0.0", "0.2", "0.4", "0.6", "0.8"]
  three = tree["rows"][1]["summary"]
  five = {k: [*v, *v[:2]] for k, v in three.items() if listed(v)}
  rows, methods = [], {}
  for lam in (0.2, 0.3, 0.5, 0.9):
    label = f"SplitGP λ={lam}"
    own = [n.value for line, n in printed.items() if line.row == label]
    summary = {**three, **five, "accuracy": own}
    rows.append({**tree["rows"][1], "label": label, "summary": summary})
    methods[f"m{lam}"] = {"name": "splitgp", "label": label, "lam": lam}
  tree["rows"] = rows
  tree["config"] |= {"paper": "SplitGP Table III", "scale": "small"}
  tree["config"]["methods"] = methods
  (line,) = best_options(tree)
  assert re.findall(r"(0\.\d) with (\S+) %", line) == [
    *[("0.2", "88.77")] * 2,  # in [0, 1], ours and the paper's
    *[("0.3", "94.31")] * 2,  # in [0, 0.2]
  ]
  methods["m0.2"]["gamma"] = 0.1  # two options: no sweep of one
  assert best_options(tree) == []


def test_the_averages_of_pgfedsplit_s_table_2_are_means_of_its_columns():
  """PGFedSplit, beta 0.1: (97.62 + 90.57 + 64.41 + 38.45) / 4 = 72.76."""
  titles = "Fashion-MNIST", "CIFAR-10", "CIFAR-100", "Tiny-ImageNet"
  apart = []
  for alpha in (0.1, 1.0):
    values = {"data.partition.alpha": alpha}
    columns = [
      config.numbers(f"PGFedSplit Table 2, {title}", values) for title in titles
    ]
    average = config.numbers("PGFedSplit Table 2, average", values)
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
  found = [r for c in cells for r in reports.collect(c["results"], c["values"])]
  (paper,) = (
    r.paper for r in reports.over_data_sets(cells, found) if r.metric == "best"
  )
  assert 100 * paper.value == pytest.approx(72.7625)


def test_what_a_cell_of_a_table_prints():
  drift = results([row("HARMONY", [0.9, 0.8])], "HARMONY Table 5, CINIC-10")
  drift["sets"] = ["w/o drift", "w/ drift"]
  field = "data.partition.alpha"
  for more in ({}, {"optimizer.lr": 0.05}, {"backbone.depths": [1, 2]}):
    found = reports.collect(drift, {**more, field: 0.3})
    printed = {r.set: r.paper for r in found if r.metric == "accuracy"}
    assert printed["w/o drift"].value == pytest.approx(0.7534), more
    assert printed["w/ drift"].value == pytest.approx(0.5272), more
  for other in ({}, {field: 0.2}, {"optimizer.lr": 0.3}, {field: None}):
    found = reports.collect(drift, other)
    assert not [r for r in found if r.paper is not None], other
  one = reports.collect(TABLE2, {"optimizer.lr": 0.05})
  assert {r.paper for r in one} == {
    r.paper for r in reports.collect(TABLE2, {})
  }


def test_what_a_cell_of_two_fields_prints():
  source = "Hydra Table 1, MobileNet, CIFAR-10, 80%-DL"

  def printed(**values):
    lines = config.numbers(
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


def test_a_page_without_a_paper_has_no_such_table():
  found = files.plain(example())
  assert "## Comparison with the paper" not in reports.page_text(found)
  found["config"] |= {"paper": "HARMONY Table 2", "scale": "small"}
  text = reports.page_text(found).split("## Comparison with the paper")[1]
  assert "| HARMONY, paper" in text.split("##")[0]


def test_every_printed_number_can_be():
  for source in config.sources():
    numbers = config.tables()[source]
    for at, number in numbers.items():
      assert number.half is None or number.half > 0
      if at.metric == "latency":
        assert 1e6 < number.value < 1e11
      elif at.metric == "storage":  # |phi| and |h| of |phi| and |theta|
        assert 0 < number.value < 0.2
      elif at.metric in config.SCALE:  # rounds, bytes, seconds, watts
        assert 1 < number.value < 2e11
      else:
        assert 0 < number.value < 1, at
