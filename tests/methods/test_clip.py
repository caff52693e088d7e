"""Gradients that are too large, scaled down: the norm of a half's step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from refusals import refused
from worlds import distance, same_bits

from splitjax.methods.optimizer import Optimizer, clipped
from splitjax.types import Net

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
  assert norm(clipped(zeros, 1.0)) == 0


def test_it_is_a_field_of_the_config():
  c = tiny.tiny(splitgp="splitgp")
  with refused("optimizer.clip"):
    c.optimizer.clip = -1.0
