"""Scores of runs: threshold rules without test labels, notes on numbers."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import SHIFTS, data, evaluation, experiment
from splitjax.data import partitions
from splitjax.evaluation import End
from splitjax.experiment import Programs


def draft(rule="calibrated", **changes):
  """The tiny run of SplitGP with a +FT row and of FedAvg."""
  c = tiny.tiny(own="splitgp", fedavg="fedavg")
  c.methods["own"].finetune = True
  c.eval.threshold_rule, c.eval.holdout, c.eval.threshold = rule, 0.4, 0.8
  for name, value in changes.items():
    setattr(c.eval, name, value)
  return c


@pytest.mark.slow
def test_no_test_label_is_used():
  task = experiment.build(tiny.resolved(draft()))
  subject = experiment.make_subject(task, "own")
  state = Programs(subject).begin()
  rng = np.random.default_rng(0)
  sets = task.test_sets
  # Other images, other labels, and other labels of the clients' samples.
  garbled = task._replace(
    pool=task.pool[::-1],
    test_sets=sets._replace(label=rng.permuted(sets.label, axis=1)),
    data=task.data._replace(test_label=rng.permutation(task.data.test_label)),
  )
  both = subject, subject._replace(task=garbled)
  evaluated = [Programs(x).evaluate(state) for x in both]
  for row, *outputs in zip(subject.method.rows, *evaluated, strict=True):
    before, after = map(evaluation.scores.score, both, [row] * 2, outputs)
    limits, again = (x.rules["calibrated"].threshold for x in (before, after))
    assert limits.shape == (len(sets.names), 6)
    np.testing.assert_array_equal(limits, again)
    assert (before.chosen.accuracy != after.chosen.accuracy).any()


def test_held_out_samples_need_not_fill_their_chunks():
  """Eight of each client and eight proxies, in four chunks of 5 or in one."""
  outputs = []
  for size in (5, 100):
    task = experiment.build(tiny.resolved(draft(batch_size=size)))
    programs = Programs(experiment.make_subject(task, "own"))
    outputs += programs.evaluate(programs.begin(), programs.method.rows[:1])
  parts, whole = outputs
  assert parts.holdout.entropy.shape == (6, 8)
  for name in ("holdout", "proxy"):
    pair = getattr(parts, name), getattr(whole, name)
    chex.assert_trees_all_close(*pair, rtol=1e-6)


@pytest.mark.slow
def test_held_out_samples_are_not_trained_on():
  config = tiny.resolved(draft())
  task = experiment.build(config)
  whole = experiment.build(tiny.resolved(draft(holdout=0.0, rule="oracle")))
  assert whole.holdout is None and whole.calibration is None
  subject = experiment.make_subject(task, "own")
  for cohort, shard in zip(subject.fleet.cohorts, subject.shards, strict=True):
    for n, rows, size in zip(cohort.ids, shard.rows, shard.size, strict=True):
      trained = np.asarray(rows)[: int(size)]  # what zeta_n is made of
      both = np.concatenate([trained, task.test_sets.validation[n]])
      assert len(trained) == 12 and len(both) == 20
      np.testing.assert_array_equal(np.sort(both), whole.test_sets.parts[n])
  # By draws of their own, not those of test sets (data.SPLIT).
  split = functools.partial(data.client_split, whole.test_sets.parts, 0)
  hold, local = (
    split((0.6, 0.4), stream=stream)[1]
    for stream in (partitions.HOLD, partitions.SPLIT)
  )
  np.testing.assert_array_equal(task.test_sets.validation, hold)
  assert not np.array_equal(hold, local)
  rows = np.concatenate(task.test_sets.parts)
  pixels = task.data.train_image[rows].astype(float)
  assert task.network.mean == pytest.approx([pixels.mean()])
  assert task.facts["partition"] != whole.facts["partition"]


def test_out_of_client_has_samples_to_choose_on():
  c = draft(holdout=0.0, rhos=None)
  c.eval.shift = splitjax.spec(SHIFTS, "out_of_client")
  task = experiment.build(tiny.resolved(c))
  test = set(task.test_sets.rows[task.test_sets.rows >= 0].tolist())
  learnt = set(np.concatenate(task.test_sets.parts).tolist())
  back = set(task.holdout.rows[task.holdout.rows >= 0].tolist())
  assert len(back) == 24 and not back & (test | learnt)
  c.eval.holdout = 0.4
  with refused("eval.holdout"):
    tiny.resolved(c)
  with refused("eval.threshold_rule"):
    tiny.resolved(draft("fixed", threshold=None))
  with refused("eval.threshold_rule"):
    tiny.resolved(draft(holdout=0.0))
  with refused("eval.holdout"):
    tiny.resolved(draft(holdout=1.0))


def test_held_out_samples_are_arranged_by_client():
  parts = [np.arange(0, 5), np.arange(20, 22)]
  classes = np.arange(30) % 3
  table = data.holdout(classes, parts, 3)
  np.testing.assert_array_equal(table.rows[1], [20, 21, -1, -1, -1])
  want = classes[np.concatenate(parts)]
  np.testing.assert_array_equal(table.label[table.rows >= 0], want)
  # Draws do not depend on the other clients.
  alone = data.holdout(classes, parts[:1], 3)
  np.testing.assert_array_equal(alone.draw[0], table.draw[0])


def test_answers_that_are_not_finite_and_idle_clients_are_noted():
  task = experiment.build(tiny.resolved(own="fedper"))
  subject = experiment.make_subject(task, "own")
  programs = Programs(subject)
  state = programs.begin()

  def end(state, took_part):
    outputs = zip(subject.method.rows, programs.evaluate(state), strict=True)
    return End(
      subject=subject,
      scores=[evaluation.scores.score(subject, *x) for x in outputs],
      state=state,
      personal=(),
      lines=(),
      totals={"steps": 4.0 * took_part, "bytes": 100.0 * took_part},
    )

  assert not evaluation.scores.on_end(end(state, np.ones(6))).notes
  spoilt = np.isin(range(6), (1, 4))

  def spoil(x):
    return jnp.where(spoilt.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x)

  state = state._replace(clients=jax.tree.map(spoil, state.clients))
  found = end(state, np.arange(6) > 0)
  lost, idle = evaluation.scores.on_end(found).notes
  counted = found.scores[0].counted
  assert "own: the outputs of 2 clients (1, 4) are not finite" in lost
  assert f"{counted[spoilt].sum()} of {counted.sum()} test" in lost
  assert "1 client (0) never took part" in idle


def test_samples_of_the_clients_own_classes_and_others_by_hand():
  subject = experiment.make_subject(
    experiment.build(tiny.resolved(own="fedper")), "own"
  )
  programs = Programs(subject)
  state = programs.begin()
  (outputs,) = programs.evaluate(state)
  (row,) = subject.method.rows
  scores = evaluation.scores.score(subject, row, outputs)
  end = End(
    subject=subject, scores=[scores], state=state, personal=(), lines=(),
    totals={"steps": np.ones(6), "bytes": np.ones(6)},
  )  # fmt: skip
  found = {
    (x.metric, x.set): x.value
    for x in evaluation.scores.on_end(end).numbers
    if not x.client and not x.label
  }
  right = np.asarray(scores.outputs.test.client) == scores.sets.label
  inside = scores.sets.known
  first, last = scores.sets.names
  assert found["id", first] == found["accuracy", first]
  assert np.isnan(found["ood", first])  # rho is 0
  for part, samples in (("id", inside), ("ood", ~inside)):
    samples = scores.sets.sets[-1] & samples
    shares = [x[on].mean() for x, on in zip(right, samples, strict=True)]
    assert found[part, last] == pytest.approx(np.mean(shares))
