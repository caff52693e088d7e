"""Figures are files with something on them, and methods look alike in all."""

from pathlib import Path

import numpy as np
import pytest
from example_results import example
from matplotlib import image
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb

import splitjax
from splitjax import METHODS, UserError, files
from splitjax.reports import over_seeds
from splitjax.reports.figures import grid, intervals, leakage, plots, style
from splitjax.reports.figures import panels as panel_figures

FIGURES = True


def drawn_on(path):
  """Share of the pixels that are not white."""
  pixels = image.imread(path)[..., :3]
  return float((pixels < 0.99).any(axis=-1).mean())


def test_draws_every_figure(tmp_path):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
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
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert 0.02 < drawn_on(path) < 0.5
    assert min(image.imread(path).shape[:2]) > 500


def test_intervals_are_drawn(drawn):
  combined = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  plots.accuracy_over_rho(combined)
  plots.learning_curves(combined)
  ((bars,), *_), ((band, _), *_) = drawn
  assert len(bars.containers) == 5
  (curve,) = combined["learning"].values()
  top = max(v for v in curve["accuracy"]["0.0"])
  assert band.collections[0].get_datalim(band.transData).y1 > 100 * top


def test_one_rho_no_learning_and_nulls(tmp_path, drawn):
  results = files.plain(example())
  results["sets"] = results["sets"][:1]
  del results["learning"]
  results["rows"][1]["summary"]["accuracy"][0] = None
  paths = plots.draw_all(results, tmp_path)
  assert [path.name for path in paths] == [
    "accuracy_latency.png",
    "accuracy_per_client.png",
  ]


def test_severities_are_drawn_with_all_that_reacts_to_them(tmp_path, drawn):
  each = [files.plain(example(seed)) for seed in range(3)]
  for i, results in enumerate(each):
    results["sets"] = ["severity 0", "severity 1", "severity 2"]
    for row in results["rows"]:
      row["summary"]["metrics"] = {"ece": [0.1, 0.2, 0.3 + i / 10]}
    two_exits = results["rows"][0]["summary"]
    two_exits["rules"] = {
      "calibrated": {"below": [0.01, 0.02, 0.05], "offload": [0.3, 0.4, 0.6]}
    }
    del results["learning"]
  combined = over_seeds.combine(each)
  paths = plots.draw_all(combined, tmp_path)
  assert paths[0].name == "accuracy_over_severity.png"
  axes, *_ = drawn[0]
  assert [a.get_ylabel() for a in axes] == [
    "accuracy [%]", "offloaded [%]", "calibrated: offloaded [%]",
    "calibrated: points below oracle", "ece",
  ]  # fmt: skip
  rows = len(combined["rows"])
  assert [len(a.containers) for a in axes] == [rows, rows, 1, 1, rows]
  assert axes[4].containers[0][0].get_ydata() == pytest.approx([0.1, 0.2, 0.4])
  assert axes[3].containers[0][0].get_ydata() == pytest.approx([1, 2, 5])


def test_figures_from_python_are_matplotlib_s():
  results = files.plain(example())
  figure = splitjax.figures.accuracy_over_rho(results)
  assert isinstance(figure, style.Figure) and len(figure.axes) == 1
  assert set(plots.__all__) <= set(dir(splitjax.figures))
  for name in plots.__all__:
    for wrong in ({}, None, {"cells": []}):
      with pytest.raises(UserError, match=f"figures.{name} needs the results"):
        getattr(splitjax.figures, name)(wrong)


@pytest.mark.slow
def test_accuracy_by_client_and_class(tmp_path):
  results = files.plain(example())
  assert not panel_figures.by_class(results)
  rng = np.random.default_rng(0)
  for row in results["rows"]:
    row["summary"]["per_client"] |= files.plain(
      {
        "training_samples": np.eye(6, 4, dtype=int),
        "class_accuracy": rng.uniform(0, 1, (6, 4)),
      }
    )
  assert panel_figures.by_class(results)
  path = tmp_path / "class_accuracy_per_client.png"
  assert path in plots.draw_all(results, tmp_path)
  assert 0.1 < drawn_on(path) < 0.9
  # Of several seeds no client is the same.
  assert not panel_figures.by_class(over_seeds.combine([results]))


