"""Runs with thresholds that are chosen without test labels."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
from refusals import refused
from selected import selected, timeless, values

import splitjax
from splitjax import SHIFTS, UserError, evaluation, experiment
from splitjax.experiment import Trainer

pytestmark = pytest.mark.slow
RULES = ("oracle", "calibrated", "fixed")


def draft(rule="calibrated", **changes):
  """The tiny run of SplitGP with a +FT row and of FedAvg."""
  c = tiny.tiny(own="splitgp", fedavg="fedavg")
  c.methods["own"].finetune = True
  c.eval.threshold_rule, c.eval.holdout, c.eval.threshold = rule, 0.4, 0.8
  for name, value in changes.items():
    setattr(c.eval, name, value)
  return c


@pytest.fixture(name="ran", scope="module")
def run_it(tmp_path_factory):
  config = tiny.resolved(draft())
  workdir = tmp_path_factory.mktemp("run") / "w"
  return config, workdir, splitjax.run(config, workdir)


def other(config, **changes):
  return dataclasses.replace(
    config, eval=dataclasses.replace(config.eval, **changes)
  )


def test_the_report_shows_every_rule(ran):
  _, workdir, results = ran
  gated = ["own", "own+FT"]
  assert set(selected(results, "accuracy", part=True).row) == set(gated)
  for row in gated:
    parts = selected(results, "accuracy", row, part=True).part
    assert tuple(dict.fromkeys(parts)) == RULES
    oracle, calibrated, fixed = (
      np.array(values(results, "accuracy", row, part=name)) for name in RULES
    )
    assert values(results, "accuracy", row) == calibrated.tolist()
    for name, accuracy in (("calibrated", calibrated), ("fixed", fixed)):
      below = values(results, "below", row, part=name)
      assert below == pytest.approx(oracle - accuracy)
    assert min(values(results, "below", row, part="calibrated")) >= 0
    alone = (
      values(results, metric, row) for metric in ("device_only", "server_only")
    )
    base = np.maximum(*alone)
    for r, kept in enumerate(values(results, "kept", row, part="fixed")):
      gain = oracle[r] - base[r]
      if gain < 0.001:
        assert np.isnan(kept)
      else:
        assert kept == pytest.approx((fixed[r] - base[r]) / gain)
  log = (workdir / "metrics.jsonl").read_text().splitlines()
  last = json.loads(log[1])["accuracy"]["own"]
  assert list(last.values()) == values(results, "accuracy", "own")


def test_one_threshold_for_all_clients(ran):
  config, _, results = ran
  grid = experiment.build(config).thresholds
  for row in ("own", "own+FT"):
    for r, name in enumerate(results.sets):
      line = selected(results, "accuracy", row, set=name, threshold=True)
      assert line.threshold.tolist() == list(grid)
      assert line.value.max() == values(results, "common", row)[r]
      # At 0 the server answers everything, above log C the clients do.
      offload = values(results, "offload", row, set=name, threshold=True)
      assert (offload[0], offload[-1]) == (1, 0)
  assert not values(results, "common", "fedavg")


def test_thresholds_are_of_the_client_whatever_the_test_set(ran):
  config, workdir, _ = ran
  trained = splitjax.load(workdir, "own")
  one, two = trained.thresholds.values()
  assert one == two and set(one) <= set(experiment.build(config).thresholds)
  assert splitjax.load(workdir, "fedavg").thresholds is None


def test_no_test_label_is_used(ran):
  config, _, _ = ran
  task = experiment.build(config)
  setup = experiment.make_setup(task, "own")
  state = Trainer(setup).init(experiment.fresh_network(task))
  rng = np.random.default_rng(0)
  test_sets, data = task.test_sets, task.data
  # Other images, other labels, and other labels of the clients' samples.
  garbled = task._replace(
    pool=task.pool[::-1],
    test_sets=test_sets._replace(label=rng.permuted(test_sets.label, axis=1)),
    data=data._replace(test_label=rng.permutation(data.test_label)),
  )
  found = [
    evaluation.limits_of(setup._replace(task=each).subject, seen)
    for each in (task, garbled)
    for seen in Trainer(setup._replace(task=each)).evaluate(state)
  ]
  assert len(found) == 4
  for a, b in zip(found[:2], found[2:], strict=True):
    np.testing.assert_array_equal(a["calibrated"], b["calibrated"])
    assert a["calibrated"].shape == (6,)
  one, two = (
    evaluation.scores.score(
      setup._replace(task=each).subject,
      setup.method.rows[0],
      Trainer(setup._replace(task=each)).evaluate(state)[0],
    ).chosen.accuracy
    for each in (task, garbled)
  )
  assert (one != two).any()


def test_held_out_samples_are_not_trained_on(ran):
  config, _, _ = ran
  task, whole = (
    experiment.build(config),
    experiment.build(other(config, holdout=0.0, threshold_rule="oracle")),
  )
  assert whole.held is None and whole.aside is None
  setup = experiment.make_setup(task, "own")
  for cohort, shard in zip(setup.fleet.cohorts, setup.shards, strict=True):
    for n, rows, size in zip(cohort.ids, shard.rows, shard.size, strict=True):
      learnt = set(np.asarray(rows)[: int(size)].tolist())
      back = set(task.held.rows[n, task.held.real[n]].tolist())
      assert len(learnt) == 12 and len(back) == 8 and not learnt & back
      assert learnt | back == set(whole.test_sets.parts[n].tolist())
      assert int(size) == 12  # what zeta_n is made of
  rows = np.concatenate(task.test_sets.parts)
  pixels = task.data.train_image[rows].astype(float)
  assert task.network.mean == pytest.approx([pixels.mean()])
  assert task.facts["partition"] != whole.facts["partition"]


def test_held_out_outputs_are_those_of_their_images(ran):
  config, workdir, _ = ran
  task = experiment.build(config)
  kept = np.load(workdir / "methods" / "own" / "exits.npz")
  trained = splitjax.load(workdir, "own")
  np.testing.assert_array_equal(kept["held/rows"], task.held.rows)
  for n in range(6):
    image = task.data.train_image[task.held.rows[n]]
    answer, away = trained.predict(n, image, 0.8)
    entropy = kept["own+FT/holdout/entropy"][n]
    np.testing.assert_array_equal(away, ~(entropy < 0.8))
    parts = kept["own+FT/holdout/client"][n], kept["own+FT/holdout/server"][n]
    np.testing.assert_array_equal(answer, np.where(away, *parts[::-1]))
  assert (kept["own+FT/proxy/entropy"] != kept["own+FT/holdout/entropy"]).any()


def test_evaluate_may_change_the_rule_and_not_the_samples(ran):
  config, workdir, results = ran
  before = {
    rule: values(results, "accuracy", "own", part=rule) for rule in RULES
  }
  plain = other(config, threshold_rule="oracle")
  found = splitjax.evaluate_again(workdir, plain)
  for rule, accuracy in before.items():
    assert values(found, "accuracy", "own", part=rule) == accuracy
  assert values(found, "accuracy", "own") == before["oracle"]
  # With a threshold of 9 nothing is offloaded.
  far = other(config, threshold_rule="fixed", threshold=9.0)
  found = splitjax.evaluate_again(workdir, far)
  device = values(found, "device_only", "own")
  assert values(found, "accuracy", "own") == device
  assert values(found, "accuracy", "own", part="oracle") == before["oracle"]
  for share in (0.0, 0.2):
    changed = other(config, holdout=share, threshold_rule="oracle")
    with pytest.raises(UserError, match=f"eval.holdout={share}: the run was"):
      splitjax.evaluate_again(workdir, changed)
  assert timeless(splitjax.report_again(workdir)) == timeless(results)


def test_out_of_client_has_samples_to_choose_on():
  c = draft(holdout=0.0, rhos=None)
  c.eval.shift = splitjax.spec(SHIFTS, "out_of_client")
  task = experiment.build(tiny.resolved(c))
  test = set(task.test_sets.rows[task.test_sets.rows >= 0].tolist())
  learnt = set(np.concatenate(task.test_sets.parts).tolist())
  back = set(task.held.rows[task.held.real].tolist())
  assert len(back) == 24 and not back & (test | learnt)
  c.eval.threshold_rule = "oracle"
  assert experiment.build(tiny.resolved(c)).held is None


@pytest.mark.parametrize(
  ("changes", "field"),
  [
    ({"rule": "fixed", "threshold": None}, "eval.threshold_rule"),
    ({"holdout": 1.0}, "eval.holdout"),
    ({"holdout": 0.0}, "eval.threshold_rule"),
  ],
)
def test_an_invalid_rule_is_one_line(changes, field):
  with refused(field):
    tiny.resolved(draft(**changes))


def test_out_of_client_wants_no_holdout():
  c = draft(rhos=None)
  c.eval.shift = splitjax.spec(SHIFTS, "out_of_client")
  with refused("eval.holdout"):
    tiny.resolved(c)
