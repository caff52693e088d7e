"""SplitFed and its kin; methods that must agree do so in compiled rounds.

Both sides of an equality compute one formula, fused differently, for three
rounds; parameters are of order 1 and move by at least 0.05.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys

from splitjax import models, trees
from splitjax.methods import METHODS
from splitjax.methods.hydra import Hydra, mean_head
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import UNSURE, SplitFedV1, SplitFedV2
from splitjax.parameters import pytree
from splitjax.types import Half, Net
from splitjax.wire import Channel, Wire

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = Optimizer(lr=0.1)


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


SIZES = 10, 6, 7, 4
DEPTHS = 1, 2, 2, 1
TOL = 1e-10


@functools.cache
def ragged():
  """Clients with 3, 2, 2 and 1 steps a round; the last one's rest is masked."""
  return toys.population(NET, DEPTHS, toys.parts_of(SIZES))


def make(name, **options):
  return METHODS[name](backbone=NET, optimizer=SGD, **options)


def assert_moved(state):
  """The run learned: agreeing is worth something."""
  origin = toys.start(ragged(), make("splitgp")).server.net.params
  assert toys.distance(state.server.net.params, origin) > 0.05


@functools.cache
def multi_exit():
  return toys.train(ragged(), make("multi_exit"))


@pytest.mark.slow
def test_harmony_without_its_parts_is_multi_exit():
  # Its first view is drawn as the only view of the other is.
  method = make(
    "harmony",
    inner_steps=0,
    csa_weight=None,
    stochastic_depth=False,
    form="float32",
  )
  plain, of_plain = multi_exit()
  state, metrics = toys.train(ragged(), method)
  assert_moved(state)
  toys.assert_close(state.server.common, plain.server.common, TOL)
  toys.assert_close(state.server.net, plain.server.net, TOL)
  for a, b in zip(metrics, of_plain, strict=True):
    for name in ("client", "server"):
      np.testing.assert_allclose(a.losses[name], b.losses[name], rtol=1e-10)
  head, embedding = 8 * 3 + 3, 8  # of 27 samples in 3 + 2 + 2 + 1 steps
  u_shape = {
    "down/server_head": 4 * head * 8,
    "down/embeddings": 27 * embedding * 4,
    "up/embedding_gradient": 27 * embedding * 4,
    "up/head_gradient": 8 * head * 8,
  }
  check_ledger(metrics, u_shape)


def check_ledger(rounds, extra):
  """The messages of a round, of clients with exits, and others."""
  # Padded samples and padded steps cost nothing. Depth 1 is 5 wide, depth 2
  # is 7; two clients of each. Parameters are sent as they are, in float64.
  block1, block2, exit1, exit2 = 16 * 5 + 5, 5 * 7 + 7, 5 * 3 + 3, 7 * 3 + 3
  features = ((10 + 4) * 5 + (6 + 7) * 7) * 4
  want = {"up/features": features, "down/feature_gradient": features, **extra}
  for way in ("up", "down"):
    want[f"{way}/prefix"] = (4 * block1 + 2 * block2) * 8
    want[f"{way}/exit"] = (2 * exit1 + 2 * exit2) * 8
  for metrics in rounds:
    assert {k: float(size) for k, size in metrics.wire.items()} == want
    assert int(metrics.participants) == 4


def test_ledger_of_a_round():
  _, metrics = multi_exit()
  check_ledger(metrics, {"up/labels": 27 * 4})


@pytest.mark.slow
def test_part_1_of_splitfed_v3_never_leaves_its_client():
  world = ragged()
  alone = make("splitfed_v3", mean="uniform")
  together = make("splitfed_v1", mean="uniform")
  state, metrics = toys.train(world, alone, 1)
  want, _ = toys.train(world, together, 1)
  toys.assert_close(state.server.net, want.server.net)
  assert not {"up/prefix", "down/prefix"} & metrics[0].wire.keys()
  nets = [world.client(alone, state, n).params["block1"] for n in range(4)]
  mean = jax.tree.map(lambda *x: sum(x) / 4, *nets)
  toys.assert_close(mean, want.server.common.params["block1"])
  assert toys.distance(nets[0], nets[1]) > 1e-3


def test_paths_of_multi_head_take_clipped_features():
  image = jnp.asarray(toys.stock()[0][:2], float)
  channels = Wire(features=Channel(clip=0.1))
  method, plain = make("multi_head", channels=channels), make("multi_head")
  state = toys.start(ragged(), method)
  clients, server = state.clients[0], state.server
  server = server._replace(memory=jnp.ones(toys.CLASSES, bool))
  net = method.model(trees.take(clients, 0), server)
  want = method.predict(net, trees.take(server.net, 1), image).server
  got = method.paths(clients, server, image)[1]
  np.testing.assert_allclose(got, want, rtol=1e-12)
  other = plain.paths(clients, server, image)[1]
  assert toys.distance(got, other) > 1e-3


@pytree
class OfTask(SplitFedV1):
  """SplitFed v1 whose server averages over the clients of one task alone."""

  task: int

  def receive(self, client, server, samples, round, key):
    client, server, _ = super().receive(client, server, samples, round, key)
    return client, server, samples.shard.counts.argmax() == self.task

  def copies(self, server, context, weight):
    return super().copies(server, context, weight * context)


@pytest.mark.slow
def test_a_part_two_of_multi_head_is_splitfeds_of_its_task():
  world, method = ragged(), make("multi_head")
  state, _ = toys.train(world, method, 1)
  counts = [np.asarray(shard.counts) for shard in world.simulation.shards]
  tasks = set(np.concatenate(counts).argmax(axis=1).tolist())
  assert 1 < len(tasks) < toys.CLASSES
  for task in tasks:
    alone = OfTask(backbone=NET, optimizer=SGD, mean="uniform", task=task)
    of_task, _ = toys.train(world, alone, 1)
    part_two = trees.take(state.server.net, task)
    toys.assert_close(part_two, of_task.server.net, TOL)
    toys.assert_close(state.server.common, of_task.server.common, TOL)
  # One that no client trained answers nothing.
  assert set(np.flatnonzero(state.server.memory)) == tasks
  image = jnp.asarray(toys.stock()[0][:2], float)
  (cohort, *_) = state.clients
  logits = np.asarray(method.paths(cohort, state.server, image))
  assert set(np.flatnonzero((logits != UNSURE).all(axis=(1, 2)))) == tasks
  # A client's path is what it predicts, by the part of its task.
  memory = np.concatenate([clients.memory for clients in state.clients])
  np.testing.assert_array_equal(memory, np.concatenate(counts).argmax(axis=1))
  client = trees.take(cohort, 1)
  theta = method.part_two(client, state.server)
  want = method.predict(method.model(client, state.server), theta, image).server
  np.testing.assert_allclose(logits[client.memory], want, rtol=1e-12)
