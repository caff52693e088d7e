"""Figures and columns of what training costs."""

from example_results import cost, example

from splitjax import files
from splitjax.reports import over_seeds, page
from splitjax.reports.figures import cost as cost_figures
from splitjax.reports.figures import grid, style

FIGURES = True


def priced(seed):
  """`example` with what it cost."""
  results = files.plain(example(seed))
  total, clients, spent = files.plain(cost(seed))
  for row in results["rows"]:
    row["cost"] = total
    row["summary"]["per_client"]["cost"] = clients
  results["learning"]["SplitGP"]["cost"] = spent
  return results


def test_accuracy_over_cost_and_cost_of_clients(tmp_path, monkeypatch):
  plain = files.plain(example())
  assert not cost_figures.priced(plain) and not cost_figures.spent(plain)
  both = over_seeds.combine([priced(0), priced(1)])
  both["config"]["eval"] = {"target": 0.85}
  for draw in (cost_figures.accuracy_over_cost, cost_figures.cost_per_client):
    path = style.save(draw(both), tmp_path / "figure.png")
    assert path.stat().st_size > 10_000

  # Clients of both seeds; means over seeds of what rounds cost; the target.
  (spent, *_) = cost_figures.spent(both)
  assert spent["seconds"] == sorted([*range(10, 16), *range(11, 17)])
  every = cost_figures.accuracy_over_cost(both).axes
  heads = [axes.get_xlabel() for axes in every]
  assert heads == [name for name, _ in cost_figures.AXES.values()]
  for axes, unit in zip(every[1:], (1e-6, 1.0, 1000.0), strict=True):
    curve, target = axes.get_lines()
    wanted = [1.5 * unit, 3 * unit, 4.5 * unit, 6 * unit]
    assert curve.get_xdata().tolist() == wanted
    assert set(target.get_ydata()) == {85.0}


def test_a_grid_with_a_target_has_accuracy_over_megabytes(tmp_path):
  cells = []
  for k in (1, 2):
    results = priced(0)
    results["config"]["eval"] = {"target": 0.85}
    spent = results["learning"]["SplitGP"]["cost"]
    spent["bytes"] = [x / k for x in spent["bytes"]]
    cells.append({"name": f"k={k}", "values": {"k": k}, "results": results})
  whole = {"fields": ["k"], "cells": cells}
  drawn = grid.draw(whole, tmp_path)
  assert "accuracy_over_bytes.png" in [path.name for path in drawn]
  (axes,) = cost_figures.over_bytes(
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
    places = grid.draw({**whole, "fields": ["run", "k"]}, tmp_path)
    assert "accuracy_over_bytes.png" not in [path.name for path in places]


def test_measured_energy_has_a_column_where_it_was_measured():
  results = priced(0)
  results["config"]["eval"] = {}
  text = page.text(results, [])
  assert "| power per point [W/%] |" in text and "accelerators" not in text
  for row in results["rows"]:
    row["cost"]["measured_joules"] = 12.0
  text = page.text(results, [])
  assert "| accelerators, measured [J] |" in text and "by NVML" in text