def test_a_row_s_clients_are_those_with_samples_or_of_all_seeds():
  one, two = (files.plain(example(seed)) for seed in (0, 1))
  for results, values in ((one, [0.5, None, 0.9]), (two, [0.7, 0.1, None])):
    for row in results["rows"]:
      row["summary"]["per_client"]["accuracy"] = [values] * 3
  assert panel_figures.of_clients(one["rows"][0], 2).tolist() == [0.5, 0.9]
  row = over_seeds.combine([one, two])["rows"][0]
  assert panel_figures.of_clients(row, 2).tolist() == [0.1, 0.5, 0.7, 0.9]


def test_many_thresholds_many_rows_and_clients_without_samples(drawn):
  del drawn
  results = files.plain(example())
  results["rows"] = [{**results["rows"][1], "label": str(i)} for i in range(9)]
  none = {"accuracy": [[None] * 6] * 3}
  first = results["rows"][0]
  first["summary"] = {**first["summary"], "per_client": none}
  results["thresholds"] = [0.1 * e for e in range(12)]
  for row in results["rows"]:
    fixed = {"accuracy": [[0.9, 0.8, 0.7 - 0.02 * e] for e in range(12)]}
    row["summary"] = {**row["summary"], "fixed": fixed}
  for draw in (
    panel_figures.effect_of_threshold,
    panel_figures.accuracy_per_client,
  ):
    draw(results)
  chosen, styles = panel_figures._thresholds(results["thresholds"])
  assert len(chosen) == len(styles) == 6
  assert chosen[0] == 0 and chosen[-1] == 11


@pytest.fixture(name="drawn")
def catch(monkeypatch):
  """What `finish` gets of each figure: panels, labels, title; none written."""
  caught = []

  whole = style.finish

  def finish(figure, panels, styles, title):
    caught.append((list(panels), list(styles), title))
    return whole(figure, panels, styles, title)

  monkeypatch.setattr(style, "save", lambda figure, path: Path(path))
  monkeypatch.setattr(style, "finish", finish)
  return caught


def test_a_line_is_the_oracle_s_only_where_it_is(tmp_path, drawn):
  results = files.plain(example())
  panel_figures.effect_of_threshold(results)
  assert drawn[-1][1][3:] == ["oracle"]
  results["config"]["eval"] = {"threshold_rule": "calibrated"}
  panel_figures.effect_of_threshold(results)
  mine = "calibrated (the config's rule)"
  assert drawn[-1][1][3:] == [mine], "the oracle is not known"
  for row in results["rows"]:
    row["summary"]["rules"] = {"oracle": {"accuracy": [0.99, 0.98, 0.97]}}
  panel_figures.effect_of_threshold(results)
  every, labels, _ = drawn[-1]
  assert labels[3:] == ["oracle", mine]
  best, own = (line.get_ydata() for line in every[0].get_lines()[3:5])
  assert best == pytest.approx([99, 98, 97])
  accuracy = results["rows"][1]["summary"]["accuracy"]
  assert own == pytest.approx(100 * np.array(accuracy))


def test_titles_name_a_rule_that_is_not_the_oracle(tmp_path, drawn):
  results = files.plain(example())
  plots.draw_all(results, tmp_path)
  assert not [title for *_, title in drawn if "oracle thresholds" in title]
  del drawn[:]
  results["config"]["eval"] = {"threshold_rule": "fixed"}
  plots.draw_all(results, tmp_path)
  named = [title for *_, title in drawn if "fixed thresholds" in title]
  assert len(named) == 4, "over rho, latency, per client, learning"


def test_titles_say_data_seeds_and_interval(tmp_path, drawn):
  for count, *said in (
    (1, "digits, one seed"),
    (3, "digits, 3 seeds (b", "digits, means of 3", "digits, clients of 3"),
  ):
    each = [files.plain(example(seed)) for seed in range(count)]
    del drawn[:]
    found = over_seeds.combine(each) if count > 1 else each[0]
    plots.draw_all(found, tmp_path)
    assert len(drawn) == 5
    for *_, text in drawn:
      assert text.splitlines()[1].startswith(tuple(said)), text
  runs = [
    {"config": {"data": {"name": k}, "scale": "small"}, "seeds": [0] * count}
    for count, k in ((2, "a"), (3, "b"))
  ]
  text = intervals.title("x", "", *runs, more="more")
  assert text == "x\na and b at small scale, means of 2 or 3 seeds, more"


def reach(axes):
  """Lowest and highest point of all bars and bands on a panel."""
  paths = [
    p
    for c in axes.collections
    if not isinstance(c, PathCollection)
    for p in c.get_paths()
  ]
  heights = np.concatenate([path.vertices[:, 1] for path in paths])
  return np.nanmin(heights), np.nanmax(heights)


