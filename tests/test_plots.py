"""Figures are files with something on them, and methods look alike in all."""

import numpy as np
import pytest
from matplotlib import image
from test_report import example

from splitjax.figures import panels, plots, style
from splitjax.reports import report, seeds


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
    "effect_of_threshold.png",
    "accuracy_per_client.png",
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
  assert [path.name for path in paths] == [
    "accuracy_latency.png",
    "accuracy_per_client.png",
  ]


def test_a_row_s_clients_are_those_with_samples_or_of_all_seeds():
  one, two = (report.plain(example(seed)) for seed in (0, 1))
  for results, values in ((one, [0.5, None, 0.9]), (two, [0.7, 0.1, None])):
    for row in results["rows"]:
      row["summary"]["per_client"]["accuracy"] = [values] * 3
  assert panels.of_clients(one["rows"][0], 2).tolist() == [0.5, 0.9]
  row = seeds.combine([one, two])["rows"][0]
  assert panels.of_clients(row, 2).tolist() == [0.1, 0.5, 0.7, 0.9]


def test_many_thresholds_many_rows_and_clients_without_samples(tmp_path):
  results = report.plain(example())
  results["rows"] = [{**results["rows"][1], "label": str(i)} for i in range(9)]
  none = {"accuracy": [[None] * 6] * 3}
  first = results["rows"][0]
  first["summary"] = {**first["summary"], "per_client": none}
  results["thresholds"] = [0.1 * e for e in range(12)]
  for row in results["rows"]:
    fixed = {"accuracy": [[0.9, 0.8, 0.7 - 0.02 * e] for e in range(12)]}
    row["summary"] = {**row["summary"], "fixed": fixed}
  for draw in (panels.effect_of_threshold, panels.accuracy_per_client):
    assert 0.02 < drawn_on(draw(results, tmp_path / "many.png")) < 0.5
  chosen, styles = panels._thresholds(results["thresholds"])
  assert len(chosen) == 8 and chosen[0] == 0 and chosen[-1] == 11
  assert list(styles)[-1] == "oracle"


def test_a_legend_has_no_more_columns_than_fit():
  short, long = ["FedAvg"] * 6, ["FedAvg"] * 5 + ["x" * 60]
  assert style._fitting(short, 6.4, 3) == 3
  assert style._fitting(long, 6.4, 3) == 1
  assert style._fitting(long, 9.4, 3) == 3
  assert style._fitting(["x" * 500], 6.4, 3) == 1
  assert style._fitting(["FedAvg"] * 2, 6.4, 3) == 2


def test_a_sweep_of_lambda_has_shades_in_its_order():
  labels = ["A λ=0.9", "A λ=0.1", "A λ=0.5", "A λ=0.5+FT", "B λ=1", "C"]
  styles = style.row_styles({"rows": [{"label": label} for label in labels]})
  light = {x: sum(styles[x]["color"][:3]) for x in labels[:3]}
  assert light["A λ=0.1"] < light["A λ=0.5"] < light["A λ=0.9"]
  assert styles["A λ=0.5+FT"]["color"] == styles["A λ=0.5"]["color"]
  assert styles["B λ=1"]["color"] == style.COLOURS[0]
  assert styles["C"]["color"] == style.COLOURS[1]


def test_fine_tuned_rows_share_their_method_s_colour():
  labels = ["A", "A+FT", *"BCDEFGHIJKLMNOPQ"]
  styles = style.row_styles({"rows": [{"label": label} for label in labels]})
  assert styles["A"]["color"] == styles["A+FT"]["color"]
  assert styles["A"]["linestyle"] != styles["A+FT"]["linestyle"]
  looks = {
    (look["color"], look["marker"], look["linestyle"])
    for look in styles.values()
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
