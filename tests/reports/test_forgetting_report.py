"""The section on forgetting: in runs, over seeds, beside a paper, drawn."""

import copy
import csv
import dataclasses
import io
import json

import numpy as np
import pytest
import tiny
from example_results import forgetting_example, table_cells
from marks import slow
from matplotlib import image
from runs import stopped

import splitjax
from splitjax import SHIFTS, UserError, files
from splitjax.config import paper_numbers
from splitjax.evaluation import forgetting
from splitjax.experiment import reevaluate, runner
from splitjax.experiment.storage import workdirs
from splitjax.reports import forgetting as forgetting_report
from splitjax.reports import (
  formats,
  over_seeds,
  page,
  records,
  report,
  tables,
)
from splitjax.reports.figures import forgetting as forgetting_figures
from splitjax.reports.figures import grid, plots, style

pytestmark = pytest.mark.usefixtures("traced_once")

FIGURES = {
  "class_accuracy.png",
  "accuracy_by_order.png",
  "accuracy_gap.png",
}
ROUNDS = 4


def config(shift="global", rounds=ROUNDS, seed=0):
  c = tiny.tiny(splitfed="splitfed_v1", gp="splitgp")
  c.eval.shift = splitjax.spec(SHIFTS, shift)
  c.eval.rhos = None
  c.rounds, c.seed = rounds, seed
  return tiny.resolved(c)


@pytest.fixture(name="ran", scope="module")
def run_once(tmp_path_factory):
  """A run's workdir."""
  workdir = tmp_path_factory.mktemp("forgetting") / "w"
  runner.run(config(), workdir)
  return workdir


def both():
  """Two seeds together, and each."""
  each = [forgetting_example(seed) for seed in (0, 1)]
  return over_seeds.combine(each), each


def log(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_run_ends_with_the_section_and_its_figures(ran):
  results = report.read(ran)
  text = (ran / "report.md").read_text()
  assert "## Forgetting" in text and "Medians of the last 4 evaluated" in text
  drawn = {path.name for path in ran.glob("*.png")}
  assert drawn >= FIGURES and all(f"]({name})" in text for name in FIGURES)
  for label, row in zip(("splitfed", "gp"), results["rows"], strict=True):
    summary = row["summary"]["forgetting"]
    lines = [x for x in log(ran) if x["method"] == label]
    history = [line["per_class"][label] for line in lines]
    assert results["learning"][label]["per_class"] == history
    want = forgetting.summarise(
      results["learning"][label]["accuracy"]["global"], history
    )
    assert summary == files.plain(want)
    # Accuracy is the mean over classes, weighted by their frequency.
    kept = np.load(workdirs.folder(ran, label) / "exits.npz")
    share = np.bincount(kept["label"][0], minlength=10) / kept["label"].shape[1]
    mean = share @ np.array(history[-1])
    assert mean == pytest.approx(row["summary"]["accuracy"][0])


def test_seeds_are_pooled(tmp_path):
  results, runs = both()
  for i, row in enumerate(results["rows"]):
    each = [one["rows"][i]["summary"]["forgetting"] for one in runs]
    pool = np.concatenate([one["late"]["gap"] for one in each])
    summary = row["summary"]["forgetting"]
    assert summary["gap"] == pytest.approx(np.median(pool))
    assert summary["gap_sd"] == pytest.approx(np.std(pool, ddof=1))
    # t(0.975, 1) = 12.706; s / sqrt(2) of two values is half their distance.
    half = 12.706 * abs(each[0]["gap"] - each[1]["gap"]) / 2
    spread = row["interval"]["summary"]["forgetting"]
    assert spread["gap"] == pytest.approx(half, rel=1e-4)
    assert "late" not in row["summary"]["forgetting"]
    assert forgetting_report.profile(row).by == "class"
  text = report.write(tmp_path, results).read_text()
  assert "## Forgetting" in text and "of all seeds together" in text
  lines = list(
    csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text()))
  )
  gap = [x for x in lines if x["metric"] == "gap"]
  assert [float(x["value"]) for x in gap] == pytest.approx(
    [row["summary"]["forgetting"]["gap"] for row in results["rows"]]
  )
  assert all(x["set"] == "global" and x["half"] for x in gap)
  tex = (tmp_path / "report.tex").read_text()
  assert r"performance gap [points] global" in tex and "late accuracy" in tex


