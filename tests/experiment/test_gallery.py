"""One run with everything measured: what it leaves, and what reads it."""

import copy
import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
import runs as helper
import tiny
from refusals import refused
from runs import lines
from selected import selected, timeless, values

import splitjax
from splitjax import METRICS, evaluation, experiment, models
from splitjax.data import standardise
from splitjax.reports import numbers

FIGURES = "blank"
GATED = ["splitgp", "splitgp+FT"]
WHOLE = ["fedavg", "fedavg+FT", "fedavg at the server"]
OWN = ("recall", "ece", "mine")
RULES = ("oracle", "calibrated", "fixed")


def mine(labels, answers, probabilities, *, factor: float = 1.0):
  """The mean probability of the right class."""
  return factor * probabilities[np.arange(len(labels)), labels].mean()


def recall(labels, answers):
  """The mean recall of the classes: it takes no probabilities."""
  right = labels == answers
  return np.mean([right[labels == c].mean() for c in np.unique(labels)])


@pytest.fixture(scope="module", autouse=True)
def own_metrics():
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(METRICS, "mine", mine)
    patch.setitem(METRICS, "recall", recall)
    yield


def draft():
  """Both exits, fine-tuned; whole networks, in three rows."""
  c = tiny.tiny(splitgp="splitgp", fedavg="fedavg_ft")
  c.methods["splitgp"].finetune = c.methods["fedavg"].at_server = True
  c.eval.target = 1e-3
  c.eval.threshold_rule, c.eval.holdout, c.eval.threshold = (
    "calibrated",
    0.4,
    0.8,
  )
  return c


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_metrics):
  """The config, its folder and its results."""
  c = draft()
  c.eval.metrics, c.eval.confusion, c.eval.embeddings = OWN, True, 23
  config, workdir = tiny.resolved(c), tmp_path_factory.mktemp("run") / "w"
  return config, workdir, splitjax.run(config, workdir)


@pytest.fixture(scope="module")
def stored(ran):
  """Arrays that were stored of SplitGP: name -> array."""
  _, workdir, _ = ran

  def read(name, key="splitgp"):
    return np.load(experiment.folder(workdir, key) / f"{name}.npz")

  return read


def assert_same_lines(one, two, **how):
  """Two tables have the same numbers, in any order."""
  keys = [name for name in one if name not in ("seed", "value")]
  pair = (x.sort_values(keys, ignore_index=True) for x in (one, two))
  pd.testing.assert_frame_equal(*pair, **how)


def test_a_run_leaves_report_figures_and_metrics(ran):
  config, workdir, results = ran
  assert results.rows == GATED + WHOLE
  assert results.runs[0].methods["fedavg+FT"] == "fedavg_ft"
  for name in ("report.md", "report.csv", "numbers.csv", "config.json"):
    assert (workdir / name).stat().st_size > 0
  assert {path.stem for path in workdir.glob("*.png")} >= {
    "accuracy_over_cost",
    "accuracy_over_rho",
    "accuracy_per_client",
    "clients",
    "confusion_splitgp",
    "cost_per_client",
    "effect_of_threshold",
    "learning_curves",
    "test_sets",
  }
  page = (workdir / "report.md").read_text()
  (head, *_) = [line for line in page.splitlines() if line.startswith("| m")]
  assert all(key in head for key in OWN)
  seen = [(line["method"], line["round"]) for line in lines(workdir)]
  assert seen == [(m, r) for m in sorted(config.methods) for r in (1, 2)]
  assert_same_lines(numbers.read(workdir), results.numbers, check_dtype=False)
  clients = pd.read_csv(workdir / "clients.csv")
  fleet = experiment.build(config).network.fleet
  assert clients.client.tolist() == list(range(6))
  assert clients.depth.tolist() == list(fleet.depths) != sorted(fleet.depths)
  assert clients.training_samples.tolist() == [12] * 6  # and 8 held out


