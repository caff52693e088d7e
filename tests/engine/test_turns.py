"""Turns that break, that nobody takes, that cost a hand-over."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import world_of_toys as toys
from engine import world
from queues import (
  NET,
  SGD,
  SIZES,
  ordered,
  with_order,
)

from splitjax import trees
from splitjax.engine import client_order, sequential
from splitjax.engine.faults import Faults
from splitjax.methods import optimizer
from splitjax.methods.splitfed import splitfed_v2, splitnn


@functools.cache
def broken(name):
  """Client 2 has an image that no network survives; what a round leaves."""
  made = world(name)
  sick = made.shards[0].rows[2, 0]
  real = made.method.begin

  def begin(client, server, samples, round, key):
    client, server, down = real(client, server, samples, round, key)
    bad = (samples.shard.rows == sick).any()
    params = jax.tree.map(
      lambda x: jnp.where(bad, jnp.nan, x), client.segment.params
    )
    segment = client.segment._replace(params=params)
    return client._replace(segment=segment), server, down

  made = made._replace(method=made.method._replace(begin=begin))
  state, told = made.round()(made.state(), made.shards)
  return state, told, made


@pytest.mark.parametrize("name", ["splitfed_v2", "hydra", "merge_sfl"])
def test_a_turn_that_breaks_is_undone_and_the_others_go_on(name):
  state, told, made = broken(name)
  assert np.flatnonzero(told.masked).tolist() == [2]
  assert all(
    np.isfinite(x).all() for x in jax.tree.leaves((state.clients, state.server))
  )
  start = made.state()
  assert toys.distance(state.server.segment, start.server.segment) > 1e-3
  assert np.isfinite(told.losses["server"])


def test_a_server_that_breaks_is_undone():
  # Its first step throws it out of the finite numbers.
  method = splitfed_v2(NET, optimizer.sgd(3e38, 0.0))
  place = ordered(method)
  before = jax.device_get(toys.start(place, method).server.segment)
  state, told = toys.train(place, method, 1)
  assert told[0].masked.all()
  toys.assert_close(state.server.segment, before, 0)


def test_whoever_is_not_drawn_takes_no_turn():
  method = splitfed_v2(NET, SGD)
  place = ordered(method, participants=2)
  whole = ordered(method)
  state, told = toys.train(place, method, 1)
  _, everyone = toys.train(whole, method, 1)
  assert told[0].participants == 2
  # 4 bytes for each label of two of the clients.
  sent = float(told[0].wire["up/labels"]) / 4
  pairs = {a + b for i, a in enumerate(SIZES) for b in SIZES[i + 1 :]}
  assert sent in pairs and everyone[0].wire["up/labels"] == 4 * sum(SIZES)
  for n in range(1, 4):
    toys.assert_close(place.client(state, n), place.client(state, 0), 0)


def test_a_dropped_client_costs_no_turn():
  made = world("splitfed_v2")
  _, told = made.round(Faults(dropout=1.0))(made.state(), made.shards)
  assert told.participants == 0 and told.wire["up/labels"] == 0
  state, _ = made.round(Faults(dropout=1.0))(made.state(), made.shards)
  toys.assert_close(state.server.segment, made.state().server.segment, 0)


def test_the_line_is_the_order():
  turns = jnp.array([[3, 0, 9], [1, 2, client_order.NO_TURN]])
  real = jnp.array([[True, True, False], [True, True, True]])
  line, count = sequential.make_queue(turns, real)
  assert int(count) == 4
  assert line[:4].tolist() == [1, 3, 4, 0]


def test_splitnn_pays_for_every_hand_over():
  method = splitnn(NET, SGD)
  place = ordered(method)
  size = trees.num_bytes(place.client(toys.start(place, method), 0).params)
  state = toys.start(place, method)
  step = toys.compiled(place, method, state)
  for line, hands in (
    ([0, 1, 2, 3, 0, 1, 2, 0], 8),
    ([0, 0, 0, 1, 1, 2, 2, 3], 4),
  ):
    _, told = step(toys.start(place, method), with_order(place, line).shards)
    assert told.wire["down/prefix"] == told.wire["up/prefix"] == hands * size
