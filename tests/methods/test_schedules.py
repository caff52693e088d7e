"""Schedules, the steps of a round, decay without biases, uniform weights.

Against formulas, loops in NumPy and equalities, in float64.
"""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy_world as toys
from engine import with_step
from marks import slow
from repeated import LR, first, gradient, minus, played

from splitjax import SCHEDULES, UserError
from splitjax.data.feed import BatchPlan
from splitjax.engine import fleets
from splitjax.engine.topologies import topology_of
from splitjax.experiment.measure import costs
from splitjax.experiment.setup import tasks, training_setup
from splitjax.methods import (
  METHODS,
  hyper,
  mean_optimizer,
  optimizers,
  sandbox,
)
from splitjax.models.mlp import toy
from splitjax.types import Half

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
  made = optimizers.make("sgd", LR, rounds=12, **options)
  times = [0, 1, 2, 3, 2.25, 4, 7.5, 8, 11, 11.75]
  want = [factor(t) for t in times]
  found = jax.jit(made.rate)(jnp.array(times, float))
  np.testing.assert_allclose(found, want, rtol=0, atol=1e-14)
  each = [float(made.rate(jnp.int32(t))) for t in (0, 5, 11)]
  np.testing.assert_allclose(each, [factor(t) for t in (0, 5, 11)], 1e-6)


def test_two_rounds_of_fedavg_in_numpy():
  """Five local steps, a schedule that falls by steps, and uniform weights."""
  made = optimizers.make(
    "sgd", LR, 0.0, schedule="cosine", schedule_per="step", rounds=2
  )
  uniform = mean_optimizer.with_uniform_weights
  world, states, *_ = played("fedavg", 2, uniform, optimizer=made, steps=5)
  w = first()
  for r in range(2):
    trained = []
    for n in range(4):
      net = w
      for i in range(5):
        net = minus(net, gradient(net, n), LR * cosine(r + i / 5, 2))
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
  uniform = mean_optimizer.with_uniform_weights
  how = {"depths": depths, "few": 3}
  _, one, *_ = played(name, 2, mean="uniform", **how)
  _, two, *_ = played(name, 2, uniform, mean="size", **how)
  toys.assert_close(one[-1], two[-1], 1e-12)


@pytest.mark.parametrize(
  ("name", "steps"),
  [
    ("splitfed_v2", 4),
    *slow(("splitfed_v1", None), ("splitnn", 4), ("merge_sfl", None)),
  ],
)
def test_rates_follow_the_steps_in_every_topology(name, steps, monkeypatch):
  """A client's own steps; what clients share, the turns at the server."""
  monkeypatch.setitem(SCHEDULES, "falls", lambda s: lambda t: 1 - t / s.length)
  made = optimizers.make(
    "sgd", LR, schedule="falls", schedule_per="step", rounds=2,
    server_schedule="inverse",
  )  # fmt: skip
  net = toy(sandbox.SHAPE, sandbox.CLASSES, depths=(1,), length=3)
  method = METHODS[name](net, made)
  topology = topology_of(method.traits)

  def told(client, server, batches, key):
    real = batches[0].real.any(axis=-1)
    rates = {"near": client.opt.rate, "far": server.opt.rate + 0 * real}
    ledger = {"up/labels": 0.0 * client.opt.rate}
    return client, server, rates, ledger

  fleet = fleets.assign_depths(len(sandbox.SIZES), net.cuts, 0)
  made = sandbox.build(with_step(method, told), net, fleet, steps=steps)
  step, state = made.round(), made.state()
  metrics = [(one := step(state, made.shards))[1]]
  metrics.append(step(one[0], made.shards)[1])

  (plan,), (shard,) = made.plans, made.shards
  count, _ = plan.of_round(np.array(sandbox.SIZES), plan.batch)
  own = [np.arange(c) / c for c in count]
  common = own
  if topology.in_turn:
    order = np.asarray(shard.service_order[:, 0])
    common = [row[row >= 0] / count.sum() for row in order]
  elif topology.all_at_once:
    common = [np.arange(c) / max(count) for c in count]
  near = common if topology.hands_on else own
  for r in range(2):
    losses = metrics[r].losses
    want = np.mean([np.mean(1 - (r + t) / 2) for t in near])
    np.testing.assert_allclose(losses["near"], want, rtol=1e-12)
    want = np.mean([np.mean(1 / (1 + r + t)) for t in common])
    np.testing.assert_allclose(losses["far"], want, rtol=1e-12)


