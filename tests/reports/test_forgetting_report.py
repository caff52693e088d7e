"""The section on forgetting: in runs, over seeds, beside a paper, drawn."""

import copy
import csv
import dataclasses
import io
import json

import numpy as np
import pytest
import tiny
from example_results import forgetting_example, placed, table_cells

import splitjax
from splitjax import SHIFTS, evaluation, experiment, files, reports

FIGURES = "blank"
NAMES = {
  "class_accuracy.png",
  "accuracy_by_order.png",
  "accuracy_gap.png",
}


def config():
  c = tiny.tiny(splitfed="splitfed_v1", gp="splitgp")
  c.eval.shift = splitjax.spec(SHIFTS, "global")
  c.eval.rhos, c.rounds = None, 4
  return tiny.resolved(c)


@pytest.fixture(name="ran", scope="module")
def run_once(tmp_path_factory):
  """A run's workdir."""
  workdir = tmp_path_factory.mktemp("forgetting") / "w"
  experiment.run(config(), workdir)
  return workdir


def both():
  """Two seeds together, and each."""
  each = [forgetting_example(seed) for seed in (0, 1)]
  return reports.combine(each), each


def log(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_run_ends_with_the_section_and_its_figures(ran):
  results = reports.read_report(ran)
  text = (ran / "report.md").read_text()
  assert "## Forgetting" in text and "last 4 evaluated" in text
  drawn = {path.name for path in ran.glob("*.png")}
  assert drawn >= NAMES and all(f"]({name})" in text for name in NAMES)
  for label, row in zip(("splitfed", "gp"), results["rows"], strict=True):
    summary = row["summary"]["forgetting"]
    lines = [x for x in log(ran) if x["method"] == label]
    history = [line["per_class"][label] for line in lines]
    assert results["learning"][label]["per_class"] == history
    want = evaluation.summarise_forgetting(
      results["learning"][label]["accuracy"]["global"], history
    )
    assert summary == files.plain(want)
    # Accuracy is the mean over classes, weighted by their frequency.
    kept = np.load(experiment.folder(ran, label) / "exits.npz")
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
    assert reports.profile(row).by == "class"
  text = reports.write_report(tmp_path, results).read_text()
  assert "## Forgetting" in text
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
def test_evaluated_again_without_another_threshold_the_rounds_stay(ran):
  whole = reports.read_report(ran)
  results = experiment.evaluate_again(ran)
  for row, old in zip(results["rows"], whole["rows"], strict=True):
    assert row["summary"] == old["summary"]
  drawn = {path.name for path in (ran / "evaluate").glob("*.png")}
  assert NAMES & drawn == NAMES - {"class_accuracy.png"}


@pytest.mark.slow
def test_evaluated_with_another_threshold_there_is_one_round(ran):
  before = reports.read_report(ran)["rows"][:1]  # has one exit, so no threshold
  asked = config()
  chosen = dataclasses.replace(
    asked.eval, threshold=0.5, threshold_rule="fixed"
  )
  results = experiment.evaluate_again(
    ran, dataclasses.replace(asked, eval=chosen)
  )
  assert results["rows"][1]["summary"]["forgetting"]["rounds"] == 1
  for row, old in zip(results["rows"][:1], before, strict=True):
    summary = row["summary"]["forgetting"]
    assert summary["rounds"] == 1 and summary["backward"] is None
    was = old["summary"]["forgetting"]["late"]["per_class"][-1]
    assert summary["late"]["per_class"] == [pytest.approx(was, nan_ok=True)]
  text = (ran / "evaluate" / "report.md").read_text()
  assert "## Forgetting" in text and "| – |" in text


def test_positions_are_each_seed_s_own():
  _, runs = both()
  orders = np.random.default_rng(0).permuted([range(10)] * 2, axis=1).tolist()
  each = [
    placed(run, order, None, None)
    for run, order in zip(runs, orders, strict=True)
  ]
  combined = reports.combine(each)
  assert all("positions" not in row for row in combined["rows"])
  first, second, _ = map(reports.profile, combined["rows"])
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
  alone = reports.profile(each[0]["rows"][0])
  assert alone.by == "position" and np.isnan(alone.halves).all()


def test_the_paper_s_numbers_stand_beside_ours(monkeypatch):
  results, _ = both()
  at = [("late_accuracy", 65.5), ("gap", 14.0), ("backward", 8.0)]
  line, number = splitjax.config.Line, splitjax.config.Printed
  printed = {
    line("", "SplitGP", metric, "global"): number(x / 100, None)
    for metric, x in at
  }
  monkeypatch.setitem(splitjax.config.tables(), "A paper", printed)
  beside = copy.deepcopy(results)
  beside["config"] |= {"paper": "A paper", "scale": "small"}
  text = (
    reports.page_text(beside)
    .split("## Comparison with the paper")[1]
    .split("##")[0]
  )
  heads, *lines = table_cells(text)
  (line,) = (x for x in lines if x[0] == "SplitGP, paper")
  cells = dict(zip(heads, line, strict=True))
  assert cells["late accuracy [%] global"] == "65.50"
  assert cells["performance gap [points] global"] == "14.00"
  assert cells["backward transfer [points] global"] == "8.00"


def test_the_smallest_gap_is_ahead():
  found, _ = both()
  for row, gap in zip(found["rows"], (0.3, 0.2, 0.4), strict=True):
    row["summary"]["forgetting"]["gap"] = gap
    row["interval"] = {"summary": {"forgetting": {"gap": 0.04}}}
  made = reports.compare(reports.collect(found, {}))
  place = made.heads.index("performance gap [points] global")
  assert [line for line, column in made.ahead if column == place] == [1]


def test_only_a_test_set_of_all_clients_has_a_section():
  results = forgetting_example()
  assert reports.shown(results)
  results["config"]["eval"] = {"shift": {"name": "out_of_client"}}
  assert not reports.shown(results)
