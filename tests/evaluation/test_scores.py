"""Scores of runs: threshold rules without test labels, notes on numbers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from splitjax import METRICS, data, evaluation
from splitjax.data import partitions
from splitjax.evaluation import End, Exits, Outputs
from splitjax.experiment import Programs

CALIBRATED = {
  "eval__threshold_rule": "calibrated",
  "eval__holdout": 0.4,
  "methods__own__finetune": True,
}


@pytest.mark.slow
def test_no_test_label_is_used():
  subject = tiny.subject("splitgp", **CALIBRATED)
  task, state = subject.task, Programs(subject).begin()
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
    made = tiny.subject("splitgp", **CALIBRATED, eval__batch_size=size)
    programs = Programs(made)
    outputs += programs.evaluate(programs.begin(), programs.method.rows[:1])
  parts, whole = outputs
  assert parts.holdout.entropy.shape == (6, 8)
  for name in ("holdout", "proxy"):
    pair = getattr(parts, name), getattr(whole, name)
    chex.assert_trees_all_close(*pair, rtol=1e-6)


def test_held_out_samples_are_not_trained_on():
  """Drawn by draws of their own, not those of test sets (data.SPLIT)."""
  parts = tiny.subject("splitgp").task.test_sets.parts
  sets = tiny.subject("splitgp", **CALIBRATED).task.test_sets
  for stream in (partitions.HOLD, partitions.SPLIT):
    pieces = data.client_split(parts, 0, (0.6, 0.4), stream=stream)
    same = [
      np.array_equal(*pair)
      for found, piece in zip(
        (sets.parts, sets.validation), pieces, strict=True
      )
      for pair in zip(found, piece, strict=True)
    ]
    assert all(same) if stream == partitions.HOLD else not any(same)
  # A shift that holds samples out by itself has some to choose on.
  fields = {"eval__shift": "out_of_client", "eval__rhos": None}
  rule = {"eval__threshold_rule": "calibrated"}
  task = tiny.subject("splitgp", **fields, **rule).task
  test = set(task.test_sets.rows[task.test_sets.rows >= 0].tolist())
  learnt = set(np.concatenate(task.test_sets.parts).tolist())
  back = set(task.holdout.rows[task.holdout.rows >= 0].tolist())
  assert len(back) == 24 and not back & (test | learnt)


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


@pytest.mark.parametrize("rule", ["oracle", "fixed"])
def test_classes_and_metrics_are_of_the_rule_s_thresholds(rule, monkeypatch):
  """Of the set's own, which the oracle chooses for each set apart."""
  monkeypatch.setitem(
    METRICS, "right", lambda labels, answers: np.mean(labels == answers)
  )
  fields = {"eval__threshold_rule": rule, "eval__threshold": 1.0}
  subject = tiny.subject("splitgp", **fields, eval__metrics="right")
  shape = subject.task.test_sets.rows.shape
  rng = np.random.default_rng(0)
  entropy = rng.uniform(0, 2.3, shape).astype(np.float32)
  exits = Exits(entropy, entropy, *rng.integers(0, 10, (2, *shape)))
  (row,) = subject.method.rows
  found = evaluation.scores.score(subject, row, Outputs(exits))
  right = np.trace(found.answers, axis1=1, axis2=2)
  share = right / found.counted.sum(axis=1)
  np.testing.assert_allclose(share, found.chosen.accuracy[-1])
  np.testing.assert_allclose(found.extra["right"], found.chosen.accuracy)


def evaluated(subject, state, took_part=(1,) * 6):
  """The end of a method that stands so, of whose clients some took part."""
  outputs = zip(
    subject.method.rows, Programs(subject).evaluate(state), strict=True
  )
  return End(
    subject=subject,
    scores=[evaluation.scores.score(subject, *x) for x in outputs],
    state=state,
    personal=(),
    lines=(),
    totals={
      "steps": np.multiply(4.0, took_part),
      "bytes": np.multiply(100.0, took_part),
    },
  )


def test_answers_that_are_not_finite_and_idle_clients_are_noted():
  subject = tiny.subject("fedper")
  state = Programs(subject).begin()
  assert not evaluation.scores.on_end(evaluated(subject, state)).notes
  spoilt = np.isin(range(6), (1, 4))

  def spoil(x):
    return jnp.where(spoilt.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x)

  state = state._replace(clients=jax.tree.map(spoil, state.clients))
  end = evaluated(subject, state, np.arange(6) > 0)
  lost, idle = evaluation.scores.on_end(end).notes
  counted = end.scores[0].counted
  assert "own: outputs of clients 1, 4 are not finite" in lost
  assert f"{counted[spoilt].sum()} of {counted.sum()} test" in lost
  assert "clients 0 never took part" in idle


def test_samples_of_the_clients_own_classes_and_others_by_hand():
  subject = tiny.subject("fedper")
  end = evaluated(subject, Programs(subject).begin())
  (scores,) = end.scores
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