@pytest.mark.slow
def test_other_test_sets_have_no_section(tmp_path):
  results = splitjax.run(config("out_of_client", rounds=1), tmp_path / "w")
  assert not forgetting_report.shown(results)
  assert "## Forgetting" not in (tmp_path / "w" / "report.md").read_text()
  assert not FIGURES & {path.name for path in (tmp_path / "w").glob("*.png")}
  # Known all the same: over the last set, of clients' other samples.
  (line,) = (x for x in log(tmp_path / "w") if x["method"] == "gp")
  assert len(line["per_class"]["gp"]) == 10
  summary = results["rows"][1]["summary"]["forgetting"]
  assert summary["accuracy"] == line["accuracy"]["gp"]["w/ drift"]


@pytest.mark.slow
def test_evaluated_again_without_another_threshold_the_rounds_stay(ran):
  whole = report.read(ran)
  results = reevaluate.evaluate_again(ran)
  for row, old in zip(results["rows"], whole["rows"], strict=True):
    assert row["summary"] == old["summary"]
  drawn = {path.name for path in (ran / "evaluate").glob("*.png")}
  assert FIGURES & drawn == FIGURES - {"class_accuracy.png"}


@pytest.mark.slow
def test_evaluated_with_another_threshold_there_is_one_round(ran):
  before = report.read(ran)["rows"][:1]  # has one exit, so no threshold
  asked = config()
  chosen = dataclasses.replace(
    asked.eval, threshold=0.5, threshold_rule="fixed"
  )
  results = reevaluate.evaluate_again(
    ran, dataclasses.replace(asked, eval=chosen)
  )
  assert results["rows"][1]["summary"]["forgetting"]["rounds"] == 1
  for row, old in zip(results["rows"][:1], before, strict=True):
    summary = row["summary"]["forgetting"]
    assert summary["rounds"] == 1 and summary["backward"] is None
    was = old["summary"]["forgetting"]["late"]["per_class"][-1]
    assert summary["late"]["per_class"] == [pytest.approx(was, nan_ok=True)]
  text = (ran / "evaluate" / "report.md").read_text()
  assert "Medians of the evaluated round." in text and "| – |" in text


@pytest.mark.slow
def test_a_resumed_run_keeps_its_classes(ran, tmp_path):
  resolved = config()
  stopped(resolved, tmp_path / "w", 2)
  results = runner.run(resolved, tmp_path / "w")
  whole = report.read(ran)
  assert results["learning"] == whole["learning"]
  for mine, other in zip(results["rows"], whole["rows"], strict=True):
    assert mine["summary"] == other["summary"]


def test_a_row_of_an_earlier_version_is_left_out(tmp_path):
  results = forgetting_example()
  del results["rows"][0]["summary"]["forgetting"]
  text = report.write(tmp_path, results).read_text()
  section = text.split("## Forgetting")[1].split("##")[0]
  assert [x[0] for x in table_cells(section)[1:]] == ["SplitGP", "SplitGP+FT"]
  assert "forgetting" not in both_with(results)["rows"][0]["summary"]


def both_with(results):
  """Over seeds, with another seed that has all."""
  return over_seeds.combine([results, forgetting_example(1)])


def placed(results, *places):
  """A copy whose rows have places in the order of service."""
  found = copy.deepcopy(results)
  for row, positions in zip(found["rows"], places, strict=True):
    row["positions"] = positions
  return found


