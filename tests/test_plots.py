"""Figures are files with something on them, and methods look alike in all."""

import numpy as np
import pytest
from matplotlib import image
from test_report import example

from splitjax import plots, report, seeds


def drawn_on(path):
  """Share of the pixels that are not white."""
  pixels = image.imread(path)[..., :3]
  return float((pixels < 0.99).any(axis=-1).mean())


@pytest.mark.parametrize("count", [1, 3])
def test_draws_every_figure(tmp_path, count):
  runs = [report.plain(example(seed)) for seed in range(count)]
  results = runs[0] if count == 1 else seeds.combine(runs)
  paths = plots.draw_all(results, tmp_path / "figures")
  assert [path.name for path in paths] == [
    "accuracy_over_rho.png",
    "accuracy_latency.png",
    "learning_curves.png",
  ]
  for path in paths:
    assert path.parent == tmp_path / "figures"
    assert 0.02 < drawn_on(path) < 0.5
    assert min(image.imread(path).shape[:2]) > 500


def test_intervals_are_drawn(tmp_path):
  runs = [report.plain(example(seed)) for seed in range(3)]
  for name in ("accuracy_over_rho", "learning_curves"):
    draw = getattr(plots, name)
    combined = seeds.combine(runs)
    draw(combined, tmp_path / "with.png")
    for part in (*combined["rows"], *combined["learning"].values()):
      del part["interval"]
    draw(combined, tmp_path / "without.png")
    more = image.imread(tmp_path / "with.png")
    less = image.imread(tmp_path / "without.png")
    assert more.shape != less.shape or (more != less).any()


def test_one_rho_no_learning_and_nulls(tmp_path):
  results = report.plain(example())
  results["sets"] = results["sets"][:1]
  del results["learning"]
  results["rows"][1]["summary"]["accuracy"][0] = None
  paths = plots.draw_all(results, tmp_path)
  assert [path.name for path in paths] == ["accuracy_latency.png"]


def test_fine_tuned_rows_share_their_method_s_colour():
  labels = ["A", "A+FT", *"BCDEFGHIJKLMNOPQ"]
  styles = plots._styles({"rows": [{"label": label} for label in labels]})
  assert styles["A"]["color"] == styles["A+FT"]["color"]
  assert styles["A"]["linestyle"] != styles["A+FT"]["linestyle"]
  looks = {
    (style["color"], style["marker"], style["linestyle"])
    for style in styles.values()
  }
  assert len(looks) == len(labels)


def test_latency_axis_is_logarithmic_where_it_must_be():
  figure = plots.Figure()
  axes = figure.subplots(1, 2, sharex=True)
  axes[0].plot([1.0, 5.0], [0, 1])
  axes[1].plot([np.nan, 9.0], [0, 1])
  plots._scale(axes)
  assert axes[0].get_xscale() == "linear"
  axes[1].plot([20.0], [1])
  plots._scale(axes)
  assert axes[0].get_xscale() == axes[1].get_xscale() == "log"