def test_it_says_the_same_again(ran, undrawn, capsys):
  """Trained, evaluated or reported anew; the rounds of the log stay."""
  config, workdir, results = ran
  before = lines(workdir), (workdir / "numbers.csv").read_bytes()
  for again in (
    lambda: splitjax.run(config, workdir),
    lambda: splitjax.evaluate_again(workdir),
    lambda: splitjax.report_again(workdir),
  ):
    assert_same_lines(again().numbers, results.numbers)
    assert (lines(workdir), (workdir / "numbers.csv").read_bytes()) == before
  assert "not trained again" in capsys.readouterr().out
  (workdir / "numbers.csv").unlink()
  splitjax.report_again(workdir)
  assert (workdir / "numbers.csv").read_bytes() == before[1]


def test_other_mixtures_in_a_folder_of_their_own(ran):
  _, workdir, results = ran
  before, place = numbers.read(workdir), workdir / "evaluate"
  again = splitjax.evaluate_again(workdir, {"eval.rhos": (0.0, 0.4)})
  assert again.sets == ["0.0", "0.4"]
  for client in ("", True):
    pair = (
      values(each, "accuracy", "fedavg", set="0.0", client=client)
      for each in (again, results)
    )
    assert len(set(map(tuple, pair))) == 1
  # What the training measured stays; its rounds are of other test sets.
  for metric in ("bytes_per_round", "seconds", "modelled_seconds"):
    parts = {"part": True} if metric == "seconds" else {}
    assert values(again, metric, **parts) == values(results, metric, **parts)
  assert again.numbers["round"].isna().all() and not values(again, "best")
  assert again.runs[0].settings["eval"]["rhos"] == [0.0, 0.4]
  assert_same_lines(experiment.collect(place).numbers, again.numbers)
  pd.testing.assert_frame_equal(numbers.read(workdir), before)
  noise = {"privacy.features.clip": 1.0, "privacy.features.noise": 4.0}
  for changes in ({"rounds": 9}, noise):  # an epsilon of noise never added
    with refused("--workdir"):
      splitjax.evaluate_again(workdir, changes)


def test_a_row_that_is_fine_tuned_or_served_did_not_train_again(ran):
  _, workdir, results = ran
  seconds = [values(results, "seconds", r, part="train") for r in WHOLE[:2]]
  assert seconds[0] == seconds[1]
  assert sum(line["method"] == "fedavg" for line in lines(workdir)) == 2
  own = [values(results, "accuracy", r, client=True) for r in WHOLE]
  assert own[0] == own[2] != own[1]


def test_at_the_server_a_sample_has_another_price(ran):
  config, _, results = ran
  device, _, served = WHOLE
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


def test_the_modelled_cost_is_in_metrics_and_report(ran):
  _, workdir, results = ran
  costs = [x["cost"] for x in lines(workdir, "splitgp")]
  metrics = {
    "seconds": "modelled_seconds",
    "client_joules": "client_joules",
    "server_joules": "server_joules",
  }
  for name, metric in metrics.items():
    assert all(each[name] > 0 for each in costs)
    total = sum(each[name] for each in costs)
    assert results.value("splitgp", metric) == pytest.approx(total)
  spent = values(results, "joules", "splitgp", client=True)
  assert len(spent) == 6 and min(spent) > 0
  joules = results.value("splitgp", "client_joules")
  assert sum(spent) == pytest.approx(joules, rel=1e-4)
  until = values(results, "modelled_seconds", "splitgp", round=True)
  assert until == pytest.approx(np.cumsum([x["seconds"] for x in costs]))
  # Every round is evaluated; the first has reached a tenth of a per cent.
  assert results.value("splitgp", "target_rounds") == 1
  assert results.value("splitgp", "target_seconds") == costs[0]["seconds"]


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
      assert values(results, best, row) == [max(shares) for shares in each]
    shares = [
      values(results, "accuracy", row, set=name, client=True)
      for name in results.sets
    ]
    spread = evaluation.spread(np.array(shares))
    for name in ("std", "worst_tenth"):
      assert values(results, name, row) == pytest.approx(list(spread[name]))
      (*_, last) = (line[name][row] for line in log if row in line[name])
      assert list(last.values()) == values(results, name, row)


