"""Optimisers by name, block by block, against optax on the whole tree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import worlds as toys
from worlds import distance, same_bits

from splitjax import trees
from splitjax.methods import METHODS
from splitjax.methods.optimizer import OPTIMIZERS, Optimizer
from splitjax.types import Net

pytestmark = pytest.mark.usefixtures("float64")

NET = toys.network((1, 2))
LR, DECAY = 0.03, 0.1
PLAIN = {
  "sgd": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.sgd(LR, momentum=0.8)
  ),
  "adam": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.adam(LR, b1=0.8)
  ),
}


def grads_of(params, step):
  rng = np.random.default_rng(step)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)


@pytest.mark.numeric
@pytest.mark.parametrize(
  ("name", "decay"), [("sgd", None), *((name, DECAY) for name in PLAIN)]
)
def test_blocks_move_as_the_whole_tree_does(name, decay):
  optimizer = Optimizer(lr=LR, momentum=0.8, weight_decay=decay, name=name)
  full = toys.fresh(NET, 0)
  half = optimizer.start(full)
  tx, params = PLAIN[name](decay or 0.0), full.params
  state = tx.init(params)
  for step in range(4):
    grads = grads_of(params, step)
    half = optimizer.step(half, grads, {})
    moved, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, moved)
  toys.assert_close(half.net.params, params, 1e-12)


def test_without_momentum_sgd_has_no_buffer():
  full = toys.fresh(NET, 0)
  for optimizer in (Optimizer(lr=LR, momentum=None), Optimizer(lr=LR)):
    slots = jax.tree.leaves(optimizer.start(full).slots)
    assert bool(slots) == (optimizer.momentum is not None)


@pytest.mark.numeric
def test_a_block_that_is_not_passed_keeps_its_moments():
  optimizer, full = Optimizer(lr=LR, name="adam"), toys.fresh(NET, 0)
  half = optimizer.start(full, copied=True)
  passed = {name: jnp.bool_(name != "block2") for name in full.params}
  after = optimizer.step(half, grads_of(full.params, 0), {}, passed)
  for name in full.params:
    stays = toys.distance(after.net.params[name], full.params[name]) == 0
    assert stays == (name == "block2")
    assert after.slots[name][0].count == (name != "block2")
    assert after.touched.params[name] == (name != "block2")
  assert not any(after.touched.stats.values())


def test_one_program_serves_all_numbers_of_an_optimiser():
  """Learning rates, momentum, weight decay and clip are its arguments."""
  traces = []

  @jax.jit
  def trained(optimizer, full):
    traces.append(optimizer)
    optimizer = optimizer.at(jnp.int32(1))
    halves = (optimizer.start(full), optimizer.at_server.start(full))
    sides = optimizer, optimizer.at_server
    grads = grads_of(full.params, 0)
    return [
      side.step(half, grads, {}).net.params
      for side, half in zip(sides, halves, strict=True)
    ]

  full = jax.tree.map(jnp.asarray, toys.fresh(NET, 0))
  found = []
  for i in range(1, 7):
    numbers = {"momentum": 0.1 * i, "weight_decay": 0.01 * i, "clip": 1.0 * i}
    optimizer = Optimizer(lr=0.01 * i, server_lr=0.02 * i, **numbers)
    found.append(trained(optimizer, full))
  assert len(traces) == 1
  assert toys.distance(found[0], found[1]) > 1e-3


def test_a_rule_of_ones_own_gets_the_momentum(monkeypatch):
  monkeypatch.setitem(OPTIMIZERS, "lion", lambda b: optax.scale_by_lion(b))
  optimizer = Optimizer(lr=LR, momentum=0.5, name="lion")
  full = toys.fresh(NET, 0)
  after = optimizer.step(
    optimizer.start(full), grads_of(full.params, 0), {}
  ).net.params
  steps = jax.tree.map(lambda x, y: np.abs(x - y) - LR, after, full.params)
  assert max(np.abs(x).max() for x in jax.tree.leaves(steps)) < 1e-12


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
  assert toys.distance(both.net, low.net) > 1e-4


# Clipping: the norm of a half's step.

RNG = np.random.default_rng(0)
PARAMS = {
  "a": {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=2)},
  "b": {"w": RNG.normal(size=(4,))},
}
GRADS = jax.tree.map(lambda x: RNG.normal(size=x.shape), PARAMS)


def norm(tree):
  """The l2 norm of all of a tree as one vector, in float64."""
  return np.sqrt(sum((np.asarray(x, float) ** 2).sum() for x in flat(tree)))


def flat(tree):
  return jax.tree.leaves(tree)


def floats(tree):
  return jax.tree.map(jnp.asarray, tree)


def step(clip, passed=None, copied=False, **options):
  """What one step of the optimiser makes of PARAMS, lr 0.1."""
  optimizer = Optimizer(lr=0.1, clip=clip, **options)
  net = Net(params=floats(PARAMS), stats=dict.fromkeys(PARAMS, {}))
  flags = None
  if passed is not None:
    flags = {name: jnp.bool_(name in passed) for name in PARAMS}
  half = optimizer.start(net, copied=copied)
  return optimizer.step(half, floats(GRADS), {}, flags).net.params


@pytest.mark.numeric
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
  assert distance(got["a"], floats(PARAMS["a"])) == 0
  zeros = jax.tree.map(jnp.zeros_like, floats(GRADS))
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
