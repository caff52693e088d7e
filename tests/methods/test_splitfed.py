"""SplitFed and its kin: regularised steps, heads of groups, parts of tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys

from splitjax import models, trees
from splitjax.methods.hydra import Hydra, mean_head
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import (
  SplitFedV1,
  SplitFedV2,
  SplitFedV3,
)
from splitjax.types import Half, Net

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SIZES, DEPTHS = (10, 6, 7, 4), (1, 2, 2, 1)
SGD = Optimizer(lr=0.1)


def ragged():
  """Clients with 3, 2, 2 and 1 steps a round."""
  return toys.population(NET, DEPTHS, toys.parts_of(SIZES))


@pytest.mark.parametrize("on", ["server", "both"])
def test_l2_pulls_by_its_share_of_the_weights(on):
  plain, pulled = (
    SplitFedV2(backbone=NET, optimizer=Optimizer(lr=0.1, momentum=None),
               l2=l2, l2_on=on)
    for l2 in (None, 0.5)
  )  # fmt: skip
  batch = toys.batch(0)
  client, server = toys.pair(NET, 2, SGD)
  bare = SGD.start(models.select(client.net, NET.names(0, 2)))  # no exit
  halves = bare, server

  def run(client, server):
    return [
      method.step(client, server, (), (batch,), None)
      for method in (plain, pulled)
    ]

  want, got = jax.jit(run)(*halves)
  assert got[2] == want[2]  # the losses do not include the norms
  for side, factor in ((0, 0.5 * (on == "both")), (1, 0.5)):
    start = halves[side].net.params
    moves = want[side].net.params
    for name in moves:
      # Blocks that no features passed keep their weights.
      idle = toys.distance(moves[name], start[name]) == 0
      rate = 0.0 if idle else 0.1 * factor
      toys.assert_close(
        got[side].net.params[name],
        jax.tree.map(lambda x, w, r=rate: x - r * w, moves[name], start[name]),
      )


def test_the_mean_of_heads_is_over_those_that_moved():
  params = {"head": {"w": jnp.array([[1.0], [4.0], [8.0]])}}
  stats = {"head": {"mean": jnp.array([[2.0], [6.0], [1.0]])}}
  moved = {"head": jnp.array([False, True, True])}
  wrote = {"head": jnp.array([True, True, False])}
  heads = Half(net=Net(params, stats), slots={}, touched=Net(moved, wrote))
  head = mean_head(heads)
  assert head.net.params["head"]["w"].tolist() == [6.0]
  assert head.net.stats["head"]["mean"].tolist() == [4.0]
  assert bool(head.touched.params["head"] & head.touched.stats["head"])
  still = {"head": jnp.zeros(3, bool)}
  head = mean_head(heads._replace(touched=Net(still, still)))
  assert head.net.params["head"]["w"].tolist() == [1.0]
  assert not head.touched.params["head"]


def test_a_turn_trains_part_2a_and_the_head_of_its_group():
  method = Hydra(backbone=toys.network((2,)), optimizer=SGD, second_cut=3)
  _, server = toys.pair(method.backbone, 2, SGD)
  shared, head = method.parted(server)
  assert set(shared.net.params) == {"block3"}
  assert set(head.net.params) == {"block4", "head"}
  server = shared._replace(memory=trees.repeat(head, 3))
  lent = method.lend(server, 1)
  assert set(lent.net.params) == {"block3", "block4", "head"}
  moved = jax.tree.map(lambda x: x + 1 if x.dtype == float else x, lent)
  after = method.take_back(server, 1, moved)
  before, heads = server.memory.net.params, after.memory.net.params
  for leaf, old in zip(*map(jax.tree.leaves, (heads, before)), strict=True):
    gap = np.asarray(leaf - old)
    np.testing.assert_allclose(gap[1], 1)
    assert not gap[[0, 2]].any()
  assert toys.distance(after.net.params, server.net.params) > 0.99


@pytest.mark.slow
def test_part_1_of_splitfed_v3_never_leaves_its_client():
  world = ragged()
  alone, together = (
    kind(backbone=NET, optimizer=SGD, mean="uniform")
    for kind in (SplitFedV3, SplitFedV1)
  )
  state, metrics = toys.train(world, alone, 1)
  want, _ = toys.train(world, together, 1)
  toys.assert_close(state.server.net, want.server.net)
  assert not {"up/prefix", "down/prefix"} & metrics[0].wire.keys()
  nets = [world.client(alone, state, n).params["block1"] for n in range(4)]
  mean = jax.tree.map(lambda *x: sum(x) / 4, *nets)
  toys.assert_close(mean, want.server.common.params["block1"])
  assert toys.distance(nets[0], nets[1]) > 1e-3
