"""Figures of grids: over a number, and where there are none."""

import numpy as np
import pytest
from example_results import example

from splitjax import files
from splitjax.reports import over_seeds
from splitjax.reports.figures import grid, style

FIGURES = "blank"


@pytest.fixture(name="drawn")
def catch(monkeypatch):
  """What `finish` gets of each figure: panels, labels, title."""
  caught, whole = [], style.finish

  def finish(figure, panels, styles, title):
    caught.append((list(panels), list(styles), title))
    return whole(figure, panels, styles, title)

  monkeypatch.setattr(style, "finish", finish)
  return caught


def grid_of(field, values, count=3):
  cells = []
  for value in values:
    each = [files.plain(example(seed)) for seed in range(count)]
    found = over_seeds.combine(each) if count > 1 else each[0]
    cells.append({"name": "", "values": {field: value}, "results": found})
  return {"title": "t", "fields": [field], "cells": cells}


def test_a_grid_over_a_number_is_a_figure(tmp_path, drawn):
  field = "data.partition.alpha"
  whole = grid_of(field, (1.0, 0.1, 0.3))
  whole["cells"][0]["results"]["rows"].pop()  # FedAvg is not there yet
  (path,) = grid.draw(whole, tmp_path)
  assert path.name == "accuracy_over_alpha.png"
  every, labels, _ = drawn[-1]
  assert [axes.get_title() for axes in every] == ["ρ=0", "ρ=0.8"]
  assert labels == [row["label"] for row in example()["rows"]]
  assert every[0].get_xscale() == "log"
  assert every[0].get_xlabel() == "Dirichlet α"
  assert every[0].get_xticks().tolist() == [0.1, 0.3, 1.0]
  gone = every[0].containers[-1].lines[0].get_ydata()
  assert np.isfinite(gone).tolist() == [True, True, False]


def test_other_grids_have_no_such_figure(tmp_path):
  assert grid.draw(grid_of("x", ("a", "b"), 1), tmp_path) == []
  assert grid.draw(grid_of("x", (True, False), 1), tmp_path) == []
  assert grid.draw(grid_of("x", (1,), 1), tmp_path) == []
  two = grid_of("x", (1, 2), 1)
  two["fields"].append("y")
  for cell in two["cells"]:
    cell["values"]["y"] = 3
  assert grid.draw(two, tmp_path) == []


@pytest.mark.parametrize(
  ("option", "values", "logarithmic"),
  [
    ("inner_lr", (0.01, 0.05), True),
    ("server_lr", (0.0, 0.05), False),
    ("lam", (0.2, 0.9), False),
  ],
)
def test_rates_stand_on_a_logarithmic_axis(option, values, logarithmic):
  whole = grid_of(f"optimizer.{option}", values, 1)
  (first, *_) = grid.over_axis(whole).axes
  assert first.get_xscale() == ("log" if logarithmic else "linear")
  assert first.get_xticks().tolist() == sorted(values)