def test_classes_of_a_client_add_up_to_its_accuracy(ran):
  config, _, results = ran
  held = experiment.build(config).class_counts
  last = {"set": results.sets[-1]}
  for row in results.rows:
    where = {**last, "client": True, "class": True}
    accuracy, count, training = (
      selected(results, metric, row, **where).set_index(["client", "class"])
      for metric in ("accuracy", "test_samples", "training_samples")
    )
    for (n, c), samples in training.value.items():
      assert held[int(n), int(c)] == samples
    assert training.value.sum() == held.sum()
    right = accuracy.value * count.value
    # Over all clients a class has the mean over samples.
    for key in ("client", "class"):
      shares = right.groupby(key).sum() / count.value.groupby(key).sum()
      whole = selected(results, "accuracy", row, **last, **{key: True})
      whole = whole.set_index(key).value[shares.index]
      np.testing.assert_allclose(shares, whole)


# Loaded, it answers as the report says.


def test_a_loaded_client_answers_as_the_report_says(ran, stored):
  config, workdir, results = ran
  trained, kept = splitjax.load(workdir, "splitgp"), stored("exits")
  task, row = experiment.build(config), GATED[1]
  np.testing.assert_array_equal(kept["held/rows"], task.holdout.rows)
  held = {
    x: kept[f"{row}/holdout/{x}"] for x in ("entropy", "client", "server")
  }
  assert (kept[f"{row}/proxy/entropy"] != held["entropy"]).any()
  for n in range(6):
    threshold = trained.thresholds["0.8"][n]
    tested = kept["rows"][n] >= 0
    rows = kept["rows"][n, tested]
    answer, away = trained.predict(n, task.data.test_image[rows], threshold)
    entropy = kept[f"{row}/entropy"][n, tested]
    np.testing.assert_array_equal(away, entropy >= threshold)
    right = np.asarray(answer) == task.data.test_label[rows]
    share = right[kept["sets"][1, n, tested]].mean()
    found = values(results, "accuracy", row, set="0.8", client=str(n))
    assert found == pytest.approx([share])
    # So are the held-out samples those of their images.
    image = task.data.train_image[task.holdout.rows[n]]
    answer, away = trained.predict(n, image, 0.8)
    entropy, client, server = (x[n] for x in held.values())
    np.testing.assert_array_equal(away, ~(entropy < 0.8))
    np.testing.assert_array_equal(answer, np.where(away, server, client))


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


def test_what_is_kept_is_what_a_loaded_client_embeds(ran, stored):
  config, workdir, results = ran
  kept, trained = stored("embeddings"), splitjax.load(workdir, "splitgp")
  # The toy's blocks are 6 wide.
  assert kept["embedding"].shape == (6, 23, 6)
  assert kept["pool"] == "test" and kept["row"] == GATED[1]
  data = experiment.build(config).data
  np.testing.assert_array_equal(kept["label"], data.test_label[kept["rows"]])
  net = trained.network
  assert kept["depth"].tolist() == list(net.fleet.depths)
  x = standardise(data.test_image[kept["rows"]], net.mean, net.std)
  for n in range(6):
    pair = trained.client(n), trained.server(n)
    embedded = models.embedding(net.backbone, *pair, x)
    np.testing.assert_allclose(kept["embedding"][n], embedded, atol=1e-4)
  for metric in ("silhouette", "distance_ratio"):
    assert selected(results, metric).row.tolist() == [GATED[1]]
    assert results.value(GATED[1], metric) == kept[metric]


# What was measured of it.


