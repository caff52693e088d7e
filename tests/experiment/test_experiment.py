"""A run from config to report, and everything it leaves."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
import tiny
from refusals import refused
from runs import lines
from selected import selected, values

import splitjax
from splitjax import UserError, experiment, models
from splitjax.reports import numbers

FIGURES = "blank"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
  """A finished run of a method with both exits and one with three rows."""
  workdir = tmp_path_factory.mktemp("run") / "tiny"
  draft = tiny.tiny(splitgp="splitgp", fedavg="fedavg_ft")
  draft.methods["fedavg"].at_server = True
  draft.eval.target = 1e-3
  config = tiny.resolved(draft)
  return config, workdir, splitjax.run(config, workdir)


def test_a_run_leaves_report_figures_and_metrics(ran):
  config, workdir, results = ran
  assert results.rows == [
    "splitgp",
    "fedavg",
    "fedavg+FT",
    "fedavg at the server",
  ]
  assert results.methods["fedavg+FT"] == "fedavg_ft"
  for name in ("report.md", "report.csv", "numbers.csv", "config.json"):
    assert (workdir / name).stat().st_size > 0
  figures = {path.stem for path in workdir.glob("*.png")}
  assert {
    "accuracy_over_cost",
    "accuracy_over_rho",
    "accuracy_per_client",
    "clients",
    "cost_per_client",
    "effect_of_threshold",
    "learning_curves",
    "test_sets",
  } <= figures
  seen = [(line["method"], line["round"]) for line in lines(workdir)]
  assert seen == [(m, r) for m in sorted(config.methods) for r in (1, 2)]
  stored = numbers.read(workdir)
  pd.testing.assert_frame_equal(stored, results.numbers, check_dtype=False)


def test_a_line_for_every_client(ran):
  config, workdir, _ = ran
  table = pd.read_csv(workdir / "clients.csv")
  fleet = experiment.build(config).network.fleet
  assert table.client.tolist() == list(range(6))
  assert table.depth.tolist() == list(fleet.depths) != sorted(fleet.depths)
  assert table.training_samples.tolist() == [20] * 6


def test_the_fine_tuned_row_did_not_train_again(ran):
  _, workdir, results = ran
  rows = "fedavg", "fedavg+FT"
  plain, tuned = (values(results, "seconds", r, part="train") for r in rows)
  assert plain == tuned
  assert sum(line["method"] == "fedavg" for line in lines(workdir)) == 2
  plain, tuned = (values(results, "accuracy", r, client=True) for r in rows)
  assert plain != tuned


def test_evaluations_before_the_last_may_be_of_less(ran, tmp_path):
  config, _, always = ran
  evaluation = dataclasses.replace(config.eval, personal="last", samples=15)
  only = {"fedavg": config.methods["fedavg"]}
  last = dataclasses.replace(config, eval=evaluation, methods=only)
  results = splitjax.run(last, tmp_path / "run")
  names = "fedavg", "fedavg+FT", "fedavg at the server"
  for name, rounds in zip(names, ([1, 2], [2], [1, 2]), strict=True):
    curve = selected(results, "accuracy", name, set="0.8", round=True)
    assert curve["round"].tolist() == rounds
    for client in ("", True):
      mine, usual = (
        values(each, "accuracy", name, client=client)
        for each in (results, always)
      )
      assert mine == usual
  before, _ = lines(tmp_path / "run")
  assert set(before["accuracy"]) == {"fedavg", "fedavg at the server"}
  assert values(results, "best", "fedavg") and values(always, "best", names[1])
  for metric in ("best", "best_weighted", "target_rounds"):
    assert not values(results, metric, "fedavg+FT")
  report = (tmp_path / "run/report.md").read_text()
  assert "fedavg+FT was evaluated only after the last round" in report
  assert "use at most 15 test samples of each client" in report
  (first, last), (whole, same) = (
    values(each, "accuracy", "fedavg", set="0.8", round=True)
    for each in (results, always)
  )
  assert first != whole and last == same
  assert (tmp_path / "run/accuracy_over_cost.png").exists()


@pytest.mark.slow
def test_the_only_row_may_wait_for_the_last_round(tmp_path):
  c = tiny.changed(tiny.tiny(own="fedbabu"), eval__personal="last")
  results = splitjax.run(c, tmp_path)
  curve = selected(results, "accuracy", set="0.8", round=True)
  assert curve["round"].tolist() == [2]
  first, last = lines(tmp_path)
  assert first["accuracy"] == {} and set(last["accuracy"]) == {"own"}
  (note,) = (x for x in results.runs[0].notes if "only after the last" in x)
  assert note.startswith("own was evaluated")


def test_the_modelled_cost_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  mine = [x["cost"] for x in lines(workdir) if x["method"] == "splitgp"]
  metrics = {
    "seconds": "modelled_seconds",
    "client_joules": "client_joules",
    "server_joules": "server_joules",
  }
  for name, metric in metrics.items():
    assert all(each[name] > 0 for each in mine)
    total = sum(each[name] for each in mine)
    assert results.value("splitgp", metric) == pytest.approx(total)
  spent = values(results, "joules", "splitgp", client=True)
  assert len(spent) == 6 and min(spent) > 0
  joules = results.value("splitgp", "client_joules")
  assert sum(spent) == pytest.approx(joules, rel=1e-4)
  until = values(results, "modelled_seconds", "splitgp", round=True)
  assert until == pytest.approx(np.cumsum([x["seconds"] for x in mine]))
  # Every round is evaluated; the first has reached a tenth of a per cent.
  assert results.value("splitgp", "target_rounds") == 1
  assert results.value("splitgp", "target_seconds") == mine[0]["seconds"]


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
    (accuracy,) = values(
      results, "accuracy", "splitgp", set="0.8", client=str(n)
    )
    assert right.mean() == pytest.approx(accuracy)
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
  device, served = "fedavg", "fedavg at the server"
  both = [values(results, "accuracy", row) for row in (device, served)]
  assert both[0] == both[1]
  assert values(results, "offload", served) == [1, 1]
  assert values(results, "offload", device) == [0, 0]
  task = experiment.build(config)
  # SplitGP eq. 29: a sample is 28 * 28 numbers, the network as large as ever.
  size = models.parameters(task.network.backbone)
  whole = sum(n for name, n in size.items() if not name.startswith("exit"))
  each = 28 * 28 / 1.0 + whole / 100
  samples = task.test_sets.sets[0].sum()
  assert results.value(served, "test_samples", "0.0") == samples
  assert results.value(served, "latency", "0.0") == pytest.approx(each)
  total = results.value(served, "total_latency", "0.0")
  assert total == pytest.approx(samples * each)


def test_a_finished_method_is_not_trained_again(ran, undrawn, capsys):
  config, workdir, results = ran
  before = (workdir / "methods/splitgp/rounds.jsonl").read_text()
  again = splitjax.run(config, workdir)
  pd.testing.assert_frame_equal(again.numbers, results.numbers)
  assert (workdir / "methods/splitgp/rounds.jsonl").read_text() == before
  assert "not trained again" in capsys.readouterr().out


def test_evaluate_again_says_the_same(ran, undrawn):
  config, workdir, results = ran
  place = workdir / "evaluate"
  before = numbers.read(workdir)
  again = splitjax.evaluate_again(workdir, {"eval.rhos": (0.0, 0.4)})
  assert again.sets == ["0.0", "0.4"]
  for client in ("", True):
    mine, theirs = (
      values(each, "accuracy", set="0.0", client=client)
      for each in (again, results)
    )
    assert mine == theirs
  # What the training measured stays; its rounds are of other test sets.
  for metric in ("bytes_per_round", "seconds", "modelled_seconds"):
    parts = {"part": True} if metric == "seconds" else {}
    assert values(again, metric, **parts) == values(results, metric, **parts)
  assert again.numbers["round"].isna().all()
  assert not values(again, "best")
  assert again.runs[0].settings["eval"]["rhos"] == [0.0, 0.4]
  collected = experiment.collect(place)
  pd.testing.assert_frame_equal(collected.numbers, again.numbers)
  pd.testing.assert_frame_equal(numbers.read(workdir), before)
  with refused("--workdir"):
    splitjax.evaluate_again(workdir, {"rounds": 9})


def test_the_same_evaluation_keeps_the_rounds(ran, undrawn):
  _, workdir, results = ran
  again = splitjax.evaluate_again(workdir)
  keys = ["row", "metric", "part", "set", "round", "client", "class"]
  keys += ["threshold"]
  one, two = (
    each.numbers.sort_values(keys, ignore_index=True)
    for each in (again, results)
  )
  pd.testing.assert_frame_equal(one, two)


def test_report_again_writes_the_same(ran, undrawn):
  _, workdir, results = ran
  before = (workdir / "numbers.csv").read_bytes()
  (workdir / "numbers.csv").unlink()
  again = splitjax.report_again(workdir)
  pd.testing.assert_frame_equal(again.numbers, results.numbers)
  assert (workdir / "numbers.csv").read_bytes() == before


def test_pictures_of_other_test_sets_go(ran):
  _, workdir, _ = ran
  place = workdir / "other"
  splitjax.evaluate_again(workdir, {"eval.rhos": (0.4,)}, name="other")
  assert (place / "test_sets.png").exists()
  splitjax.evaluate_again(workdir, name="other", figures="none")
  assert not (place / "test_sets.png").exists()


@pytest.mark.slow
def test_several_seeds_give_means_and_intervals(tmp_path):
  c = tiny.tiny(local="local")
  c.eval.metrics = {"calibration": {"name": "ece", "bins": 5}}
  config, place = tiny.resolved(c), tmp_path / "s"
  results = splitjax.run_seeds(config, place, [0, 1])
  assert results.seeds == [0, 1]
  means = results.means.set_index(["metric", "part", "set"])
  name = results.sets[0]
  for metric in ("accuracy", "calibration"):
    first, second = values(results, metric, set=name)
    found = means.loc[metric, "", name]
    assert found.value == pytest.approx((first + second) / 2)
    # Two values: t = 12.706, half-width t |a - b| / 2.
    half = 12.7062 * abs(first - second) / 2
    assert found.half == pytest.approx(half, rel=1e-4)
  for seed in (0, 1):
    alone = experiment.collect(place / f"seed{seed}")
    mine = results.numbers[results.numbers.seed == seed]
    one, two = alone.numbers, mine.reset_index(drop=True)
    pd.testing.assert_frame_equal(one, two)
  assert "±" in (place / "report.md").read_text()
  other = dataclasses.replace(config, batch_size=5)
  with pytest.raises(UserError, match="batch_size"):
    splitjax.run_seeds(other, place, [2])
  with pytest.raises(UserError, match="another config"):
    splitjax.run(config, place)
  assert not (place / "seed2").exists()
  again = splitjax.evaluate_again(place)
  for metric in ("accuracy", "calibration"):
    assert values(again, metric) == values(results, metric)


def test_four_accuracies_of_every_row(ran):
  """By client and by sample, of the last round and of the best."""
  _, workdir, results = ran
  log = lines(workdir)
  for row in results.rows:
    for kind, best in (("accuracy", "best"), ("weighted", "best_weighted")):
      curve = [line[kind][row] for line in log if row in line[kind]]
      assert len(curve) == 2
      assert list(curve[-1].values()) == values(results, kind, row)
      each = zip(*(line.values() for line in curve), strict=True)
      tops = [max(shares) for shares in each]
      assert values(results, best, row) == tops
    shares = [
      values(results, "accuracy", row, set=name, client=True)
      for name in results.sets
    ]
    spread = splitjax.evaluation.spread(np.array(shares))
    for name in ("std", "worst_tenth"):
      assert values(results, name, row) == pytest.approx(list(spread[name]))
      (*_, last) = (line[name][row] for line in log if row in line[name])
      assert list(last.values()) == values(results, name, row)


def test_classes_of_a_client_add_up_to_its_accuracy(ran):
  config, _, results = ran
  last = results.sets[-1]
  held = experiment.build(config).class_counts
  for row in results.rows:
    where = {"set": last, "client": True, "class": True}
    accuracy, count, training = (
      selected(results, metric, row, **where).set_index(["client", "class"])
      for metric in ("accuracy", "test_samples", "training_samples")
    )
    assert training.value.sum() == 120
    for (n, c), samples in training.value.items():
      assert held[int(n), int(c)] == samples
    right = (accuracy.value * count.value).groupby("client").sum()
    shares = right / count.value.groupby("client").sum()
    whole = selected(results, "accuracy", row, set=last, client=True)
    assert shares.tolist() == pytest.approx(whole.value.tolist())
    # Over all clients a class has the mean over samples.
    right = (accuracy.value * count.value).groupby("class").sum()
    shares = right / count.value.groupby("class").sum()
    where = {"set": last, "class": True}
    whole = selected(results, "accuracy", row, **where).set_index("class")
    pd.testing.assert_series_equal(shares, whole.value[shares.index])
