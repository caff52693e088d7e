"""Figures and columns of what training costs."""

from types import SimpleNamespace

import numpy as np
import pytest
from example_results import cost, example
from refusals import refused

from splitjax import experiment, files, reports
from splitjax.fleet.resources import Devices, Rates
from splitjax.reports import figures

FIGURES = "blank"


def priced(seed):
  """`example` with what it cost."""
  results = files.plain(example(seed))
  total, clients, spent = files.plain(cost(seed))
  for row in results["rows"]:
    row["cost"] = total
    row["summary"]["per_client"]["cost"] = clients
  results["learning"]["SplitGP"]["cost"] = spent
  return results


def test_accuracy_over_cost_and_cost_of_clients():
  plain = files.plain(example())
  assert not figures.priced(plain) and not figures.spent(plain)
  both = reports.combine([priced(0), priced(1)])
  both["config"]["eval"] = {"target": 0.85}
  for draw in (figures.accuracy_over_cost, figures.cost_per_client):
    draw(both).draw_without_rendering()

  # Clients of both seeds; means over seeds of what rounds cost; the target.
  (spent, *_) = figures.spent(both)
  assert spent["seconds"] == sorted([*range(10, 16), *range(11, 17)])
  every = figures.accuracy_over_cost(both).axes
  heads = [axes.get_xlabel() for axes in every]
  assert heads == [name for name, _ in figures.AXES.values()]
  for axes, unit in zip(every[1:], (1e-6, 1.0, 1000.0), strict=True):
    curve, target = axes.get_lines()
    wanted = [1.5 * unit, 3 * unit, 4.5 * unit, 6 * unit]
    assert curve.get_xdata().tolist() == wanted
    assert set(target.get_ydata()) == {85.0}
    # Each seed's accuracy after the last round is a dot at the end.
    (row,) = (row for row in both["rows"] if row["label"] == "SplitGP")
    dots = np.array(axes.collections[0].get_offsets())
    ends = [100 * seed[0] for seed in row["by_seed"]["accuracy"]]
    assert dots[:, 1].tolist() == pytest.approx(ends) and len(ends) == 2
    assert set(dots[:, 0]) == {wanted[-1]}
  assert "dots: seeds" in every[0].figure.get_suptitle()
  alone = figures.accuracy_over_cost(priced(0)).get_suptitle()
  assert "dots" not in alone


def test_a_grid_with_a_target_has_accuracy_over_megabytes(tmp_path):
  cells = []
  for k in (1, 2):
    results = priced(0)
    results["config"]["eval"] = {"target": 0.85}
    spent = results["learning"]["SplitGP"]["cost"]
    spent["bytes"] = [x / k for x in spent["bytes"]]
    cells.append({"name": f"k={k}", "values": {"k": k}, "results": results})
  whole = {"fields": ["k"], "cells": cells}
  drawn = figures.draw_grid(whole, tmp_path)
  assert "accuracy_over_bytes.png" in [path.name for path in drawn]
  (axes,) = figures.over_bytes(
    [(str(cell["values"]["k"]), cell["results"]) for cell in cells]
  ).axes
  one, two, target = axes.get_lines()
  assert one.get_xdata().tolist() == [2 * x for x in two.get_xdata()]
  assert one.get_ydata().tolist() == two.get_ydata().tolist()
  assert set(target.get_ydata()) == {85.0}
  # Not of other targets, nor on other test sets.
  first = cells[0]["results"]
  for key, value in (
    ("config", {**first["config"], "eval": {"target": None}}),
    ("config", {**first["config"], "eval": {"target": 0.5}}),
    ("sets", [f"other {name}" for name in first["sets"]]),
  ):
    cells[0]["results"] = {**first, key: value}
    places = figures.draw_grid({**whole, "fields": ["run", "k"]}, tmp_path)
    assert "accuracy_over_bytes.png" not in [path.name for path in places]


def bars(figure):
  """Name of a panel -> the lengths of its bars."""
  return {
    axes.get_xlabel(): [bar.get_width() for bar in axes.patches]
    for axes in figure.axes
  }


def test_speed_up_over_the_first_row():
  """Bars of SuperSFL's Figure 4, of means over two seeds."""
  both = [priced(0), priced(1)]
  names = "rounds", "bytes", "seconds", "joules"
  took = {"SplitFed": (9, 4e8, 30, 2), "HARMONY": (3, 1e8, 60, 1)}
  for seed, results in enumerate(both):
    results["config"]["eval"] = {"target": 0.7}
    for row in results["rows"]:
      spent = took.get(row["label"])
      values = spent and [x * (1 + seed) for x in spent]
      row["to_target"] = values and dict(zip(names, values, strict=True))
  whole = reports.combine(both)
  assert bars(figures.speed_up(whole)) == {
    "speed-up, rounds": [1, 3],
    "speed-up, megabytes": [1, 4],
    "speed-up, modelled time": [1, 0.5],
  }
  # A row that sends nothing has no bar of bytes.
  reached = figures.raced(whole)
  reached[1]["to_target"]["bytes"] = 0
  (_, none) = bars(figures.speed_up(whole))["speed-up, megabytes"]
  assert np.isnan(none)
  # Nothing to compare with where the first row is not there.
  whole["rows"][0]["to_target"] = None
  assert not figures.raced(whole)
  with refused("figures.speed_up"):
    figures.speed_up(whole)


def test_power_and_grams():
  """Bars of SuperSFL's Figure 5."""
  results = priced(0)
  count = len(results["rows"])
  assert bars(figures.power(results)) == {
    "modelled power per point [W/%]": [0.01] * count,
    "modelled CO₂ [g]": [0.01] * count,
  }


def test_power_is_joules_over_seconds_and_over_points():
  """Two rounds of 10 s and 10 J, 50 %: 1 W, 0.02 W/%."""
  fleet = SimpleNamespace(hardware=Devices(None, Rates(grid=360.0)))
  task = SimpleNamespace(network=SimpleNamespace(fleet=fleet))
  model = {
    "seconds": 10.0, "client_joules": 5.0, "server_joules": 5.0, "clients": {},
  }  # fmt: skip
  found = experiment.of_run(task, [{"cost": model}] * 2, 0.5)["cost"]
  assert (found["watts"], found["watts_per_point"]) == (1.0, 0.02)