def test_biases_and_norms_do_not_decay(name="adamw"):
  """Without gradients, weights alone move; optax's mask is by hand here."""
  net = toys.network((1,), True)
  full = toys.fresh(net)
  ends = []
  for spared in (True, False):
    made = optimizers.make(name, LR, 0.5, 0.1, decay_biases=not spared)
    zeros = jax.tree.map(jnp.zeros_like, full.params)

    def step(half, made=made, zeros=zeros):
      half = optimizers.begin_round(half, made, jnp.int32(0))
      return optimizers.descend(half, zeros, {}, made).segment.params

    ends.append(jax.jit(step)(Half(full)))
  paths = jax.tree_util.tree_leaves_with_path(full.params)
  assert {path[-1].key for path, _ in paths} == {"kernel", "bias", "scale"}
  leaves = map(jax.tree.leaves, ends)
  for (path, old), new, every in zip(paths, *leaves, strict=True):
    assert np.abs(np.asarray(every) - old).max() > 0
    want = every if path[-1].key == "kernel" else old
    np.testing.assert_array_equal(new, want)


def test_a_bias_of_two_dimensions_does_not_decay():
  """As those of attention have, [heads, width]."""
  params = {"query": {"kernel": np.ones((2, 3, 4)), "bias": np.ones((3, 4))}}
  tx = optimizers.make("sgd", 1.0, 0.0, 0.5, decay_biases=False).tx
  zeros = jax.tree.map(jnp.zeros_like, params)
  step, _ = tx.update(zeros, tx.init(params), params)
  assert (step["query"]["kernel"] == -0.5).all()
  assert (step["query"]["bias"] == 0).all()


def test_the_work_of_local_steps_by_hand():
  """Ten samples in batches of 4: 4 + 4 + 2; seven steps are 10 + 10 + 4."""
  plan = BatchPlan(4, 9, 3, False, (), (), limit=7)
  size = np.array([10, 3, 0])
  steps, samples = plan.of_round(size, 4)
  assert steps.tolist() == [7, 7, 0] and samples.tolist() == [24, 21, 0]
  steps, samples = plan.of_round(size, 4, epochs=2)
  assert steps.tolist() == [6, 2, 0] and samples.tolist() == [20, 6, 0]


@pytest.mark.parametrize(
  ("method", "changes", "said"),
  [
    (
      "fedavg",
      {"local_steps": 3, "local_epochs": 2},
      "replaces local_epochs=2",
    ),
    (
      "fedavg",
      {"optimizer__warmup": 2.0},
      "warmup=2 must be below the rounds=2",
    ),
    ("fedavg", {"optimizer__every": 0}, "optimizer.every=0 must be at least 1"),
    ("fedavg", {"optimizer__decay_biases": False}, "weight_decay is 0"),
    ("fedavg", {"optimizer__floor": 9.0}, "optimizer.floor=9 must be at most"),
    ("fedavg", {"optimizer__schedule": "cos"}, "did you mean 'cosine'"),
    (
      "fedavg",
      {"mean_optimizer__schedule": "cosine"},
      "schedule='cosine' needs mean_optimizer.name",
    ),
    (
      "fedavg",
      {"optimizer__server_schedule": "cosine"},
      "none of own trains a network at the server",
    ),
    ("dfl", {"optimizer__server_schedule": "cosine"}, "have one schedule"),
    ("splitnn", {"mean_weights": "uniform"}, "none of own makes a mean"),
  ],
)
def test_what_does_not_fit_is_one_line(method, changes, said):
  draft = tiny.changed(tiny.tiny(own=method), **changes)
  with pytest.raises(UserError, match=said) as caught:
    tasks.build(tiny.resolved(draft))
  assert "\n" not in str(caught.value)


def test_a_wrong_entry_of_SCHEDULES_is_one_line(monkeypatch):
  for entry, said in (
    (lambda s: lambda t: -t, "no number from 0 on"),
    (lambda: None, "takes 0 positional arguments"),
  ):
    monkeypatch.setitem(SCHEDULES, "mine", entry)
    with pytest.raises(UserError, match=f"optimizer.schedule='mine'.*{said}"):
      optimizers.make("sgd", 0.1, schedule="mine", rounds=4)


def test_numbers_of_schedules_are_arguments_of_a_program():
  """A warm-up, a decay or an offset that is swept compiles nothing anew."""
  values = dict(warmup=1.5, decay=0.9, offset=2.0, floor=0.01, lr=0.1)

  def text(schedule, values):
    def factor(arrays, time):
      given = hyper.numbers(values, arrays)
      made = optimizers.make("sgd", **given, schedule=schedule, rounds=4)
      return made.rate(time)

    return jax.jit(factor).lower(dict(values), 0.5).as_text()

  other = {k: 1.1 * x for k, x in values.items()}
  for schedule in SCHEDULES:
    assert text(schedule, values) == text(schedule, other), schedule


def test_costs_and_batches_have_the_local_steps_of_the_config():
  draft = tiny.changed(tiny.tiny(own="fedavg"), local_steps=7, batch_size=8)
  setup = training_setup.make_setup(tasks.build(tiny.resolved(draft)), "own")
  assert costs.whole_round(setup).steps.tolist() == [7] * 6
  (plan,) = setup.plans
  assert (plan.epochs * -(-setup.sizes // plan.batch)).min() >= 7
