"""Optimisers by name, block by block, against optax on the whole tree."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import toy_world as toys
from refusals import refused

from splitjax import OPTIMIZERS, methods
from splitjax.methods import METHODS
from splitjax.types import Half

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
  "adamw": lambda wd: optax.adamw(LR, b1=0.8, weight_decay=wd),
  "adamax": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.adamax(LR, b1=0.8)
  ),
  "nadam": lambda wd: optax.chain(
    optax.add_decayed_weights(wd), optax.nadam(LR, b1=0.8)
  ),
}


def grads_of(params, step):
  rng = np.random.default_rng(step)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)


@pytest.mark.numeric
@pytest.mark.parametrize(
  ("name", "decay"),
  [("sgd", 0.0), *((name, DECAY) for name in OPTIMIZERS)],
)
def test_blocks_move_as_the_whole_tree_does(name, decay):
  made = methods.make_optimizer(name, LR, 0.8, decay)
  full = toys.fresh(NET, 0)
  half = methods.begin_round(Half(full, (), ()), made, jnp.int32(0))
  tx, params = PLAIN[name](decay), full.params
  state = tx.init(params)
  for step in range(4):
    grads = grads_of(params, step)
    half = methods.descend(half, grads, {}, made)
    moved, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, moved)
  toys.assert_close(half.segment.params, params, 1e-12)


@pytest.mark.numeric
def test_a_block_that_is_not_passed_keeps_its_moments():
  made = methods.make_optimizer("adam", LR)
  full = toys.fresh(NET, 0)
  half = methods.begin_round(Half(full, (), ()), made, jnp.int32(0))
  passed = {name: jnp.bool_(name != "block2") for name in full.params}
  new = methods.descend(half, grads_of(full.params, 0), {}, made, passed)
  for name in full.params:
    same = toys.distance(new.segment.params[name], full.params[name]) == 0
    assert same == (name == "block2")
    assert new.opt.slots[name][0].count == (name != "block2")


def test_the_server_has_a_rate_of_its_own():
  """The client's half is that of Adam at 0.01, the server's that at 0.02."""
  made = toys.world(NET, (1, 1), toys.parts_of((3, 3)))
  ends = []
  for lr, server_lr in ((0.01, 0.02), (0.01, None), (0.02, None)):
    chosen = methods.make_optimizer("adam", lr, 0.5, server_lr=server_lr)
    method = METHODS["splitfed_v1"](NET, chosen)
    ends.append(toys.train(made, method, 1)[0])
  both, low, high = ends
  toys.assert_close(both.clients, low.clients, 1e-12)
  toys.assert_close(both.server, high.server, 1e-12)
  assert toys.distance(both.server.segment, low.server.segment) > 1e-4


def test_an_unknown_optimiser_is_one_line():
  draft = tiny.tiny(own="local")
  draft.optimizer.name = "adamm"
  with refused("optimizer.name"):
    tiny.resolved(draft)
