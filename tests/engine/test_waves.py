"""Rounds in waves equal rounds in turns, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from engine import with_step
from queues import NET, NORMED, ROUNDS, ordered

from splitjax.engine.waves import next_wave
from splitjax.methods import optimizer
from splitjax.methods.hydra import hydra
from splitjax.methods.splitfed import splitfed_v2

KEPT = optimizer.sgd(0.02, keep_state=True)


@pytest.mark.parametrize(
  ("first", "places", "here"),
  [
    (0, [0, 1, 2], [True, True, False]),  # client 2, 0, and 2 again
    (2, [2, 3, 4], [True, True, True]),
    (3, [3, 4, 5], [True, True, False]),
    (5, [5, 6, 7], [True, True, False]),  # seven turns are taken
  ],
)
def test_a_wave_ends_before_a_client_comes_again(first, places, here):
  queue = jnp.array([2, 0, 2, 1, 0, 1, 2, 0])
  place, inside = next_wave(queue, jnp.int32(7), jnp.int32(first), 3)
  assert place.tolist() == places and inside.tolist() == here


def breaking(method, who, when):
  """The client `who` has NaN parameters in the round `when`."""

  def begin(client, server, samples, round, key):
    client, *rest = method.begin(client, server, samples, round, key)
    bad = (samples.shard.number == who) & (round == when)
    segment = jax.tree.map(lambda x: jnp.where(bad, jnp.nan, x), client.segment)
    return client._replace(segment=segment), *rest

  return method._replace(begin=begin)


def untraced(*_):
  raise AssertionError("a round in waves takes no whole steps")


@pytest.mark.numeric
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
  ("make", "options", "net", "how", "masked", "tol"),
  [
    # Heads, ragged clients, two epochs, kept momentum, a broken client.
    (hydra, {"second_cut": 3}, NET, {"epochs": 2}, [0, 1, 0], 1e-12),
    pytest.param(
      splitfed_v2,
      {"l2": 0.1, "l2_on": "both"},
      NORMED,
      {"participants": 3, "order": "random", "turn": 2},
      [0, None, 0],
      1e-9,  # normalising batches of two enlarges what is rounded
      marks=pytest.mark.slow,
    ),
  ],
  ids=["hydra", "splitfed_v2"],
)
def test_a_round_in_waves_is_the_round_in_turns(
  make, options, net, how, masked, tol
):
  method = breaking(make(net, KEPT, **options), who=2, when=1)
  place = ordered(method, net=net, **how)
  one, want = toys.train(place, method, ROUNDS)
  waves = with_step(method, untraced)
  two, got = toys.train(place, waves, ROUNDS, wave=3)
  parts = [(s.clients, s.server) for s in (two, one)]
  toys.assert_close(*parts, tol)
  for a, b, count in zip(got, want, masked, strict=True):
    toys.assert_close(a.losses, b.losses, tol)
    toys.assert_close(a._replace(losses={}), b._replace(losses={}), 0)
    assert count is None or int(np.sum(a.masked)) == count
  before = toys.start(place, method).server.segment
  assert toys.distance(two.server.segment, before) > 1e-2