def test_metrics_of_ones_own_stand_in_log_curves_and_table(ran):
  _, workdir, results = ran
  *_, last = lines(workdir, "splitgp")
  for key in OWN:
    logged = last["metrics"]["splitgp"][key]
    for name in results.sets:
      clients = values(results, key, "splitgp", set=name, client=True)
      mean = results.value("splitgp", key, name)
      assert mean == pytest.approx(np.nanmean(clients)) and 0 <= mean <= 1
      curve = values(results, key, "splitgp", set=name, round=True)
      assert len(curve) == 2 and curve[-1] == logged[name] == mean


def test_the_answers_are_counted(ran, stored):
  _, _, results = ran
  counts, exits = stored("confusion"), stored("exits")
  for row in GATED:
    table = counts[row]
    right = np.trace(table, axis1=2, axis2=3) / table.sum(axis=(2, 3))
    for r, name in enumerate(results.sets):
      clients = values(results, "accuracy", row, set=name, client=True)
      np.testing.assert_allclose(right[r], clients)
      for n, tested in enumerate(exits["sets"][r]):
        every = np.bincount(exits["label"][n][tested], minlength=10)
        np.testing.assert_array_equal(table[r, n].sum(axis=1), every)


def test_what_is_measured_changes_nothing_else(ran, stored, tmp_path, undrawn):
  _, workdir, _ = ran
  c = draft()
  del c.methods["fedavg"]
  splitjax.run(c, tmp_path)
  bits = (helper.bits(place, "splitgp") for place in (workdir, tmp_path))
  assert next(bits) == next(bits)
  measured, plain = (lines(x, "splitgp") for x in (workdir, tmp_path))
  assert all(line.pop("metrics") for line in measured)
  assert measured == plain
  exits = stored("exits")
  plain = np.load(experiment.folder(tmp_path, "splitgp") / "exits.npz")
  more = set(exits.files) - set(plain.files)
  assert more and more <= {f"{row}/probabilities" for row in GATED}
  for name in plain.files:
    np.testing.assert_array_equal(exits[name], plain[name])
  real = exits["rows"] >= 0
  sure, server = (
    exits[f"splitgp/{x}"][real] for x in ("probabilities", "server")
  )
  np.testing.assert_allclose(sure.sum(axis=-1), 1, rtol=1e-5)
  np.testing.assert_array_equal(sure[:, 1].argmax(-1), server)
  # A saved run gets other metrics.
  changes = {"eval.metrics": ("recall", "ece")}
  again = splitjax.evaluate_again(tmp_path, changes)
  for key in ("recall", "ece"):
    pair = [values(x, key, "splitgp") for x in (again, ran[2])]
    np.testing.assert_allclose(*pair, rtol=1e-6)


def test_the_report_shows_every_rule(ran):
  config, workdir, results = ran
  assert set(selected(results, "accuracy", part=True).row) == set(GATED)
  grid = experiment.build(config).thresholds
  for row in GATED:
    parts = selected(results, "accuracy", row, part=True).part
    assert tuple(dict.fromkeys(parts)) == RULES
    accuracy = {
      name: np.array(values(results, "accuracy", row, part=name))
      for name in RULES
    }
    assert values(results, "accuracy", row) == accuracy["calibrated"].tolist()
    for name in RULES[1:]:
      below = values(results, "below", row, part=name)
      assert below == pytest.approx(accuracy["oracle"] - accuracy[name])
    assert min(values(results, "below", row, part="calibrated")) >= 0
    # One threshold for all clients: 0 asks the server, above log C nobody.
    for r, name in enumerate(results.sets):
      line = selected(results, "accuracy", row, set=name, threshold=True)
      assert line.threshold.tolist() == list(grid)
      assert line.value.max() == values(results, "common", row)[r]
      offload = values(results, "offload", row, set=name, threshold=True)
      assert (offload[0], offload[-1]) == (1, 0)
  *_, last = lines(workdir, "splitgp")
  logged = list(last["accuracy"]["splitgp"].values())
  assert logged == values(results, "accuracy", "splitgp")


