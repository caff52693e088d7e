"""Turns: non-finite ones, skipped ones, the cost of handing on."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from worlds import (
  assert_close,
  distance,
  divided,
  networks,
  ordered,
  planned,
  served,
  world,
)

from splitjax import trees
from splitjax.methods import METHODS
from splitjax.parameters import pytree


@pytest.mark.parametrize(
  "name", ["splitfed_v2", *slow("hydra", "splitnn", "merge_sfl")]
)
def test_a_non_finite_turn_is_undone_and_the_others_go_on(name):
  """That of client 2, whose loss becomes NaN."""

  @pytree
  class Spoilt(METHODS[name]):
    def receive(self, client, server, samples, round, key):
      client, server, context = super().receive(
        client, server, samples, round, key
      )
      bad = jnp.where(samples.shard.number == 2, jnp.nan, 0.0)
      return client, server, (context, bad)

    def lend(self, server, context):
      return super().lend(server, context[0])

    def take_back(self, server, context, lent):
      return super().take_back(server, context[0], lent)

    def step(self, client, server, context, batches, key):
      context, bad = context
      client, server, losses = super().step(
        client, server, context, batches, key
      )
      if self.topology == "merged":
        return client, server, {k: x + bad for k, x in losses.items()}
      params = jax.tree.map(lambda x: x + bad, server.net.params)
      server = server._replace(net=server.net._replace(params=params))
      return client, server, {k: x + bad for k, x in losses.items()}

    def send(self, client, server, context, samples, weight, key):
      return super().send(client, server, context[0], samples, weight, key)

  made = world(name)
  plain = made.method
  spoilt = Spoilt(backbone=plain.backbone, optimizer=plain.optimizer)
  made = made._replace(method=spoilt)
  state, metrics = made.round(made.state())
  assert np.flatnonzero(metrics.masked).tolist() == [2]
  leaves = jax.tree.leaves((state.clients, state.server))
  assert all(np.isfinite(x).all() for x in leaves)
  start = made.state()
  assert distance(state.server.net, start.server.net) > 1e-3
  assert np.isfinite(metrics.losses["server"])
  # The turn was taken before it was undone: its messages count.
  sizes = {
    int(n): int(size)
    for n, size in zip(made.shards[0].number, made.shards[0].size, strict=True)
  }
  undone = sizes[2] if name == "merge_sfl" else min(sizes[2], 4)
  served = sum(sizes.values()) - sizes[2]
  labels = float(metrics.wire["up/labels"])
  assert 4 * served < labels <= 4 * (served + undone)


@pytest.mark.slow
def test_a_non_finite_server_is_undone():
  # The first step overflows.
  made = ordered("splitfed_v2", outer=(("lr", 3e38), ("momentum", None)))
  before = jax.device_get(made.state().server.net)
  state, metrics = made.round(made.state())
  assert metrics.masked.all()
  assert_close(jax.device_get(state.server.net), before, 0.0)


def test_a_dropped_client_costs_no_turn():
  place = planned(divided(world("splitfed_v2")), dropped=np.ones((6, 1), bool))
  state, metrics = place.round(place.state())
  assert metrics.participants == 0 and metrics.wire["up/labels"] == 0
  assert_close(state.server.net, place.state().server.net, 0.0)


def test_splitnn_pays_for_every_hand_over():
  made = ordered("splitnn")
  size = trees.num_bytes(networks(made, made.state())[0].params)
  # The first client gets part-1 from the server. In the second round it is
  # handed on by the last client of the first, unless that is the same one.
  for order, first, second in (
    ([0, 1, 2, 3, 0, 1, 2, 0], (7, 8), (7, 7)),
    ([0, 0, 0, 1, 1, 2, 2, 3], (3, 4), (4, 4)),
  ):
    place = served(made, order)
    state = place.state()
    for up, down in (first, second):
      state, metrics = place.round(state)
      sent = [metrics.wire[f"{way}/prefix"] for way in ("up", "down")]
      assert sent == [up * size, down * size]


@pytest.mark.slow
def test_who_misses_a_round_hands_nothing_on():
  # Two of four clients take part: who had part-1 last is not known, and the
  # first client of a later round counts as another.
  made = ordered("splitnn", participants=2, turn=9)
  size = trees.num_bytes(networks(made, made.state())[0].params)
  state, sent = made.state(), []
  for _ in range(2):
    state, metrics = made.round(state)
    sent.append([metrics.wire[f"{way}/prefix"] for way in ("up", "down")])
  assert sent == [[size, 2 * size], [2 * size, 2 * size]]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_turn_copies_no_other_client():
  made = world("splitfed_v2", sizes=(8,) * 32)
  text = made.lower(made.state()).compile().as_text()
  loops, entry = text.split("\nENTRY ")
  stack = r"f32\[32,16,8\]"  # of all clients' first kernels
  assert re.search(stack, loops + entry)
  assert not re.search(rf"= {stack}\S* copy\(", loops)
