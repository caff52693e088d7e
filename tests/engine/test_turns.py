"""Turns: non-finite ones, skipped ones, the cost of handing on."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from engine import compiled_round, world
from marks import slow
from queues import (
  NET,
  SGD,
  ordered,
  with_order,
)

from splitjax import engine, methods, trees
from splitjax.engine import ClientFault
from splitjax.methods import splitfed_v2, splitnn


@pytest.mark.parametrize("name", ["hydra", *slow("merge_sfl")])
def test_a_non_finite_turn_is_undone_and_the_others_go_on(name):
  """That of client 2, whose parameters become NaN."""
  made = world(name)

  def begin(client, server, samples, round, key):
    client, *rest = made.method.begin(client, server, samples, round, key)
    bad = jnp.where(samples.shard.number == 2, jnp.nan, 0.0)
    params = jax.tree.map(lambda x: x + bad, client.segment.params)
    segment = client.segment._replace(params=params)
    return client._replace(segment=segment), *rest

  spoilt = made._replace(method=made.method._replace(begin=begin))
  state, metrics = spoilt.round()(made.state(), made.shards)
  assert np.flatnonzero(metrics.masked).tolist() == [2]
  assert all(
    np.isfinite(x).all() for x in jax.tree.leaves((state.clients, state.server))
  )
  start = made.state()
  assert toys.distance(state.server.segment, start.server.segment) > 1e-3
  assert np.isfinite(metrics.losses["server"])


@pytest.mark.slow
def test_a_non_finite_server_is_undone():
  # The first step overflows.
  method = splitfed_v2(NET, methods.sgd(3e38, 0.0))
  place = ordered(method)
  before = jax.device_get(toys.start(place, method).server.segment)
  state, metrics = toys.train(place, method, 1)
  assert metrics[0].masked.all()
  toys.assert_close(state.server.segment, before, 0)


def test_a_dropped_client_costs_no_turn():
  made = world("splitfed_v2")
  dropped = ClientFault(jnp.ones((6, 1), bool))
  shards = tuple(shard._replace(faults=dropped) for shard in made.shards)
  state, metrics = compiled_round(made)(made.state(), shards)
  assert metrics.participants == 0 and metrics.wire["up/labels"] == 0
  toys.assert_close(state.server.segment, made.state().server.segment, 0)


def test_the_queue_is_the_order_of_the_taken_steps():
  turns = jnp.array([[3, 0, 9], [1, 2, engine.NO_TURN]])
  real = jnp.array([[True, True, False], [True, True, True]])
  queue, count = engine.make_queue(turns, real)
  assert int(count) == 4
  assert queue[:4].tolist() == [1, 3, 4, 0]


def test_splitnn_pays_for_every_hand_over():
  method = splitnn(NET, SGD)
  place = ordered(method)
  size = trees.num_bytes(place.client(toys.start(place, method), 0).params)
  state = toys.start(place, method)
  step = toys.compiled(place, method, state)
  # The first client gets part-1 from the server. In the second round it is
  # handed on by the last client of the first, unless that is the same one.
  for order, first, second in (
    ([0, 1, 2, 3, 0, 1, 2, 0], (7, 8), (7, 7)),
    ([0, 0, 0, 1, 1, 2, 2, 3], (3, 4), (4, 4)),
  ):
    shards = with_order(place, order).shards
    state = toys.start(place, method)
    for up, down in (first, second):
      state, metrics = step(state, shards)
      sent = [metrics.wire[f"{way}/prefix"] for way in ("up", "down")]
      assert sent == [up * size, down * size]


@pytest.mark.slow
def test_who_misses_a_round_hands_nothing_on():
  # Two of four clients take part: who had part-1 last is not known, and the
  # first client of a later round counts as another.
  method = splitnn(NET, SGD)
  place = ordered(method, participants=2, turn=9)
  size = trees.num_bytes(place.client(toys.start(place, method), 0).params)
  _, metrics = toys.train(place, method, 2)
  sent = [[m.wire[f"{w}/prefix"] for w in ("up", "down")] for m in metrics]
  assert sent == [[size, 2 * size], [2 * size, 2 * size]]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_turn_copies_no_other_client():
  made = world("splitfed_v2", outer=(("momentum", 0.9),), sizes=(8,) * 32)
  text = made.round().lower(made.state(), made.shards).compile().as_text()
  loops, entry = text.split("\nENTRY ")
  stack = r"= f32\[32,16,8\]\S* copy\("  # of all clients' first kernels
  assert "f32[32,16,8]" in loops and re.search(stack, entry)
  assert not re.search(stack, loops)