@pytest.mark.slow
def test_evaluate_may_change_the_rule_and_not_the_samples(ran, undrawn):
  _, workdir, results = ran
  before = {
    rule: values(results, "accuracy", "splitgp", part=rule) for rule in RULES
  }
  again = splitjax.evaluate_again(workdir, {"eval.threshold_rule": "oracle"})
  for rule, accuracy in before.items():
    assert values(again, "accuracy", "splitgp", part=rule) == accuracy
  assert values(again, "accuracy", "splitgp") == before["oracle"]
  # With a threshold of 9 nothing is offloaded.
  far = {"eval.threshold_rule": "fixed", "eval.threshold": 9.0}
  again = splitjax.evaluate_again(workdir, far)
  device = values(again, "device_only", "splitgp")
  assert values(again, "accuracy", "splitgp") == device
  for share in (0.0, 0.2):
    changed = {"eval.threshold_rule": "oracle", "eval.holdout": share}
    with refused("eval.shift.name, eval.holdout"):
      splitjax.evaluate_again(workdir, changed)
  assert timeless(splitjax.report_again(workdir)) == timeless(results)


# Other runs.


def test_evaluations_before_the_last_may_be_of_less(ran, tmp_path):
  config, _, always = ran
  fewer = dataclasses.replace(config.eval, personal="last", samples=15)
  only = {"fedavg": copy.deepcopy(config.methods["fedavg"])}
  last = dataclasses.replace(config, eval=fewer, methods=only)
  results = splitjax.run(last, tmp_path)
  for name, rounds in zip(WHOLE, ([1, 2], [2], [1, 2]), strict=True):
    curve = selected(results, "accuracy", name, set="0.8", round=True)
    assert curve["round"].tolist() == rounds
    for client in ("", True):
      pair = [
        values(each, "accuracy", name, client=client)
        for each in (results, always)
      ]
      assert pair[0] == pair[1]
  before, _ = lines(tmp_path)
  assert set(before["accuracy"]) == {WHOLE[0], WHOLE[2]}
  assert values(results, "best", WHOLE[0]) and values(always, "best", WHOLE[1])
  for metric in ("best", "best_weighted", "target_rounds"):
    assert not values(results, metric, WHOLE[1])
  notes = " ".join(results.runs[0].notes)
  assert "use at most 15 test samples of each client" in notes
  (first, last), (whole, same) = (
    values(each, "accuracy", "fedavg", set="0.8", round=True)
    for each in (results, always)
  )
  assert first != whole and last == same
  assert (tmp_path / "accuracy_over_cost.png").exists()


@pytest.mark.slow
def test_the_only_row_may_wait_for_the_last_round(tmp_path):
  c = tiny.changed(tiny.tiny(own="fedbabu"), eval__personal="last")
  results = splitjax.run(c, tmp_path)
  curve = selected(results, "accuracy", set="0.8", round=True)
  assert curve["round"].tolist() == [2]
  first, last = lines(tmp_path)
  assert first["accuracy"] == {} and set(last["accuracy"]) == {"own"}


@pytest.mark.slow
def test_several_seeds_give_means_and_intervals(tmp_path):
  c = tiny.tiny(local="local")
  c.eval.metrics = {"calibration": {"name": "ece", "bins": 5}}
  config = tiny.resolved(c)
  results = splitjax.run_seeds(config, tmp_path, [0, 1])
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
    alone = experiment.collect(tmp_path / f"seed{seed}").numbers
    part = results.numbers[results.numbers.seed == seed]
    pd.testing.assert_frame_equal(alone, part.reset_index(drop=True))
  for call in (
    lambda: splitjax.run_seeds(
      dataclasses.replace(config, batch_size=5), tmp_path, [2]
    ),
    lambda: splitjax.run(config, tmp_path),
  ):
    with refused("--workdir"):
      call()
  assert not (tmp_path / "seed2").exists()
  again = splitjax.evaluate_again(tmp_path)
  for metric in ("accuracy", "calibration"):
    assert values(again, metric) == values(results, metric)
