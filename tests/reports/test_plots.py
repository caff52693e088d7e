"""Figures are files with something on them, and methods look alike in all."""

from pathlib import Path

import numpy as np
import pytest
from example_results import example
from matplotlib import image
from matplotlib.collections import PathCollection
from refusals import refused

from splitjax import figures as plots
from splitjax import files, reports
from splitjax.reports import figures

# Patched: what it finishes is looked at, and it saves nothing.
from splitjax.reports.figures import style

FIGURES = True


def three_seeds():
  return reports.combine([files.plain(example(s)) for s in range(3)])


def drawn_on(path):
  """Share of the pixels that are not white."""
  pixels = image.imread(path)[..., :3]
  return float((pixels < 0.99).any(axis=-1).mean())


def test_draws_every_figure(tmp_path):
  results = three_seeds()
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
  combined = reports.combine(each)
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
  figure = plots.accuracy_over_rho(results)
  assert isinstance(figure, figures.Figure) and len(figure.axes) == 1
  assert set(plots.__all__) <= set(dir(plots))
  for name in plots.__all__:
    for wrong in ({}, None, {"cells": []}):
      with refused(f"figures.{name}"):
        getattr(plots, name)(wrong)


def test_accuracy_by_client_and_class(tmp_path, drawn):
  results = files.plain(example())
  assert not figures.by_class(results)
  rng = np.random.default_rng(0)
  for row in results["rows"]:
    row["summary"]["per_client"] |= files.plain(
      {
        "training_samples": np.eye(6, 4, dtype=int),
        "class_accuracy": rng.uniform(0, 1, (6, 4)),
      }
    )
  assert figures.by_class(results)
  path = tmp_path / "class_accuracy_per_client.png"
  assert path in plots.draw_all(results, tmp_path) and drawn
  # Of several seeds no client is the same.
  assert not figures.by_class(reports.combine([results]))


def test_a_row_s_clients_are_those_with_samples_or_of_all_seeds():
  one, two = (files.plain(example(seed)) for seed in (0, 1))
  for results, values in ((one, [0.5, None, 0.9]), (two, [0.7, 0.1, None])):
    for row in results["rows"]:
      row["summary"]["per_client"]["accuracy"] = [values] * 3
  assert figures.of_clients(one["rows"][0], 2).tolist() == [0.5, 0.9]
  row = reports.combine([one, two])["rows"][0]
  assert figures.of_clients(row, 2).tolist() == [0.1, 0.5, 0.7, 0.9]


def test_many_thresholds_many_rows_and_clients_without_samples(drawn):
  results = files.plain(example())
  results["rows"] = [{**results["rows"][1], "label": str(i)} for i in range(9)]
  none = {"accuracy": [[None] * 6] * 3}
  first = results["rows"][0]
  first["summary"] = {**first["summary"], "per_client": none}
  results["thresholds"] = [0.1 * e for e in range(12)]
  for row in results["rows"]:
    fixed = {"accuracy": [[0.9, 0.8, 0.7 - 0.02 * e] for e in range(12)]}
    row["summary"] = {**row["summary"], "fixed": fixed}
  plots.accuracy_per_client(results)
  plots.effect_of_threshold(results)
  _, labels, _ = drawn[-1]
  # Six of the twelve thresholds, the ends among them.
  assert labels[0] == "0: always the server"
  assert labels[5:] == ["1.1 nats", "oracle"]


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
  plots.effect_of_threshold(results)
  assert drawn[-1][1][3:] == ["oracle"]
  results["config"]["eval"] = {"threshold_rule": "calibrated"}
  plots.effect_of_threshold(results)
  mine = "calibrated (the config's rule)"
  assert drawn[-1][1][3:] == [mine], "the oracle is not known"
  for row in results["rows"]:
    row["summary"]["rules"] = {"oracle": {"accuracy": [0.99, 0.98, 0.97]}}
  plots.effect_of_threshold(results)
  every, labels, _ = drawn[-1]
  assert labels[3:] == ["oracle", mine]
  best, own = (line.get_ydata() for line in every[0].get_lines()[3:5])
  assert best == pytest.approx([99, 98, 97])
  accuracy = results["rows"][1]["summary"]["accuracy"]
  assert own == pytest.approx(100 * np.array(accuracy))


def test_titles_say_data_seeds_and_interval(tmp_path, drawn):
  for count, *said in (
    (1, "digits, one seed"),
    (3, "digits, 3 seeds (b", "digits, means of 3", "digits, clients of 3"),
  ):
    each = [files.plain(example(seed)) for seed in range(count)]
    del drawn[:]
    found = reports.combine(each) if count > 1 else each[0]
    plots.draw_all(found, tmp_path)
    assert len(drawn) == 5
    for *_, text in drawn:
      assert text.splitlines()[1].startswith(tuple(said)), text
    assert not [text for *_, text in drawn if "oracle thresholds" in text]
  # A rule that is not the oracle: over rho, latency, per client, learning.
  del drawn[:]
  found["config"]["eval"] = {"threshold_rule": "fixed"}
  plots.draw_all(found, tmp_path)
  assert len([text for *_, text in drawn if "fixed thresholds" in text]) == 4
  runs = [
    {"config": {"data": {"name": k}, "scale": "small"}, "seeds": [0] * count}
    for count, k in ((2, "a"), (3, "b"))
  ]
  text = figures.title("x", "", *runs, more="more")
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
  results = three_seeds()
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


def test_seeds_are_dots(tmp_path, drawn):
  results = three_seeds()
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
  plots.accuracy_over_rho(reports.combine([files.plain(example(0))]))
  (axes,), *_ = drawn[-1]
  assert not [c for c in axes.collections if isinstance(c, PathCollection)]


def grid_of(field, values, count=3):
  cells = []
  for value in values:
    each = [files.plain(example(seed)) for seed in range(count)]
    found = reports.combine(each) if count > 1 else each[0]
    cells.append({"name": "", "values": {field: value}, "results": found})
  return {"title": "t", "fields": [field], "cells": cells}


def test_a_grid_over_a_number_is_a_figure(tmp_path, drawn):
  field = "data.partition.alpha"
  whole = grid_of(field, (1.0, 0.1, 0.3))
  whole["cells"][0]["results"]["rows"].pop()  # FedAvg is not there yet
  (path,) = figures.draw_grid(whole, tmp_path)
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
  assert figures.draw_grid(grid_of("x", ("a", "b"), 1), tmp_path) == []
  assert figures.draw_grid(grid_of("x", (True, False), 1), tmp_path) == []
  assert figures.draw_grid(grid_of("x", (1,), 1), tmp_path) == []
  two = grid_of("x", (1, 2), 1)
  two["fields"].append("y")
  for cell in two["cells"]:
    cell["values"]["y"] = 3
  assert figures.draw_grid(two, tmp_path) == []
