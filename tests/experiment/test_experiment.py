"""A run from config to report, and everything it leaves."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
import tiny

import splitjax
from splitjax import UserError, losses
from splitjax.evaluation import early_exit, metrics
from splitjax.experiment import runner
from splitjax.experiment.storage import ownership, workdirs
from splitjax.models import shapes

pytestmark = pytest.mark.usefixtures("traced_once")

FIGURES = "blank"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
  """A finished run of a method with both exits and one with three rows."""
  workdir = tmp_path_factory.mktemp("run") / "tiny"
  draft = tiny.tiny(harmony="harmony", fedavg="fedavg_ft")
  draft.methods.fedavg.at_server = True
  draft.eval.target = 1e-3
  config = tiny.resolved(draft)
  return config, workdir, splitjax.run(config, workdir)


def lines(workdir):
  text = (workdir / "metrics.jsonl").read_text()
  return [json.loads(line) for line in text.splitlines()]


def test_a_run_leaves_report_figures_and_metrics(ran):
  config, workdir, results = ran
  assert [row["label"] for row in results["rows"]] == [
    "harmony",
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
  assert figures <= set(workdirs.figures(config.methods))
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
  last = dataclasses.replace(config, eval=evaluation)
  results = splitjax.run(last, tmp_path / "run")
  rounds = {k: each["round"] for k, each in results["learning"].items()}
  assert rounds == {
    "harmony": [1, 2],
    "fedavg": [1, 2],
    "fedavg+FT": [2],
    "fedavg at the server": [1, 2],
  }
  for row, same in zip(results["rows"], always["rows"], strict=True):
    mine, usual = row["summary"], same["summary"]
    assert mine["per_client"] == usual["per_client"]
    assert mine["accuracy"] == usual["accuracy"]
  *_, before, _ = lines(tmp_path / "run")
  assert set(before["accuracy"]) == {"fedavg", "fedavg at the server"}
  tuned = results["rows"][2]
  assert tuned["summary"]["best"] == [None, None] and "to_target" not in tuned
  report = (tmp_path / "run/report.md").read_text()
  assert "fedavg+FT was evaluated only after the last round" in report
  assert "use at most 15 test samples of each client" in report
  curves = [run["learning"]["harmony"]["accuracy"] for run in (results, always)]
  (first, last), (whole, same) = (each["0.8"] for each in curves)
  assert first != whole and last == same
  assert (tmp_path / "run/accuracy_over_cost.png").exists()


def test_the_only_row_may_wait_for_the_last_round(tmp_path):
  c = tiny.changed(tiny.tiny(own="fedbabu"), eval__personal="last")
  results = splitjax.run(c, tmp_path)
  assert results["learning"]["own"]["round"] == [2]
  first, last = lines(tmp_path)
  assert first["accuracy"] == {} and set(last["accuracy"]) == {"own"}
  said = "own was evaluated only after the last round"
  assert any(said in note for note in results["notes"])


def test_the_modelled_cost_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  harmony = results["rows"][0]
  mine = [x["cost"] for x in lines(workdir) if x["method"] == "harmony"]
  for name in ("seconds", "client_joules", "server_joules"):
    assert all(each[name] > 0 for each in mine)
    total = sum(each[name] for each in mine)
    assert harmony["cost"][name] == pytest.approx(total)
  spent = harmony["summary"]["per_client"]["cost"]["joules"]
  assert len(spent) == 6 and min(spent) > 0
  assert sum(spent) == pytest.approx(harmony["cost"]["client_joules"], rel=1e-4)
  until = results["learning"]["harmony"]["cost"]["seconds"]
  assert until == pytest.approx(np.cumsum([x["seconds"] for x in mine]))
  # Every round is evaluated; the first has reached a tenth of a per cent.
  assert harmony["to_target"]["rounds"] == 1
  assert harmony["to_target"]["seconds"] == mine[0]["seconds"]
  page = (workdir / "report.md").read_text()
  assert "## Modelled time and energy" in page
  assert "## To an accuracy of 0.1 %, ρ=0" in page


def test_the_ledger_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  wire = lines(workdir)[0]["wire"]
  assert "up/labels" not in wire and wire["up/match"] > 0
  assert results["rows"][0]["wire"].keys() == wire.keys()


def test_a_loaded_client_answers_as_the_report_says(ran):
  config, workdir, results = ran
  trained = splitjax.load(workdir, "harmony")
  kept = np.load(workdirs.folder(workdir, "harmony") / "exits.npz")
  task = splitjax.experiment.setup.tasks.build(config)
  assert kept["pool"] == "test" and kept["names"].tolist() == ["0.0", "0.8"]
  for n in (0, 3, 5):
    threshold = trained.thresholds["0.8"][n]
    participating = kept["rows"][n] >= 0
    rows = kept["rows"][n, participating]
    label = task.data.test_label[rows]
    np.testing.assert_array_equal(kept["label"][n, participating], label)
    answer, away = trained.predict(n, task.data.test_image[rows], threshold)
    entropy = kept["harmony/entropy"][n, participating]
    np.testing.assert_array_equal(away, entropy >= threshold)
    right = np.asarray(answer == label)[kept["sets"][1, n, participating]]
    per_client = results["rows"][0]["summary"]["per_client"]
    assert right.mean() == pytest.approx(per_client["accuracy"][1][n])
  with pytest.raises(UserError, match="client 6: .* give a number in 0..5"):
    trained.predict(6, task.data.test_image[:1], 0.4)
  with pytest.raises(UserError, match="threshold=None: give a number, nats"):
    trained.predict(0, task.data.test_image[:1], None)


def test_personalised_clients_differ_from_what_is_passed_on(ran):
  _, workdir, _ = ran
  trained = splitjax.load(workdir, "harmony")
  passed = jax.tree.leaves(trained.state.clients)
  own = jax.tree.leaves(trained.personal)
  assert any(not np.array_equal(a, b) for a, b in zip(passed, own, strict=True))


def test_a_whole_network_answers_without_the_server(ran):
  config, workdir, _ = ran
  trained = splitjax.load(workdir, "fedavg")
  image = splitjax.experiment.setup.tasks.build(config).data.test_image[:4]
  answer, away = trained.predict(2, image, threshold=0.0)
  assert answer.shape == (4,) and not away.any()
  assert trained.thresholds is None
  np.testing.assert_array_equal(trained.predict(2, image, None)[0], answer)


def test_at_the_server_it_says_the_same_at_another_price(ran):
  config, _, results = ran
  _, device, _, served = (row["summary"] for row in results["rows"])
  assert served["accuracy"] == device["accuracy"]
  assert served["offload"] == [1, 1] and device["offload"] == [0, 0]
  task = splitjax.experiment.setup.tasks.build(config)
  # SplitGP eq. 29: a sample is 28 * 28 numbers, the network as large as ever.
  size = shapes.parameters(task.network.backbone)
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


@pytest.mark.slow
def test_a_method_killed_before_its_first_checkpoint_starts_afresh(
  ran, tmp_path, monkeypatch
):
  config, _, whole = ran
  train = runner.loop.train
  calls = []

  def stop_in_second(recorder, trainer, state):
    calls.append(recorder.key)
    if len(calls) == 2:
      with (recorder.workdir / "metrics.jsonl").open("a") as log:
        log.write('{"method": "fedavg", "round": 1}\n')
      raise KeyboardInterrupt
    return train(recorder, trainer, state)

  monkeypatch.setattr(runner.loop, "train", stop_in_second)
  with pytest.raises(KeyboardInterrupt):
    splitjax.run(config, tmp_path / "w")
  results = splitjax.run(config, tmp_path / "w")
  assert calls == ["harmony", "fedavg", "fedavg"]
  for a, b in zip(results["rows"], whole["rows"], strict=True):
    assert a["summary"] == b["summary"]
  assert len(lines(tmp_path / "w")) == 4


def test_a_workdir_of_another_config_is_refused_unless_told(ran, tmp_path):
  config, workdir, _ = ran
  other = dataclasses.replace(config, batch_size=7)
  with pytest.raises(UserError, match="batch_size is 10 there and 7 here"):
    splitjax.run(other, workdir)
  facts = {"shape": [28, 28, 1]}
  with ownership.owned(tmp_path / "w", config, facts, overwrite=False):
    assert (tmp_path / "w" / ".lock").exists()
  (tmp_path / "w" / "methods" / "old").mkdir(parents=True)
  written = "clients.png", "clients.pdf", "inside_fedavg.npz", "report.csv"
  theirs = {"thesis.tex", "thesis.pdf", "thesis.png", "report.pdf"}
  for name in (*written, *theirs):
    (tmp_path / "w" / name).touch()
  with ownership.owned(tmp_path / "w", other, facts, overwrite=True):
    pass
  left = {path.name for path in (tmp_path / "w").iterdir()}
  assert left == {"config.json", *theirs}


def test_a_folder_of_somebody_else_is_refused(ran, tmp_path):
  (tmp_path / "thesis.tex").touch()
  for overwrite in (False, True):
    with pytest.raises(UserError, match="no run of this program"):
      splitjax.run(ran[0], tmp_path, overwrite=overwrite)
  assert (tmp_path / "thesis.tex").exists()


def test_a_config_json_of_somebody_else_is_no_run(ran, tmp_path):
  (tmp_path / "config.json").write_text('{"name": "my-web-app"}')
  with pytest.raises(UserError, match="no run of this program"):
    splitjax.run(ran[0], tmp_path, overwrite=True)
  assert (tmp_path / "config.json").read_text() == '{"name": "my-web-app"}'
  (tmp_path / "config.json").write_text('{"config": {"rou')
  with pytest.raises(UserError, match="damaged"):
    splitjax.report_again(tmp_path)


def test_seeds_do_not_mix_with_a_single_run_or_another_config(ran, tmp_path):
  config, workdir, results = ran
  with pytest.raises(UserError, match="no run|another config"):
    splitjax.run_seeds(config, workdir, [1])
  assert json.loads((workdir / "report.json").read_text()) == results
  (tmp_path / "report.md").touch()
  with pytest.raises(UserError, match="no run of this program"):
    splitjax.run_seeds(config, tmp_path, [1])
  assert not (tmp_path / "seed1").exists()


def test_evaluate_again_says_the_same(ran, undrawn):
  config, workdir, results = ran
  place = workdir / "evaluate"
  place.mkdir()
  names = "thesis.png", "learning.pdf", "class_accuracy.pdf"
  for name in names:
    (place / name).touch()
  again = splitjax.evaluate_again(workdir)
  # Figures of an earlier evaluation go, pictures of other people stay.
  assert [(place / name).exists() for name in names] == [True, True, False]
  for a, b in zip(again["rows"], results["rows"], strict=True):
    assert a["summary"]["accuracy"] == b["summary"]["accuracy"]
  wider = dataclasses.replace(config.eval, rhos=(0.0, 0.4))
  other = splitjax.evaluate_again(
    workdir, dataclasses.replace(config, eval=wider)
  )
  assert other["sets"] == ["0.0", "0.4"]
  assert json.loads((workdir / "report.json").read_text()) == results
  with pytest.raises(UserError, match="amplified alone"):
    splitjax.evaluate_again(workdir, dataclasses.replace(config, rounds=9))


def test_report_again_writes_the_same(ran, undrawn):
  _, workdir, results = ran
  (workdir / "report.json").unlink()
  assert splitjax.report_again(workdir) == results
  assert json.loads((workdir / "report.json").read_text()) == results


def test_nothing_finished_is_said(ran, tmp_path):
  with pytest.raises(UserError, match="holds no run"):
    splitjax.report_again(tmp_path)
  with ownership.owned(
    tmp_path / "w", ran[0], {"classes": 10}, overwrite=False
  ):
    pass
  with pytest.raises(UserError, match="no method is finished"):
    splitjax.report_again(tmp_path / "w")
  with pytest.raises(UserError, match="no finished method 'harmony'"):
    splitjax.load(tmp_path / "w", "harmony")


@pytest.mark.slow
def test_several_seeds_give_means_and_intervals(tmp_path):
  config = tiny.resolved(local="local")
  results = splitjax.run_seeds(config, tmp_path / "s", [0, 1])
  assert results["seeds"] == [0, 1]
  each = [
    json.loads((tmp_path / "s" / f"seed{s}" / "report.json").read_text())
    for s in (0, 1)
  ]
  accuracy = [run["rows"][0]["summary"]["accuracy"][0] for run in each]
  row = results["rows"][0]
  assert row["summary"]["accuracy"][0] == pytest.approx(np.mean(accuracy))
  # Two values: t = 12.706, half-width t |a - b| / 2.
  half = 12.7062 * abs(accuracy[0] - accuracy[1]) / 2
  found = row["interval"]["summary"]["accuracy"][0]
  assert found == pytest.approx(half, rel=1e-4)
  assert "±" in (tmp_path / "s" / "report.md").read_text()
  other = dataclasses.replace(config, batch_size=5)
  with pytest.raises(UserError, match="batch_size"):
    splitjax.run_seeds(other, tmp_path / "s", [2])
  with pytest.raises(UserError, match="another config"):
    splitjax.run(config, tmp_path / "s")
  assert not (tmp_path / "s" / "seed2").exists()
  again = splitjax.evaluate_again(tmp_path / "s")
  assert again["rows"][0]["summary"] == row["summary"]


def test_entropy_on_the_device_and_in_the_gate_agree():
  # The gate's threshold compares with what losses.entropy gave: a uniform
  # exit over 10 classes has log 10 = 2.3026 nats, just above SplitGP's last, so
  # that 2.4 alone keeps it on the device.
  value = float(losses.entropy(np.zeros((1, 10), np.float32))[0])
  assert value == pytest.approx(np.log(10), rel=1e-6)
  *_, last, never = early_exit.default_grid(10)
  assert last < value < never


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
    spread = metrics.spread(np.array(summary["per_client"]["accuracy"], float))
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
