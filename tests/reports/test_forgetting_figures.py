"""Figures of forgetting: classes, positions, cells of a grid."""

import json

import numpy as np
import pytest
from example_results import forgetting_example, placed
from refusals import refused

from splitjax import experiment, reports
from splitjax.reports import figures

FIGURES = "blank"
NAMES = {"class_accuracy.png", "accuracy_by_order.png", "accuracy_gap.png"}


def test_figures_of_few_classes_one_row_and_nulls():
  results = forgetting_example(classes=4)
  for curve in results["learning"].values():
    curve["per_class"][0][0] = None
  for name in list(results["learning"])[1:]:
    del results["learning"][name]
  del results["rows"][1:]
  results["rows"][0]["summary"]["forgetting"]["accuracy"] = None
  drawable = figures.drawable(results)
  assert NAMES <= {f"{name}.png" for name in drawable}
  assert NAMES <= set(experiment.figures([]))
  for name in NAMES:
    drawable[name.removesuffix(".png")](results).draw_without_rendering()


def test_a_heat_map_has_a_row_per_class_and_the_mean():
  results = forgetting_example(classes=7)
  axes = figures.class_accuracy(results).axes[1]
  curve = results["learning"]["SplitGP"]
  table = np.ma.getdata(axes.get_images()[0].get_array())
  np.testing.assert_allclose(table[:7], 100 * np.array(curve["per_class"]).T)
  np.testing.assert_allclose(
    table[-1], 100 * np.array(curve["accuracy"]["global"])
  )
  ticks = [label.get_text() for label in axes.get_xticklabels()]
  assert ticks == list("123456")


def test_confusion_panels(count=7):
  shares = np.full((count, 10, 10), 0.1)
  shares[0, 3] = np.nan
  names = [f"after position {k + 1}" for k in range(count)]
  figure = figures.confusion(shares, names)
  figure.draw_without_rendering()
  assert [axes.get_title() for axes in figure.axes if axes.get_title()] == names


def test_positions_over_rounds_by_hand(classes=21):
  runs = [forgetting_example(seed, classes=classes) for seed in (0, 1)]
  orders = np.random.default_rng(0).permuted([range(classes)] * 2, axis=1)
  each = [
    placed(run, order.tolist(), None, None)
    for run, order in zip(runs, orders, strict=True)
  ]
  # As it is reported over seeds: from files.
  combined = json.loads(json.dumps(reports.combine(each)))
  figure = figures.position_curves(combined)
  (axes,) = figure.axes
  assert axes.get_title() == "SplitFed"
  lines = axes.get_lines()
  shown = range(max(0, classes - 10), classes)
  assert len(lines) == len(shown) + 1
  for place, line, band in zip(shown, lines, axes.collections, strict=False):
    one, two = (
      100
      * np.array(run["learning"]["SplitFed"]["per_class"])[
        :, order.tolist().index(place)
      ]
      for run, order in zip(runs, orders, strict=True)
    )
    np.testing.assert_allclose(line.get_ydata(), (one + two) / 2)
    # t(0.975, 1) = 12.706; s / sqrt(2) of two values is half their distance.
    top = np.minimum((one + two) / 2 + 12.7062 * abs(one - two) / 2, 100)
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(top.max(), rel=1e-4)
  whole = combined["learning"]["SplitFed"]["accuracy"]["global"]
  np.testing.assert_allclose(lines[-1].get_ydata(), 100 * np.array(whole))
  alone = figures.position_curves(each[0]).axes[0].get_lines()
  assert len(alone) == len(lines)
  assert "accuracy_by_position" in figures.drawable(combined)
  assert "accuracy_by_position.png" in experiment.figures([])
  figure.draw_without_rendering()


def test_seeds_with_other_positions_have_no_curves_over_them():
  runs = [forgetting_example(seed, classes=4) for seed in (0, 1)]
  orders = [0, 1, 2, 3], [0, 1, 2, -1]
  each = [
    placed(run, o, None, None) for run, o in zip(runs, orders, strict=True)
  ]
  combined = reports.combine(each)
  assert "per_position" not in combined["learning"]["SplitFed"]
  with refused("figures.position_curves"):
    figures.position_curves(combined)


def test_changes_against_the_first_row_stand_over_the_bars():
  cells = []
  for name, accuracies, gaps in (
    ("cyclic", (0.411, 0.65), (0.434, 0.154)),
    ("random", (0.35, 0.665), (0.0, 0.1)),
  ):
    results = forgetting_example()
    del results["rows"][2]
    for row, own, gap in zip(results["rows"], accuracies, gaps, strict=True):
      row["summary"]["forgetting"] |= {"accuracy": own, "gap": gap}
    cells.append((name, results))
  above, below = figures.changes(cells).axes
  heights = [100 * x for x in (0.411, 0.35, 0.65, 0.665)]
  assert [bar.get_height() for bar in above.patches] == pytest.approx(heights)
  # Hydra's Table 4, and Figure 5's text: 65 of 41.1, 66.5 of 35, 15.4 of 43.4.
  assert [text.get_text() for text in above.texts] == ["+58 %", "+90 %"]
  assert [text.get_text() for text in below.texts] == ["-65 %"]
