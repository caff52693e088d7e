"""Turns: non-finite ones, skipped ones, the cost of handing on."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from marks import slow
from worlds import (
  assert_close,
  networks,
  of_kind,
  ordered,
  planned,
  same_bits,
  served,
  spoilt,
  world,
)

from splitjax import METHODS, trees
from splitjax.engine.round import run_round


@pytest.mark.parametrize(
  ("name", "part"),
  [
    ("splitfed_v2", "server"),
    ("splitfed_v2", "slots"),
    *slow(
      ("splitfed_v2", "client"),
      ("splitfed_v2", "loss"),
      ("hydra", "server"),
      ("splitnn", "client"),
      ("splitnn", "server"),
      ("merge_sfl", "loss"),
    ),
  ],
)
def test_a_turn_that_is_not_finite_is_undone_and_its_client_named(name, part):
  """The others go on, in turns as if that client had not come."""
  made = of_kind(world(name), spoilt(METHODS[name], {2: part}))
  dropped = np.array([[n == 2] for n in range(6)])

  def outcome(on, dropped):
    method = dataclasses.replace(made.method, on=on)
    place = planned(made._replace(method=method), dropped=dropped)
    state, metrics = place.round(place.method, place.start(place.method))
    return jax.device_get((networks(place, state), state.server, metrics))

  nets, server, metrics = outcome(1.0, dropped & False)
  nets_without, server_without, without = outcome(0.0, dropped)
  assert np.flatnonzero(metrics.masked).tolist() == [2]
  assert metrics.participants == 6 and without.participants == 5
  if name == "merge_sfl":  # it takes part in the common steps
    assert np.isfinite(metrics.losses["server"])
  else:
    assert same_bits((nets, server), (nets_without, server_without))
    assert same_bits(metrics.losses, without.losses)
  # The turn was taken before it was undone: its messages count.
  more = metrics.wire["up/labels"] - without.wire["up/labels"]
  assert 0 < more <= 4 * (9 if name == "merge_sfl" else 4)


@pytest.mark.slow
def test_a_non_finite_server_is_undone():
  # The first step overflows.
  made = ordered("splitfed_v2", outer=(("lr", 3e38), ("momentum", None)))
  before = jax.device_get(made.start(made.method).server.net)
  state, metrics = made.round(made.method, made.start(made.method))
  assert metrics.masked.all()
  assert_close(jax.device_get(state.server.net), before, 0.0)


@pytest.mark.parametrize("name", ["splitfed_v2", "merge_sfl"])
def test_dropped_clients_cost_no_turn_and_leave_the_server(name):
  made = world(name, outer=(("weight_decay", 0.1),), batch_norm=True)
  place = planned(made, dropped=np.ones((6, 1), bool))
  state, metrics = place.round(place.method, place.start(place.method))
  assert metrics.participants == 0 and metrics.wire["up/labels"] == 0
  assert_close(state.server.net, place.start(place.method).server.net, 0.0)


def test_splitnn_pays_for_every_hand_over():
  made = ordered("splitnn")
  size = trees.num_bytes(networks(made, made.start(made.method))[0].params)
  # The first client gets part-1 from the server. In the second round it is
  # handed on by the last client of the first, unless that is the same one.
  for order, first, second in (
    ([0, 1, 2, 3, 0, 1, 2, 0], (7, 8), (7, 7)),
    ([0, 0, 0, 1, 1, 2, 2, 3], (3, 4), (4, 4)),
  ):
    place = served(made, order)
    state = place.start(place.method)
    for up, down in (first, second):
      state, metrics = place.round(place.method, state)
      sent = [metrics.wire[f"{way}/prefix"] for way in ("up", "down")]
      assert sent == [up * size, down * size]


def test_part_1_comes_from_who_was_last_in_the_round_before():
  made = ordered("splitnn")
  orders = [1, 1, 2, 2, 0, 0, 0, 3], [3, 0, 0, 0, 1, 1, 2, 2]
  first, later = (
    served(made, order).shards[0].service_order for order in orders
  )
  order = first.at[:, 1:].set(later[:, 1:])
  place = made._replace(shards=(made.shards[0]._replace(service_order=order),))
  size = trees.num_bytes(networks(place, place.start(place.method))[0].params)
  state, _ = place.round(place.method, place.start(place.method))
  _, metrics = place.round(place.method, state)
  # Client 3, who was last, is first: it hands on to 0, which does to 1 and 2.
  assert metrics.wire["up/prefix"] == metrics.wire["down/prefix"] == 3 * size


@pytest.mark.slow
def test_who_misses_a_round_hands_nothing_on():
  # Two of four clients take part: who had part-1 last is not known, and the
  # first client of a later round counts as another.
  made = ordered("splitnn", participants=2)
  made = served(made, [0, 0, 0, 1, 1, 2, 2, 3])
  size = trees.num_bytes(networks(made, made.start(made.method))[0].params)
  state, sent = made.start(made.method), []
  for _ in range(2):
    state, metrics = made.round(made.method, state)
    sent.append([metrics.wire[f"{way}/prefix"] for way in ("up", "down")])
  assert sent == [[size, 2 * size], [2 * size, 2 * size]]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_turn_copies_no_other_client():
  made = world("splitfed_v2", sizes=(8,) * 32)
  inputs = made.method, made.start(made.method), made.shards
  text = run_round.lower(*inputs, **made.how).compile().as_text()
  loops, entry = text.split("\nENTRY ")
  stack = r"f32\[32,16,8\]"  # of all clients' first kernels
  assert re.search(stack, loops + entry)
  assert not re.search(rf"= {stack}\S* copy\(", loops)
