"""A run from config to report, and everything it leaves."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
import tiny
from refusals import refused
from runs import lines

import splitjax
from splitjax import UserError, experiment, models
from splitjax.experiment import MEASUREMENTS

FIGURES = "blank"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
  """A finished run of a method with both exits and one with three rows."""
  workdir = tmp_path_factory.mktemp("run") / "tiny"
  draft = tiny.tiny(splitgp="splitgp", fedavg="fedavg_ft")
  draft.methods.fedavg.at_server = True
  draft.eval.target = 1e-3
  config = tiny.resolved(draft)
  return config, workdir, splitjax.run(config, workdir)


def test_a_run_leaves_report_figures_and_metrics(ran):
  config, workdir, results = ran
  assert [row["label"] for row in results["rows"]] == [
    "splitgp",
    "fedavg",
    "fedavg+FT",
    "fedavg at the server",
  ]
  for name in ("report.md", "report.json", "config.json"):
    assert (workdir / name).stat().st_size > 0
  figures = {path.name for path in workdir.glob("*.png")}
  assert figures == {
    "accuracy_over_cost.png",
    "accuracy_over_rho.png",
    "accuracy_latency.png",
    "accuracy_per_client.png",
    "accuracy_spread.png",
    "clients.png",
    "cost_per_client.png",
    "effect_of_threshold.png",
    "learning_curves.png",
    "power.png",
    "speed_up.png",
    "test_sets.png",
  }
  assert figures <= set(experiment.figures(config.methods))
  seen = [(line["method"], line["round"]) for line in lines(workdir)]
  assert seen == [(m, r) for m in config.methods for r in (1, 2)]
  assert json.loads((workdir / "report.json").read_text()) == results


def test_the_fine_tuned_row_did_not_train_again(ran):
  _, workdir, results = ran
  plain, tuned = results["rows"][1:3]
  assert plain["seconds"] == tuned["seconds"]
  assert sum(line["method"] == "fedavg" for line in lines(workdir)) == 2
  assert plain["summary"]["per_client"] != tuned["summary"]["per_client"]


def test_evaluations_before_the_last_may_be_of_less(ran, tmp_path):
  config, _, always = ran
  evaluation = dataclasses.replace(config.eval, personal="last", samples=15)
  only = {"fedavg": config.methods["fedavg"]}
  last = dataclasses.replace(config, eval=evaluation, methods=only)
  results = splitjax.run(last, tmp_path / "run")
  rounds = {k: each["round"] for k, each in results["learning"].items()}
  once, twice = [2], [1, 2]
  names = "fedavg", "fedavg+FT", "fedavg at the server"
  assert rounds == dict(zip(names, (twice, once, twice), strict=True))
  for row, same in zip(results["rows"], always["rows"][1:], strict=True):
    mine, usual = row["summary"], same["summary"]
    assert mine["per_client"] == usual["per_client"]
    assert mine["accuracy"] == usual["accuracy"]
  before, _ = lines(tmp_path / "run")
  assert set(before["accuracy"]) == {"fedavg", "fedavg at the server"}
  tuned = results["rows"][1]
  assert tuned["summary"]["best"] == [None, None] and "to_target" not in tuned
  report = (tmp_path / "run/report.md").read_text()
  assert "fedavg+FT was evaluated only after the last round" in report
  assert "use at most 15 test samples of each client" in report
  curves = [run["learning"]["fedavg"]["accuracy"] for run in (results, always)]
  (first, last), (whole, same) = (each["0.8"] for each in curves)
  assert first != whole and last == same
  assert (tmp_path / "run/accuracy_over_cost.png").exists()


@pytest.mark.slow
def test_the_only_row_may_wait_for_the_last_round(tmp_path):
  c = tiny.changed(tiny.tiny(own="fedbabu"), eval__personal="last")
  results = splitjax.run(c, tmp_path)
  assert results["learning"]["own"]["round"] == [2]
  first, last = lines(tmp_path)
  assert first["accuracy"] == {} and set(last["accuracy"]) == {"own"}


def test_the_modelled_cost_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  splitgp = results["rows"][0]
  mine = [x["cost"] for x in lines(workdir) if x["method"] == "splitgp"]
  for name in ("seconds", "client_joules", "server_joules"):
    assert all(each[name] > 0 for each in mine)
    total = sum(each[name] for each in mine)
    assert splitgp["cost"][name] == pytest.approx(total)
  spent = splitgp["summary"]["per_client"]["cost"]["joules"]
  assert len(spent) == 6 and min(spent) > 0
  assert sum(spent) == pytest.approx(splitgp["cost"]["client_joules"], rel=1e-4)
  until = results["learning"]["splitgp"]["cost"]["seconds"]
  assert until == pytest.approx(np.cumsum([x["seconds"] for x in mine]))
  # Every round is evaluated; the first has reached a tenth of a per cent.
  assert splitgp["to_target"]["rounds"] == 1
  assert splitgp["to_target"]["seconds"] == mine[0]["seconds"]
  page = (workdir / "report.md").read_text()
  assert "## Modelled time and energy" in page
  assert "## To an accuracy of 0.1 %, ρ=0" in page


def test_the_ledger_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  wire = lines(workdir)[0]["wire"]
  assert wire["up/features"] > wire["up/labels"] > 0
  assert results["rows"][0]["wire"].keys() == wire.keys()


def test_a_loaded_client_answers_as_the_report_says(ran):
  config, workdir, results = ran
  trained = splitjax.load(workdir, "splitgp")
  kept = np.load(experiment.folder(workdir, "splitgp") / "exits.npz")
  task = experiment.build(config)
  assert kept["pool"] == "test" and kept["names"].tolist() == ["0.0", "0.8"]
  depths = [
    (cohort.depth, cohort.ids[0]) for cohort in task.network.fleet.cohorts
  ]
  for _, n in depths:
    threshold = trained.thresholds["0.8"][n]
    participating = kept["rows"][n] >= 0
    rows = kept["rows"][n, participating]
    label = task.data.test_label[rows]
    np.testing.assert_array_equal(kept["label"][n, participating], label)
    answer, away = trained.predict(n, task.data.test_image[rows], threshold)
    entropy = kept["splitgp/entropy"][n, participating]
    np.testing.assert_array_equal(away, entropy >= threshold)
    right = np.asarray(answer == label)[kept["sets"][1, n, participating]]
    per_client = results["rows"][0]["summary"]["per_client"]
    assert right.mean() == pytest.approx(per_client["accuracy"][1][n])
  with refused("client 6"):
    trained.predict(6, task.data.test_image[:1], 0.4)
  with refused("threshold"):
    trained.predict(0, task.data.test_image[:1], None)


def test_a_whole_network_answers_without_the_server(ran):
  config, workdir, _ = ran
  trained = splitjax.load(workdir, "fedavg")
  image = experiment.build(config).data.test_image[:4]
  answer, away = trained.predict(2, image, threshold=0.0)
  assert answer.shape == (4,) and not away.any()
  assert trained.thresholds is None
  np.testing.assert_array_equal(trained.predict(2, image, None)[0], answer)
  # Clients keep nothing between rounds; fine-tuned ones are kept beside.
  assert not jax.tree.leaves(trained.state.clients)
  kernels = (
    net.params["head"]["Dense_0"]["kernel"]
    for net in (trained.state.server.common, trained.client(2))
  )
  assert not np.array_equal(*kernels)


def test_at_the_server_it_says_the_same_at_another_price(ran):
  config, _, results = ran
  _, device, _, served = (row["summary"] for row in results["rows"])
  assert served["accuracy"] == device["accuracy"]
  assert served["offload"] == [1, 1] and device["offload"] == [0, 0]
  task = experiment.build(config)
  # SplitGP eq. 29: a sample is 28 * 28 numbers, the network as large as ever.
  size = models.parameters(task.network.backbone)
  whole = sum(n for name, n in size.items() if not name.startswith("exit"))
  each = 28 * 28 / 1.0 + whole / 100
  samples = task.test_sets.sets[0].sum()
  assert served["latency"][0] == pytest.approx(samples * each)


def test_a_finished_method_is_not_trained_again(ran, undrawn, capsys):
  config, workdir, results = ran
  before = (workdir / "metrics.jsonl").read_text()
  assert splitjax.run(config, workdir) == results
  assert (workdir / "metrics.jsonl").read_text() == before
  assert "not trained again" in capsys.readouterr().out


def test_evaluate_again_says_the_same(ran, undrawn):
  config, workdir, results = ran
  place = workdir / "evaluate"
  place.mkdir()
  names = "thesis.png", "learning.pdf", "class_accuracy.pdf"
  for name in names:
    (place / name).touch()
  wider = dataclasses.replace(config.eval, rhos=(0.0, 0.4))
  again = splitjax.evaluate_again(
    workdir, dataclasses.replace(config, eval=wider)
  )
  assert again["sets"] == ["0.0", "0.4"]
  # Figures of an earlier evaluation go, pictures of other people stay.
  assert [(place / name).exists() for name in names] == [True, True, False]
  for a, b in zip(again["rows"], results["rows"], strict=True):
    assert a["summary"]["accuracy"][0] == b["summary"]["accuracy"][0]
  assert json.loads((workdir / "report.json").read_text()) == results
  with refused("--workdir"):
    splitjax.evaluate_again(workdir, dataclasses.replace(config, rounds=9))


def test_report_again_writes_the_same(ran, undrawn):
  _, workdir, results = ran
  (workdir / "report.json").unlink()
  assert splitjax.report_again(workdir) == results
  assert json.loads((workdir / "report.json").read_text()) == results


@pytest.mark.slow
def test_several_seeds_give_means_and_intervals(tmp_path):
  c = tiny.tiny(local="local")
  c.eval.metrics = {"calibration": {"name": "ece", "bins": 5}}
  config, place = tiny.resolved(c), tmp_path / "s"
  results = splitjax.run_seeds(config, place, [0, 1])
  assert results["seeds"] == [0, 1]
  each = [
    json.loads((place / f"seed{s}" / "report.json").read_text()) for s in (0, 1)
  ]
  (row,) = results["rows"]
  for read in (
    lambda summary: summary["accuracy"][0],
    lambda summary: summary["metrics"]["calibration"][0],
  ):
    values = [read(run["rows"][0]["summary"]) for run in each]
    assert read(row["summary"]) == pytest.approx(np.mean(values))
    # Two values: t = 12.706, half-width t |a - b| / 2.
    half = 12.7062 * abs(values[0] - values[1]) / 2
    found = read(row["interval"]["summary"])
    assert found == pytest.approx(half, rel=1e-4)
  curve, name = results["learning"]["local"], results["sets"][0]
  assert len(curve["interval"]["metrics"]["calibration"][name]) == 2
  assert "±" in (place / "report.md").read_text()
  other = dataclasses.replace(config, batch_size=5)
  with pytest.raises(UserError, match="batch_size"):
    splitjax.run_seeds(other, place, [2])
  with pytest.raises(UserError, match="another config"):
    splitjax.run(config, place)
  assert not (place / "seed2").exists()
  again = splitjax.evaluate_again(place)
  assert again["rows"][0]["summary"] == row["summary"]


def test_four_accuracies_of_every_row(ran):
  """By client and by sample, of the last round and of the best."""
  _, workdir, results = ran
  log = lines(workdir)
  for row in results["rows"]:
    label, summary = row["label"], row["summary"]
    for kind, best in (("accuracy", "best"), ("weighted", "best_weighted")):
      curve = [line[kind][label] for line in log if label in line[kind]]
      assert len(curve) == 2
      assert list(curve[-1].values()) == pytest.approx(summary[kind])
      each = zip(*(line.values() for line in curve), strict=True)
      assert summary[best] == pytest.approx([max(values) for values in each])
    spread = splitjax.evaluation.spread(
      np.array(summary["per_client"]["accuracy"], float)
    )
    for name in ("std", "worst_tenth"):
      assert summary[name] == pytest.approx(list(spread[name]))
      (*_, last) = (line[name][label] for line in log if label in line[name])
      assert list(last.values()) == pytest.approx(summary[name])
  page = (workdir / "report.md").read_text()
  assert "## Accuracy by client and by sample, ρ=0.8" in page
  assert "worst tenth of clients [%]" in page


def test_accuracy_of_every_client_over_the_rounds(ran):
  config, workdir, results = ran
  with (workdir / "clients_over_rounds.csv").open(newline="") as file:
    table = list(csv.DictReader(file))
  rounds = len(results["learning"]["fedavg"]["round"])
  assert len(table) == 4 * len(results["sets"]) * rounds * config.num_clients
  for row in results["rows"]:
    label, shares = row["label"], row["summary"]["per_client"]["accuracy"]
    last = [x for x in table if x["row"] == label][-config.num_clients :]
    assert {x["set"] for x in last} == {results["sets"][-1]}
    want = ["" if x is None else round(x, 4) for x in shares[-1]]
    assert [x["accuracy"] and float(x["accuracy"]) for x in last] == want


def test_every_figure_of_a_method_has_a_known_name():
  drawn = {n for n, each in MEASUREMENTS.items() if hasattr(each, "picture")}
  assert {"confusion"} <= drawn <= set(experiment.OF_METHODS)