def test_intervals_end_at_0_and_100_percent(tmp_path, drawn):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  for part in (*results["rows"], *results["learning"].values()):
    held, halves = part.get("summary", part), part["interval"]
    halves = halves.get("summary", halves)
    if "summary" in part:
      held["accuracy"], halves["accuracy"] = [0.02, 0.5, 1.0], [0.4] * 3
    else:
      held["accuracy"]["0.0"] = [0.02, 0.5, 1.0, 0.5]
      halves["accuracy"]["0.0"] = [0.4] * 4
  plots.draw_all(results, tmp_path)
  names = [title.splitlines()[0].split(" (")[0] for *_, title in drawn]
  by_title = dict(zip(names, (every for every, *_ in drawn), strict=True))
  for name in ("over ρ", "against latency", "over the rounds"):
    low, high = reach(by_title[f"Accuracy {name}"][0])
    assert low >= 0 and high <= 100, name
  assert reach(by_title["Accuracy over ρ"][0]) == (0, 100)


def test_bars_of_several_methods_stand_beside_one_another(tmp_path, drawn):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  plots.accuracy_over_rho(results)
  (axes,), labels, _ = drawn[-1]
  lines = [bars.lines[0].get_xdata() for bars in axes.containers]
  first = sorted(line[0] for line in lines)
  assert len(set(first)) == len(labels)
  assert -0.05 < first[0] < 0 < first[-1] < 0.05
  assert list(axes.get_xticks()) == [0, 0.4, 0.8]


def test_one_evaluated_round_is_points_with_bars(tmp_path, drawn):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  (curve,) = results["learning"].values()
  curve["round"] = [1]
  for tree in (curve["accuracy"], curve["interval"]["accuracy"]):
    for name in tree:
      tree[name] = tree[name][:1]
  plots.learning_curves(results)
  for axes in drawn[-1][0]:
    assert axes.get_xticks().tolist() == [1]
    assert axes.containers and np.ptp(axes.get_xlim()) < 1


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


def test_a_legend_fits_whatever_its_labels(drawn):
  del drawn
  for labels in (["FedAvg"] * 7, ["FedAvg"] * 5 + ["x" * 60], ["A"]):
    figure, (axes,) = style.panels(1, 1, (5.2, 3.1), ("x", "y"))
    styles = {f"{i}{x}": {"color": "black"} for i, x in enumerate(labels)}
    style.finish(figure, [axes], styles, "t")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
    assert box.y1 <= axes.get_tightbbox().y0
    texts = [text.get_text() for text in legend.get_texts()]
    assert sorted(texts) == sorted(styles)


def rows(*pairs):
  return [{"method": method, "label": label} for method, label in pairs]


def test_a_method_has_one_colour_whatever_else_is_there():
  alone = style.row_styles(rows(("harmony", "HARMONY")))
  among = style.row_styles(
    rows(
      ("mine", "Mine"),
      ("splitgp", "SplitGP λ=0.9"),
      ("splitgp", "SplitGP λ=0.2"),
      ("splitgp", "SplitGP λ=0.2+FT"),
      ("harmony", "HARMONY"),
    )
  )
  assert alone["HARMONY"] == among["HARMONY"]
  assert among["HARMONY"]["color"] == to_rgb(style.COLOURS["harmony"])
  assert among["Mine"]["color"] == to_rgb(style.OWN[0])
  one, two = among["SplitGP λ=0.9"], among["SplitGP λ=0.2"]
  assert one["color"] == to_rgb(style.COLOURS["splitgp"]) != two["color"]
  assert one["linestyle"] != two["linestyle"]
  tuned = among["SplitGP λ=0.2+FT"]
  assert tuned["color"] == two["color"] and tuned["linestyle"] == "--"
  assert len(set(style.COLOURS.values()) | set(style.OWN)) == (
    len(style.COLOURS) - 1 + len(style.OWN)  # FedAvg and its +FT share one
  )


def test_every_method_has_a_colour():
  assert set(style.COLOURS) == set(METHODS)


def test_many_own_methods_look_different():
  labels = ["A", "A+FT", *"BCDEFGHIJKLM"]
  styles = style.row_styles(
    rows(*((label.removesuffix("+FT"), label) for label in labels))
  )
  looks = {
    (look["color"], look["marker"], look["linestyle"])
    for look in styles.values()
  }
  assert len(looks) == len(labels)


