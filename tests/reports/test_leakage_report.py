"""Leakage in a report: tables, records, figures, from planted numbers."""

import numpy as np
import pytest
from example_results import example, table_cells

from splitjax import UserError, files
from splitjax.reports import grid_report, over_seeds, page, records
from splitjax.reports.figures import leakage as leakage_figures
from splitjax.reports.figures import plots

FIGURES = "blank"


def found(kind, units, mean, **depths):
  return {"attack": kind, "units": units, "mean": mean, "depth": depths}


def leaky(seed=0, accuracy=0.7):
  """`example` with two attacks on HARMONY and one on SplitGP and SplitFed."""
  results = files.plain(example(seed))
  labels, pixels = (
    {"accuracy": "%", "majority": "%"},
    {"psnr": "dB", "mean": "dB"},
  )
  for row in results["rows"]:
    pictures = found(
      "reconstruction", pixels, {"psnr": 20.0 + seed, "mean": 12.0}
    )
    if row["label"] in ("SplitFed", "SplitGP+FT", "HARMONY"):
      row["summary"]["leakage"] = {"pictures": pictures}
    if row["label"] == "HARMONY":
      own = {"accuracy": accuracy, "majority": 0.5}
      row["summary"]["leakage"]["match_graph"] = found(
        "match_graph",
        labels,
        own,
        **{
          "10": {"accuracy": 0.8, "majority": 0.5},
          "2": {"accuracy": 0.6, "majority": None},
        },
      )
  return results


def test_a_table_per_attack_with_the_depths_in_order():
  text = page.text(leaky(), [])
  section = text.split("## Leakage")[1].split("\n## ")[0]
  first, second = section.split("### ")[1:]
  assert first.startswith("`pictures` (`reconstruction`)")
  assert table_cells(first)[0] == ["method", "psnr [dB]", "mean [dB]"]
  assert table_cells(first)[2] == ["SplitGP+FT", "20.0", "12.0"]
  assert second.startswith("`match_graph`\n")
  heads, *lines = table_cells(second)
  shown = ["accuracy [%]", "majority [%]", "depth 2 [%]", "depth 10 [%]"]
  assert heads == ["method", *shown]
  assert lines[-1] == ["HARMONY", "70.0", "50.0", "60.0", "80.0"]
  assert lines[0] == ["SplitFed", "–", "–", "–", "–"]
  assert "has the raw labels in SplitFed, SplitGP+FT: there" in section
  assert "part of the network in SplitFed, SplitGP+FT, HARMONY" in section
  assert "## Leakage" not in page.text(files.plain(example()), [])


def test_seeds_have_means_and_intervals():
  both = over_seeds.combine([leaky(0, 0.6), leaky(1, 0.8)])
  rows = {row["label"]: row for row in both["rows"]}
  numbers = {
    (metric, place): (value, half)
    for metric, place, value, half in records.of_attacks(rows["HARMONY"])
  }
  value, half = numbers["match_graph: accuracy", ""]
  # t of one degree of freedom is 12.706; s / sqrt(2) = 0.1.
  assert value == pytest.approx(0.7) and half == pytest.approx(1.2706, abs=1e-4)
  assert numbers["match_graph: majority", "depth 2"] == (None, None)
  assert numbers["match_graph: accuracy", "depth 10"] == (pytest.approx(0.8), 0)
  assert "| 70.0 ± 127.1 |" in page.text(both, [])


def test_every_number_is_a_record():
  lines = records.as_csv(records.collect(leaky(), {})).splitlines()
  assert "HARMONY,match_graph: accuracy,depth 2,0.6,,1,,,," in lines
  assert "SplitFed,pictures: psnr,,20.0,,1,,,," in lines
  assert not any(x.startswith("SplitGP,") and "psnr" in x for x in lines)


def test_a_point_per_method_and_a_line_without_messages():
  figure = plots.accuracy_over_leakage(leaky())
  pictures, graph = figure.axes
  assert pictures.get_xlabel() == "psnr [dB]"
  assert graph.get_xlabel() == "accuracy [%]"
  assert len(pictures.containers) == 3 and len(graph.containers) == 1
  harmony = next(r for r in leaky()["rows"] if r["label"] == "HARMONY")
  ((x,), (y,)) = graph.containers[0][0].get_data()
  assert x == 70 and y == pytest.approx(100 * harmony["summary"]["accuracy"][0])
  dotted = [line for line in graph.get_lines() if line.get_linestyle() == ":"]
  assert [line.get_xdata()[0] for line in dotted] == [50]
  with pytest.raises(UserError, match=r"eval\.attacks"):
    plots.accuracy_over_leakage(files.plain(example()))


def test_a_grid_has_tables_of_epsilon_and_of_attacks():
  cells = []
  for k in (1, 2):
    results = leaky(0, 0.5 + k / 10)
    results["config"]["privacy"] = {"delta": 10.0**-k, "amplified": k == 2}
    for row in results["rows"]:
      if row["label"] == "HARMONY":
        row["privacy"] = {"up": {"max": 3.0 * k, "median": 1.0}}
    cells.append({"name": f"k={k}", "values": {"k": k}, "results": results})
  whole = {"title": "t", "cells": cells}
  text = "\n\n".join(grid_report.sections(cells, grid_report.collect(whole)))
  noise, attacks = (text.split(f"## {t}")[1] for t in ("Privacy", "Leakage"))
  assert "at δ = 0.01 or 0.1. The page" in noise
  assert "is an estimate, no bound" in noise
  epsilon = [["1", "HARMONY", "3.00"], ["2", "HARMONY", "6.00"]]
  assert table_cells(noise.split("\n\n## ")[0]) == [
    ["k", "method", "largest ε"],
    *epsilon,
  ]
  graph = table_cells(attacks.split("### `match_graph`")[1])
  assert [line for line in graph if "HARMONY" in line] == [
    ["1", "HARMONY", "60.0", "50.0", "60.0", "80.0"],
    ["2", "HARMONY", "70.0", "50.0", "60.0", "80.0"],
  ]
  assert attacks.count("SplitFed, SplitGP+FT: there") == 1


def test_pictures_of_a_client_stand_together():
  rng = np.random.default_rng(0)
  arrays = {
    "a/original": rng.random((2, 3, 4, 4, 1)),
    "a/reconstruction": rng.random((2, 3, 4, 4, 1)),
    "a/depth": np.array([1, 2]),
    "a/client": np.array([5, 0]),
    "b/other": rng.random((1, 2, 4, 4, 3)),
    "b/depth": np.array([1]),
    "b/client": np.array([5]),
  }
  figure = leakage_figures.pictures(arrays, "t")
  named = [x.texts[0].get_text() for x in figure.axes if x.texts]
  assert named == [
    "depth 1, client 5\noriginal",
    "depth 1, client 5\nreconstruction",
    "depth 2, client 0\noriginal",
    "depth 2, client 0\nreconstruction",
    "depth 1, client 5\nother",
  ]
  shown = [len(x.images) for x in figure.axes]
  assert sum(shown) == 4 * 3 + 2
  np.testing.assert_array_equal(
    figure.axes[3].images[0].get_array(),
    arrays["a/reconstruction"][0, 0, ..., 0],
  )