def test_positions_are_each_seed_s_own():
  _, runs = both()
  orders = np.random.default_rng(0).permuted([range(10)] * 2, axis=1).tolist()
  each = [
    placed(run, order, None, None)
    for run, order in zip(runs, orders, strict=True)
  ]
  combined = over_seeds.combine(each)
  assert all("positions" not in row for row in combined["rows"])
  first, second, _ = map(forgetting_report.profile, combined["rows"])
  assert (first.by, second.by) == ("position", "class")
  last = [order.index(9) for order in orders]  # the label that is served last
  pool = np.concatenate(
    [
      np.array(one["rows"][0]["summary"]["forgetting"]["late"]["per_class"])[
        :, label
      ]
      for one, label in zip(each, last, strict=True)
    ]
  )
  assert first.values[-1] == pytest.approx(np.median(pool))
  assert np.isfinite(first.halves).all()
  alone = forgetting_report.profile(each[0]["rows"][0])
  assert alone.by == "position" and np.isnan(alone.halves).all()


def test_the_paper_s_numbers_stand_beside_ours(monkeypatch):
  results, _ = both()
  at = [("late_accuracy", 65.5), ("gap", 14.0), ("backward", 8.0)]
  printed = {
    paper_numbers.Line("", "SplitGP", metric, "global"): paper_numbers.Printed(
      x / 100, None
    )
    for metric, x in at
  }
  monkeypatch.setattr(paper_numbers, "_all", lambda: {"A paper": printed})
  beside = copy.deepcopy(results)
  beside["config"] |= {"paper": "A paper", "scale": "small"}
  text = (
    page.text(beside).split("## Comparison with the paper")[1].split("##")[0]
  )
  heads, *lines = table_cells(text)
  (line,) = (x for x in lines if x[0] == "SplitGP, paper")
  cells = dict(zip(heads, line, strict=True))
  assert cells["late accuracy [%] global"] == "65.50"
  assert cells["performance gap [points] global"] == "14.00"
  assert cells["backward transfer [points] global"] == "8.00"
  assert "medians of the last five evaluated rounds of all seeds" in text
  shown = formats.terminal(tables.compare(records.collect(beside, {})))
  assert "14.00" in shown


@pytest.mark.parametrize(("half", "ahead"), [(0.04, [1]), (0.08, [])])
def test_the_smallest_gap_is_ahead(half, ahead):
  results, _ = both()
  found = copy.deepcopy(results)
  for row, gap in zip(found["rows"], (0.3, 0.2, 0.4), strict=True):
    row["summary"]["forgetting"]["gap"] = gap
    row["interval"] = {"summary": {"forgetting": {"gap": half}}}
  made = tables.compare(records.collect(found, {}))
  place = made.heads.index("performance gap [points] global")
  assert [line for line, column in made.ahead if column == place] == ahead


def drawn_on(path):
  """Share of the pixels that are not white."""
  pixels = image.imread(path)[..., :3]
  return float((pixels < 0.99).any(axis=-1).mean())


@pytest.mark.parametrize("classes", [4, *slow(21)])
def test_figures_of_few_classes_many_one_row_and_nulls(tmp_path, classes):
  results = forgetting_example(classes=classes)
  for curve in results["learning"].values():
    curve["per_class"][0][0] = None
  for name in list(results["learning"])[1:]:
    del results["learning"][name]
  del results["rows"][1:]
  results["rows"][0]["summary"]["forgetting"]["accuracy"] = None
  drawn = [
    style.save(draw(results), tmp_path / f"{name}.png")
    for name, draw in plots.drawable(results).items()
    if f"{name}.png" in FIGURES
  ]
  assert {path.name for path in drawn} == FIGURES
  assert FIGURES <= set(workdirs.figures([]))
  for path in drawn:
    assert 0.01 < drawn_on(path) < 0.9
    assert path.with_suffix(".pdf").exists()