@pytest.mark.parametrize("rounds", [[5, 10, 15], list(range(3, 91, 3)), [7]])
def test_ticks_are_evaluated_rounds(rounds):
  axes = style.Figure().add_subplot()
  style.round_ticks(axes, rounds)
  ticks = axes.get_xticks().tolist()
  assert set(ticks) <= set(rounds) and ticks[-1] == rounds[-1]
  assert min(len(rounds), 4) <= len(ticks) <= 8


def test_seeds_are_dots(tmp_path, drawn):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  plots.accuracy_over_rho(results)
  (axes,), _, title = drawn[-1]
  dots = [c for c in axes.collections if isinstance(c, PathCollection)]
  each = [files.plain(example(s))["rows"][0] for s in range(3)]
  want = [100 * np.array(row["summary"]["accuracy"]) for row in each]
  heights = np.ma.getdata(dots[0].get_offsets())[:, 1]
  np.testing.assert_allclose(heights, np.ravel(want))
  assert len(dots) == 5
  wanted = "Accuracy over ρ\ndigits, 3 seeds (bars: 95 % interval; dots: seeds)"
  assert title == wanted
  plots.accuracy_over_rho(over_seeds.combine([files.plain(example(0))]))
  (axes,), *_ = drawn[-1]
  assert not [c for c in axes.collections if isinstance(c, PathCollection)]


def test_latency_axis_is_logarithmic_where_it_must_be():
  figure = style.Figure()
  axes = figure.subplots(1, 2, sharex=True)
  values = [np.array([1.0, 5.0]), np.array([np.nan, 0.0, 9.0])]
  assert not style.log_if_wide(axes, values)
  assert axes[0].get_xscale() == "linear"
  assert style.log_if_wide(axes, [*values, np.array([20.0])])
  assert axes[0].get_xscale() == axes[1].get_xscale() == "log"


@pytest.mark.parametrize(
  ("values", "halves", "limits"),
  [
    ([80, 82, 84, 86], [2, 2, 3, 60], (78, 87)),  # one arm diverged
    ([80, 82, 84, 86], [2, 2, 3, 4], None),
    ([80, 82, 84, 86], [60, 60, 60, 60], None),  # none is like no other
    ([10, 82, 84, 86], [30, 2, 2, 2], None),  # no wider than means are apart
    ([80, np.nan, 84, 86], [2, 9, np.nan, 60], (78, 86)),
    ([80, 82, np.nan, 86, 83], [2, 2, 60, 60, 2], (78, 86)),
    ([np.nan], [np.nan], None),
    # One of two arms, and two of four.
    ([80, 84], [2, 60], (78, 84)),
    ([80, 82, 84, 86], [2, 2, 60, 55], (78, 86)),
    ([80, 82, 84, 86, 83, 85], [2, 2, 2, 60, 60, 60], (78, 86)),
    # Harmless: no seed differs but in one value, by little.
    ([90, 90.05, 90], [0, 0, 2.9], None),
  ],
)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_one_wide_interval_does_not_set_the_axis(values, halves, limits, axis):
  axes = style.Figure().add_subplot()
  before = axes.get_xlim(), axes.get_ylim()
  arrays = np.array(values, float), np.array(halves, float)
  said = intervals.frame([axes], *arrays, axis=axis)
  x, y = axes.get_xlim(), axes.get_ylim()
  if limits is None:
    assert said == "" and (x, y) == before
    return
  found, other = (x, y) if axis == "x" else (y, x)
  margin = 0.05 * (limits[1] - limits[0])
  assert found == pytest.approx((limits[0] - margin, limits[1] + margin))
  assert other == before[0]
  assert said == "intervals up to ±60 leave the frame"


