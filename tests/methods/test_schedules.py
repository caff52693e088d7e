"""Schedules, the steps of a round, uniform weights.

Against formulas, loops in NumPy and equalities, in float64.
"""

import functools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import worlds as toys
from repeated import LR, descended, first, gradient, played

from splitjax import evaluation, experiment
from splitjax.data import BatchPlan
from splitjax.methods.optimizer import SCHEDULES, Optimizer

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]


def cosine(t, length):
  return (1 + np.cos(np.pi * min(t / length, 1))) / 2


FACTORS = [
  ({}, lambda t: 1.0),
  ({"schedule": "cosine"}, lambda t: cosine(t, 12)),
  ({"schedule": "exponential", "decay": 0.5}, lambda t: 0.5**t),
  (
    {"schedule": "exponential", "decay": 0.5, "floor": 0.02},
    lambda t: max(0.5**t, 0.2),
  ),
  ({"schedule": "exponential", "floor": 2 * LR}, lambda t: 1.0),
]


@pytest.mark.parametrize(("options", "factor"), FACTORS)
def test_a_schedule_is_its_formula(options, factor):
  optimizer = Optimizer(lr=LR, rounds=12, **options)
  times = [0, 1, 2, 3, 4, 8, 11]
  want = [LR * factor(t) for t in times]
  rate = jax.jit(lambda optimizer, t: optimizer.at(t).lr)
  found = [rate(optimizer, jnp.array(t, float)) for t in times]
  np.testing.assert_allclose(found, want, rtol=0, atol=1e-14)
  found = [float(rate(optimizer, jnp.int32(t))) for t in times]
  np.testing.assert_allclose(found, want, 1e-6, 1e-9)


def test_a_schedule_of_ones_own_gets_the_optimiser(monkeypatch):
  monkeypatch.setitem(
    SCHEDULES, "linear", lambda o: optax.linear_schedule(1.0, 0.0, o.rounds)
  )
  optimizer = Optimizer(lr=LR, rounds=12, schedule="linear")
  found = [optimizer.at(jnp.array(t, float)).lr for t in (0, 3, 6)]
  np.testing.assert_allclose(found, [LR, 0.75 * LR, LR / 2], rtol=1e-12)


def test_the_floor_falls_with_the_servers_rate():
  """0.5^4 of the rates, but at least a fifth of them."""
  options = {"schedule": "exponential", "decay": 0.5, "floor": LR / 5}
  optimizer = Optimizer(lr=LR, server_lr=3 * LR, **options)
  optimizer = optimizer.at(jnp.array(4.0))
  np.testing.assert_allclose(optimizer.lr, LR / 5, rtol=1e-12)
  np.testing.assert_allclose(optimizer.at_server.lr, 3 * LR / 5, rtol=1e-12)


def test_two_rounds_of_fedavg_in_numpy():
  """Five local steps, a schedule, and uniform weights."""
  optimizer = Optimizer(lr=LR, momentum=None, schedule="cosine", rounds=2)
  play = played("fedavg", 2, optimizer=optimizer, steps=5, mean="uniform")
  w = first()
  for state, rate in zip(play.states, (1.0, 0.5), strict=True):

    def slope(net, n, rate=rate):
      return by_hand.scaled(rate, gradient(net, n))

    w = by_hand.averaged(
      [(1, descended(w, n, functools.partial(slope, n=n), 5)) for n in range(4)]
    )
    toys.assert_close(play.networks(state)[0], w, 1e-7)


def test_the_work_of_local_steps_by_hand():
  """Ten samples in batches of 4: 4 + 4 + 2; seven steps are 10 + 10 + 4."""
  plan = BatchPlan(4, 9, (), (), limit=7)
  size = np.array([10, 3, 0])
  steps, samples = plan.of_round(size)
  assert steps.tolist() == [7, 7, 0] and samples.tolist() == [24, 21, 0]
  steps, samples = plan.of_round(size, epochs=2)
  assert steps.tolist() == [6, 2, 0] and samples.tolist() == [20, 6, 0]


def test_costs_and_batches_have_the_local_steps_of_the_config():
  draft = tiny.changed(tiny.tiny(own="fedavg"), local_steps=7, batch_size=8)
  subject = experiment.make_subject(
    experiment.build(tiny.resolved(draft)), "own"
  )
  assert evaluation.whole_round(subject).steps.tolist() == [7] * 6
  (plan,) = subject.plans
  assert (plan.epochs * -(-subject.sizes // plan.batch)).min() >= 7