def test_a_heat_map_has_a_row_per_class_and_the_mean():
  results = forgetting_example(classes=7)
  axes = forgetting_figures.class_accuracy(results).axes[1]
  curve = results["learning"]["SplitGP"]
  table = np.ma.getdata(axes.get_images()[0].get_array())
  np.testing.assert_allclose(table[:7], 100 * np.array(curve["per_class"]).T)
  np.testing.assert_allclose(
    table[-1], 100 * np.array(curve["accuracy"]["global"])
  )
  ticks = [label.get_text() for label in axes.get_xticklabels()]
  assert ticks == list("123456")


def test_a_grid_s_cells_are_markers_in_the_legend(tmp_path, monkeypatch):
  caught = []

  def finish(figure, panels, styles, title):
    caught.append((panels[0], styles))
    return figure

  monkeypatch.setattr(style, "finish", finish)
  results, _ = both()
  cells = [{"values": {"a": v, "b": "x"}, "results": results} for v in (1, 2)]
  whole = {"fields": ["a", "b"], "cells": cells}
  path, _ = grid.draw(whole, tmp_path)
  assert path.name == "accuracy_gap.png"
  (axes, styles), _ = caught
  assert list(styles) == ["SplitFed", "SplitGP", "SplitGP+FT", "1, x", "2, x"]
  assert styles["1, x"]["marker"] != styles["2, x"]["marker"]
  # Cells need no order: points alone, the lines are intervals.
  assert {line.get_linestyle() for line in axes.get_lines()} == {"None"}
  assert not axes.texts


def test_confusion_panels(tmp_path, count=7):
  shares = np.full((count, 10, 10), 0.1)
  shares[0, 3] = np.nan
  names = [f"after position {k + 1}" for k in range(count)]
  figure = forgetting_figures.confusion(shares, names)
  path = style.save(figure, tmp_path / "c.png")
  assert drawn_on(path) > 0.1


@pytest.mark.parametrize("classes", [4, 21])
def test_positions_over_rounds_by_hand(classes, tmp_path):
  runs = [forgetting_example(seed, classes=classes) for seed in (0, 1)]
  orders = np.random.default_rng(0).permuted([range(classes)] * 2, axis=1)
  each = [
    placed(run, order.tolist(), None, None)
    for run, order in zip(runs, orders, strict=True)
  ]
  # As it is reported over seeds: from files.
  combined = json.loads(json.dumps(over_seeds.combine(each)))
  figure = forgetting_figures.position_curves(combined)
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
  alone = forgetting_figures.position_curves(each[0]).axes[0].get_lines()
  assert len(alone) == len(lines)
  assert "accuracy_by_position" in plots.drawable(combined)
  assert "accuracy_by_position.png" in workdirs.figures([])
  assert drawn_on(style.save(figure, tmp_path / "a.png")) > 0.01


def test_seeds_with_other_positions_have_no_curves_over_them():
  runs = [forgetting_example(seed, classes=4) for seed in (0, 1)]
  orders = [0, 1, 2, 3], [0, 1, 2, -1]
  each = [
    placed(run, o, None, None) for run, o in zip(runs, orders, strict=True)
  ]
  combined = over_seeds.combine(each)
  assert "per_position" not in combined["learning"]["SplitFed"]
  with pytest.raises(UserError, match="fixed order of service"):
    forgetting_figures.position_curves(combined)


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
  above, below = grid.changes(cells).axes
  heights = [100 * x for x in (0.411, 0.35, 0.65, 0.665)]
  assert [bar.get_height() for bar in above.patches] == pytest.approx(heights)
  # Hydra's Table 4, and Figure 5's text: 65 of 41.1, 66.5 of 35, 15.4 of 43.4.
  assert [text.get_text() for text in above.texts] == ["+58 %", "+90 %"]
  assert [text.get_text() for text in below.texts] == ["-65 %"]