@pytest.mark.parametrize(
  ("values", "halves", "points", "limits", "said"),
  [
    # One of three seeds diverged: its dot stays in sight.
    ([60, 90, 92, 94], [101, 2, 3, 2], [14, 77, 90], (14, 96), "±100"),
    ([60, 90, 92, 94], [99.6, 2, 3, 2], [np.nan, 50], (50, 96), "±100"),
    ([60, 90, 92, 94], [57.2, 2, 3, 2], [99.5], (60, 99.5), "±57"),
    ([80, 82, 84, 86], [2, 2, 3, 60], [30], (30, 87), "±60"),
    # Cut off at 0 and 100 %, the interval leaves no frame that reaches them.
    ([50, 90, 92, 97], [101, 2, 3, 3], [2], None, ""),
    ([67, 2, 70, 98], [101, 2, 22, 2], [], None, ""),
  ],
)
def test_the_frame_shows_every_dot(values, halves, points, limits, said):
  axes = style.Figure().add_subplot()
  before = axes.get_ylim()
  arrays = np.array(values, float), np.array(halves, float)
  text = intervals.frame([axes], *arrays, points)
  if limits is None:
    assert text == said and axes.get_ylim() == before
    return
  margin = 0.05 * (limits[1] - limits[0])
  assert axes.get_ylim() == pytest.approx(
    (limits[0] - margin, limits[1] + margin)
  )
  assert text == f"intervals up to {said} leave the frame"


def test_figures_show_the_dots_of_a_diverged_seed(drawn):
  each = [files.plain(example(seed)) for seed in range(3)]
  each[1]["rows"][1]["summary"]["accuracy"] = [0.4] * 3
  fixed = each[1]["rows"][1]["summary"]["fixed"]["accuracy"]
  fixed[0] = [0.1] * 3
  results = over_seeds.combine(each)
  run = {"name": "a", "values": {"run": "a"}, "results": results}
  other = {**run, "name": "b", "values": {"run": "b"}}
  cells = [{**run, "values": {"lam": lam}} for lam in (0.1, 0.2)]
  plots.accuracy_over_rho(results)
  plots.accuracy_latency(results)
  grid.by_run({"fields": ["run"], "cells": [run, other]})
  grid.over_axis({"fields": ["lam"], "cells": cells})
  assert len(drawn) == 4
  for every, _, text in drawn:
    assert "leave the frame" in text
    for axes in every:
      dots = [c for c in axes.collections if isinstance(c, PathCollection)]
      lines = [x for x in axes.get_lines() if x.get_marker() not in "|_"]
      points = [np.array(each.get_offsets()) for each in dots]
      points += [line.get_xydata() for line in lines]
      left, right = axes.get_xlim()
      low, high = sorted(axes.get_ylim())
      for x, y in np.concatenate(points):
        assert left <= x <= right and low <= y <= high


def test_a_diverged_arm_leaves_every_figure_s_frame(tmp_path, drawn):
  results = over_seeds.combine([files.plain(example(s)) for s in range(3)])
  for row in results["rows"]:
    wide = 0.6 if row["label"] == "SplitGP" else 0.01
    row["interval"]["summary"]["accuracy"] = [wide] * 3
  for draw in (plots.accuracy_over_rho, plots.accuracy_latency):
    draw(results)
    every, _, text = drawn[-1]
    means = [100 * np.array(r["summary"]["accuracy"]) for r in results["rows"]]
    assert every[0].get_ylim()[0] > np.min(means) - 8
    assert "up to ±60 leave the frame" in text


@pytest.mark.parametrize(
  ("option", "values", "logarithmic"),
  [
    ("lr", (0.01, 0.02), True),
    ("inner_lr", (0.01, 0.05), True),
    ("server_lr", (0.0, 0.05), False),
    ("lam", (0.2, 0.9), False),
    ("alpha", (0.1, 1.0), True),
    ("server_down", (0.0, 0.1, 1.0), False),
  ],
)
def test_rates_stand_on_a_logarithmic_axis(option, values, logarithmic):
  whole = grid_of(f"optimizer.{option}", values, 1)
  (first, *_) = grid.over_axis(whole).axes
  assert first.get_xscale() == ("log" if logarithmic else "linear")
  assert first.get_xticks().tolist() == sorted(values)


def test_a_threshold_of_zero_has_words(drawn):
  results = files.plain(example())
  results["thresholds"] = [0.2, 0.0, 2.4]
  panel_figures.effect_of_threshold(results)
  _, labels, _ = drawn[-1]
  assert labels[:3] == ["0: always the server", "0.2 nats", "2.4 nats"]


@pytest.mark.parametrize(
  ("number", "bounds"),
  [("correlation", (0, 1)), ("auc", (0, 1)), ("ssim", (-1, 1))],
)
def test_bars_end_where_a_leakage_ends(number, bounds):
  for value in (bounds[0], 0.5, bounds[1]):
    wide = intervals.bars(
      np.array([value]), np.array([9.0]), leakage.BOUNDS[number]
    )
    assert value - wide[0, 0] == bounds[0] and value + wide[1, 0] == bounds[1]
