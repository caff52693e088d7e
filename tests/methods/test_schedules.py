"""Schedules, the steps of a round, uniform weights.

Against formulas, loops in NumPy and equalities, in float64.
"""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy_world as toys
from refusals import refused
from repeated import LR, first, gradient, minus, played

from splitjax import SCHEDULES, experiment, methods
from splitjax.data import BatchPlan

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]


def cosine(t, length):
  return (1 + np.cos(np.pi * min(t / length, 1))) / 2


FACTORS = [
  ({}, lambda t: 1.0),
  ({"schedule": "cosine"}, lambda t: cosine(t, 12)),
  ({"schedule": "exponential", "decay": 0.5}, lambda t: 0.5**t),
  (
    {"schedule": "exponential", "decay": 0.5, "every": 3, "floor": 0.02},
    lambda t: max(0.5 ** (t / 3), 0.2),
  ),
  ({"schedule": "exponential", "floor": 2 * LR}, lambda t: 1.0),
  ({"schedule": "exponential", "decay": 1.0}, lambda t: 1.0),
  (
    {"schedule": "step", "decay": 0.1, "every": 4},
    lambda t: 0.1 ** (t // 4),
  ),
  ({"schedule": "inverse", "offset": 4.0}, lambda t: 4 / (4 + t)),
  ({"warmup": 3.0}, lambda t: min((1 + t) / 4, 1.0)),
  (
    {"schedule": "cosine", "warmup": 2.5},
    lambda t: (1 + t) / 3.5 if t < 2.5 else cosine(t - 2.5, 9.5),
  ),
  (
    {"schedule": "step", "decay": 0.5, "every": 2, "warmup": 1.0},
    lambda t: (1 + t) / 2 if t < 1 else 0.5 ** ((t - 1) // 2),
  ),
]


@pytest.mark.parametrize(("options", "factor"), FACTORS)
def test_a_schedule_is_its_formula(options, factor):
  made = methods.make_optimizer("sgd", LR, rounds=12, **options)
  times = [0, 1, 2, 3, 4, 8, 11]
  want = [factor(t) for t in times]
  found = jax.jit(made.rate)(jnp.array(times, float))
  np.testing.assert_allclose(found, want, rtol=0, atol=1e-14)
  each = [float(made.rate(jnp.int32(t))) for t in (0, 5, 11)]
  np.testing.assert_allclose(each, [factor(t) for t in (0, 5, 11)], 1e-6)


def test_two_rounds_of_fedavg_in_numpy():
  """Five local steps, a schedule, and uniform weights."""
  made = methods.make_optimizer("sgd", LR, 0.0, schedule="cosine", rounds=2)
  uniform = methods.with_uniform_weights
  world, states, *_ = played("fedavg", 2, uniform, optimizer=made, steps=5)
  w = first()
  for r in range(2):
    trained = []
    for n in range(4):
      net = w
      for _ in range(5):
        net = minus(net, gradient(net, n), LR * cosine(r, 2))
      trained.append((1, net))
    w = by_hand.averaged(trained)
  for n in range(4):
    found = by_hand.arrays(world.client(states[-1], n).params)
    toys.assert_close(found, w, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "depths"),
  [("splitfed_v1", (1, 1, 2, 2)), ("scaffold", (4,) * 4)],
)
def test_uniform_weights_are_those_of_the_option_mean(name, depths):
  uniform = methods.with_uniform_weights
  how = {"depths": depths, "few": 3}
  _, one, *_ = played(name, 2, mean="uniform", **how)
  _, two, *_ = played(name, 2, uniform, mean="size", **how)
  toys.assert_close(one[-1], two[-1], 1e-12)


def test_the_work_of_local_steps_by_hand():
  """Ten samples in batches of 4: 4 + 4 + 2; seven steps are 10 + 10 + 4."""
  plan = BatchPlan(4, 9, 3, False, (), (), limit=7)
  size = np.array([10, 3, 0])
  steps, samples = plan.of_round(size)
  assert steps.tolist() == [7, 7, 0] and samples.tolist() == [24, 21, 0]
  steps, samples = plan.of_round(size, epochs=2)
  assert steps.tolist() == [6, 2, 0] and samples.tolist() == [20, 6, 0]


@pytest.mark.parametrize(
  ("field", "value"),
  [("warmup", 2.0), ("every", 0), ("floor", 9.0), ("schedule", "cos")],
)
def test_what_does_not_fit_is_one_line(field, value):
  draft = tiny.tiny(own="fedavg")
  draft.optimizer[field] = value
  with refused(f"optimizer.{field}"):
    experiment.build(tiny.resolved(draft))


def test_numbers_of_schedules_are_arguments_of_a_program():
  """A warm-up, a decay or an offset that is swept compiles nothing anew."""
  values = dict(warmup=1.5, decay=0.9, offset=2.0, floor=0.01, lr=0.1)

  def text(schedule, values):
    def factor(arrays, time):
      given = methods.numbers(values, arrays)
      made = methods.make_optimizer("sgd", **given, schedule=schedule, rounds=4)
      return made.rate(time)

    return jax.jit(factor).lower(dict(values), 0.5).as_text()

  other = {k: 1.1 * x for k, x in values.items()}
  for schedule in SCHEDULES:
    assert text(schedule, values) == text(schedule, other), schedule


def test_costs_and_batches_have_the_local_steps_of_the_config():
  draft = tiny.changed(tiny.tiny(own="fedavg"), local_steps=7, batch_size=8)
  setup = experiment.make_setup(experiment.build(tiny.resolved(draft)), "own")
  assert experiment.whole_round(setup).steps.tolist() == [7] * 6
  (plan,) = setup.plans
  assert (plan.epochs * -(-setup.sizes // plan.batch)).min() >= 7
