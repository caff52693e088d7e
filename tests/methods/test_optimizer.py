"""Optimisers of steps and of means, their rates, clipping, work.

Against optax, formulas and loops in NumPy, in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import worlds as toys
from refusals import refused
from worlds import distance, same_bits

from splitjax import trees
from splitjax.data import BatchPlan
from splitjax.methods import METHODS, Share, shares_of
from splitjax.methods.optimizer import OPTIMIZERS, SCHEDULES, Optimizer, Outer
from splitjax.types import NO_BLOCKS, Net, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET, LR = toys.network((1, 2)), 0.1
PLAIN = Optimizer(lr=LR, momentum=None)
DECAY = 0.1
OPTAX = {
  "sgd": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.sgd(LR, momentum=0.8)
  ),
  "adam": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.adam(LR, b1=0.8)
  ),
  # A rule of one's own gets the momentum.
  "lion": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.scale_by_lion(0.8), optax.scale(-LR)
  ),
}


def grads_of(params, step):
  rng = np.random.default_rng(step)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)


@pytest.mark.parametrize(
  ("name", "decay"), [("sgd", None), *((name, DECAY) for name in OPTAX)]
)
def test_blocks_move_as_the_whole_tree_does(name, decay, monkeypatch):
  monkeypatch.setitem(OPTIMIZERS, "lion", lambda b: optax.scale_by_lion(b))
  optimizer = Optimizer(lr=LR, momentum=0.8, weight_decay=decay, name=name)
  full = toys.fresh(NET, 0)
  half = optimizer.start(full)
  tx, params = OPTAX[name](decay or 0.0), full.params
  state = tx.init(params)
  for step in range(4):
    grads = grads_of(params, step)
    half = optimizer.step(half, grads, {})
    moved, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, moved)
  toys.assert_close(half.net.params, params, 1e-12)


def test_a_block_that_is_not_passed_keeps_its_moments():
  optimizer, full = Optimizer(lr=LR, name="adam"), toys.fresh(NET, 0)
  half = optimizer.start(full, copied=True)
  passed = {name: jnp.bool_(name != "block2") for name in full.params}
  after = optimizer.step(half, grads_of(full.params, 0), {}, passed)
  for name in full.params:
    stays = distance(after.net.params[name], full.params[name]) == 0
    assert stays == (name == "block2")
    assert after.slots[name][0].count == (name != "block2")
    assert after.touched.params[name] == (name != "block2")
  assert not any(after.touched.stats.values())


def test_one_program_serves_all_numbers_of_an_optimiser():
  """Learning rates, momentum, weight decay and clip are its arguments."""

  @jax.jit
  def trained(optimizer, full):
    optimizer, grads = optimizer.at(jnp.int32(1)), grads_of(full.params, 0)
    return [
      side.step(side.start(full), grads, {}).net.params
      for side in (optimizer, optimizer.at_server)
    ]

  full, found = toys.full(NET), []
  for i in range(1, 4):
    numbers = {"momentum": 0.1 * i, "weight_decay": 0.01 * i, "clip": 1.0 * i}
    optimizer = Optimizer(lr=0.01 * i, server_lr=0.02 * i, **numbers)
    found.append(trained(optimizer, full))
  assert trained._cache_size() == 1
  assert distance(found[0], found[1]) > 1e-3


def test_the_server_has_a_rate_of_its_own():
  """The client's half is that of Adam at 0.01, the server's that at 0.02."""
  world = toys.population(NET, (1, 1), toys.parts_of((3, 3)))
  ends = []
  for lr, server_lr in ((0.01, 0.02), (0.01, None), (0.02, None)):
    optimizer = Optimizer(lr=lr, momentum=0.5, server_lr=server_lr, name="adam")
    method = METHODS["splitfed_v1"](backbone=NET, optimizer=optimizer)
    ends.append(toys.train(world, method, 1)[0].server)
  both, low, high = ends
  toys.assert_close(both.common, low.common, 1e-12)
  toys.assert_close(both.net, high.net, 1e-12)
  assert distance(both.net, low.net) > 1e-4


# Clipping: the norm of a half's step.

RNG = np.random.default_rng(0)
PARAMS = {
  "a": {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=2)},
  "b": {"w": RNG.normal(size=(4,))},
}
GRADS = jax.tree.map(lambda x: RNG.normal(size=x.shape), PARAMS)


def norm(tree):
  """The l2 norm of all of a tree as one vector."""
  return np.linalg.norm(toys.flat(tree))


def step(clip, passed=None, copied=False, **options):
  """What one step of the optimiser makes of PARAMS, lr 0.1."""
  optimizer = Optimizer(lr=0.1, clip=clip, **options)
  params, grads = jax.tree.map(jnp.asarray, (PARAMS, GRADS))
  half = optimizer.start(Net(params, dict.fromkeys(PARAMS, {})), copied=copied)
  flags = passed and {name: jnp.bool_(name in passed) for name in PARAMS}
  return optimizer.step(half, grads, {}, flags).net.params


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("clip", [0.1, 1.0, 1e9])
def test_a_step_by_hand(clip, copied, float64):
  share = min(1.0, clip / norm(GRADS))
  want = jax.tree.map(
    lambda p, g: p - 0.1 * (share * g + 0.05 * p), PARAMS, GRADS
  )
  assert distance(step(clip, None, copied, weight_decay=0.05), want) < 1e-12
  moved = jax.tree.map(lambda x, p: (x - p) / 0.1, step(clip), PARAMS)
  assert norm(moved) == pytest.approx(min(clip, norm(GRADS)), rel=1e-10)


def test_a_limit_that_is_not_reached_changes_no_bit():
  assert same_bits(step(1e9), step(None))
  assert same_bits(step(norm(GRADS) * 1.001), step(None))


def test_only_what_was_passed_counts():
  got = step(0.1, passed={"b"})
  share = 0.1 / norm(GRADS["b"])
  want = PARAMS["b"]["w"] - 0.1 * share * GRADS["b"]["w"]
  assert distance(got["b"]["w"], want) < 1e-6
  assert distance(got["a"], PARAMS["a"]) == 0
  zeros = jax.tree.map(jnp.zeros_like, GRADS)
  assert norm(trees.clipped(zeros, 1.0)) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("share", [1e-3, 0.5, 1.0])
def test_a_gradient_whose_square_overflows_is_clipped(share, dtype):
  """The largest numbers included; one that is not finite remains so."""
  large = float(jnp.finfo(dtype).max) * share
  grads = {"a": jnp.full(3, large, dtype), "b": jnp.full(1, -large, dtype)}
  got = trees.clipped(grads, 1.0)
  assert got["a"].tolist() == pytest.approx([0.5] * 3, rel=1e-6)
  assert got["b"].tolist() == pytest.approx([-0.5], rel=1e-6)
  for bad in (jnp.nan, jnp.inf):
    broken = trees.clipped({**grads, "c": jnp.full(2, bad, dtype)}, 1.0)
    assert jnp.isnan(broken["c"]).all()


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
  # One's own gets the optimiser.
  ({"schedule": "linear"}, lambda t: 1 - t / 12),
]


@pytest.mark.parametrize(("options", "factor"), FACTORS)
def test_a_schedule_is_its_formula(options, factor, monkeypatch):
  monkeypatch.setitem(
    SCHEDULES, "linear", lambda o: optax.linear_schedule(1.0, 0.0, o.rounds)
  )
  optimizer = Optimizer(lr=LR, rounds=12, **options)
  times = [0, 1, 2, 3, 4, 8, 11]
  want = [LR * factor(t) for t in times]
  rate = jax.jit(lambda optimizer, t: optimizer.at(t).lr)
  found = [rate(optimizer, jnp.array(t, float)) for t in times]
  np.testing.assert_allclose(found, want, rtol=0, atol=1e-14)
  found = [float(rate(optimizer, jnp.int32(t))) for t in times]
  np.testing.assert_allclose(found, want, 1e-6, 1e-9)


def test_the_floor_falls_with_the_servers_rate():
  """0.5^4 of the rates, but at least a fifth of them."""
  options = {"schedule": "exponential", "decay": 0.5, "floor": LR / 5}
  optimizer = Optimizer(lr=LR, server_lr=3 * LR, **options)
  optimizer = optimizer.at(jnp.array(4.0))
  np.testing.assert_allclose(optimizer.lr, LR / 5, rtol=1e-12)
  np.testing.assert_allclose(optimizer.at_server.lr, 3 * LR / 5, rtol=1e-12)


def test_the_work_of_a_round_by_hand():
  """Ten samples in batches of 4: 4 + 4 + 2."""
  plan = BatchPlan(4, 3, (), ())
  size = np.array([10, 3, 0])
  steps, samples = plan.of_round(size)
  assert steps.tolist() == [9, 3, 0] and samples.tolist() == [30, 9, 0]
  steps, samples = plan.of_round(size, epochs=2)
  assert steps.tolist() == [6, 2, 0] and samples.tolist() == [20, 6, 0]


NONE = Outer(name="fedavgm", lr=1.0, beta1=0.0)
"""What leaves the mean as it is."""


def server_of(w):
  """A server whose clients send one block with these parameters."""
  common = Net(params={"block": {"w": w}}, stats={"block": {}})
  return Server(net=NO_BLOCKS, common=common)


def sums_of(w, weight=1.0):
  """The sums of a round whose mean is w."""
  common = shares_of(server_of(w).common, jnp.asarray(weight))
  return {"common": common, "net": NO_BLOCKS}


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi"])
def test_a_rule_is_its_formula(name, lr=0.05, beta1=0.6, beta2=0.8, tau=0.01):
  """Reddi et al., Algorithm 2."""
  outer = Outer(name=name, lr=lr, beta1=beta1, beta2=beta2, tau=tau)
  rng = np.random.default_rng(0)
  w = jnp.zeros(5)
  slots, m, v = outer.start(server_of(w), topology="parallel"), 0.0, tau**2
  for _ in range(4):
    g = rng.normal(size=5)
    servers = server_of(w), server_of(w - g)
    slots, server = outer.step(slots, *servers, sums_of(w - g, 3.0))
    after = server.common.params["block"]["w"]
    m = beta1 * m + g * (1 if name == "fedavgm" else 1 - beta1)
    gap = v - g**2 if name == "fedadam" else g**2 * np.sign(v - g**2)
    v = v - (1 - beta2) * gap
    by = 1 if name == "fedavgm" else np.sqrt(v) + tau
    np.testing.assert_allclose(after - w, -lr * m / by, rtol=1e-10)
    w = after


@pytest.mark.parametrize(
  ("name", "rate"), [("fedavgm", 1.0), ("fedadam", 0.01), ("fedyogi", 0.01)]
)
def test_a_servers_rate_by_default(name, rate):
  """Of a first step on g = 1: m = 1, or m = 0.1 and v = tau^2 + 0.01."""
  server, means = server_of(jnp.ones(2)), server_of(jnp.zeros(2))
  outer = Outer(name=name)
  slots = outer.start(server, topology="parallel")
  _, after = outer.step(slots, server, means, sums_of(jnp.zeros(2)))
  v = {"fedadam": 0.99e-6 + 0.01, "fedyogi": 1e-6 + 0.01}.get(name)
  by = 1.0 if v is None else 0.1 / (np.sqrt(v) + 1e-3)
  w = after.common.params["block"]["w"]
  np.testing.assert_allclose(1 - w, rate * by, rtol=1e-12)


def test_a_block_that_nobody_updated_takes_no_step():
  server = server_of(jnp.arange(3.0))
  slots = NONE.start(server, topology="parallel")
  slots = jax.tree.map(lambda x: x + 1.0, slots)
  means = server_of(jnp.ones(3))
  kept, after = NONE.step(slots, server, means, sums_of(jnp.ones(3), 0.0))
  toys.assert_close((kept, after), (slots, server), 0.0)


def test_every_task_takes_a_step_of_its_own():
  """MultiHead's servers, one of which nobody updated."""
  server, means = server_of(jnp.zeros((3, 2))), server_of(jnp.ones((3, 2)))
  slots = NONE.start(server, topology="parallel")
  share = Share(total={"w": jnp.ones((3, 2))}, weight=jnp.array([1.0, 0, 2]))
  sums = {"common": Net({"block": share}, {}), "net": NO_BLOCKS}
  _, after = NONE.step(slots, server, means, sums)
  assert after.common.params["block"]["w"].tolist() == [[1, 1], [0, 0], [1, 1]]


def test_what_is_no_mean_over_clients_is_not_moved():
  server = server_of(jnp.arange(3.0))
  server = server._replace(net=server.common)
  for topology, names in (
    ("parallel", (1, 1)),
    ("merged", (1, 0)),
    ("sequential", (1, 0)),
    ("relay", (0, 0)),
  ):
    slots = NONE.start(server, topology=topology)
    assert tuple(map(len, slots)) == names, topology


def test_an_optimiser_of_means_needs_a_mean_of_the_clients():
  world = toys.population(NET, (1, 2), ((3,) * 10, (8,) * 6))
  with refused("mean_optimizer"):
    method = METHODS["supersfl"](backbone=NET, optimizer=PLAIN, outer=NONE)
    toys.start(world, method)
