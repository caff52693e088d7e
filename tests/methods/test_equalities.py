"""Methods that must agree do so through compiled rounds, in float64.

Both sides compute one formula, fused differently, for three rounds; parameters
are of order 1 and move by at least 0.05.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods, trees
from splitjax.methods import (
  METHODS,
  UNSURE,
  fedavg,
  harmony,
  multi_head,
  splitfed_v1,
  splitgp,
)
from splitjax.types import Segment, Sums

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = methods.sgd(0.1)
SIZES = 10, 6, 7, 4
DEPTHS = 1, 2, 2, 1
TOL = 1e-10


@functools.cache
def ragged():
  """Clients with 3, 2, 2 and 1 steps a round; the last one's rest is masked."""
  return toys.world(NET, DEPTHS, toys.parts_of(SIZES))


def same_state(place, a, b):
  """Compares clients and server of two runs, block by block."""
  for n in range(len(place.depths)):
    one, two = place.client(a, n), place.client(b, n)
    both = set(one.params) & set(two.params)
    assert {k for k in both if k.startswith("block")} == set(
      NET.names(0, place.depths[n])
    )
    for name in both:
      toys.assert_close(one.params[name], two.params[name], TOL)
  toys.assert_close(a.server.segment, b.server.segment, TOL)


def assert_moved(place, state):
  """The run learned: agreeing is worth something."""
  origin = toys.start(place, splitgp(NET, SGD)).server.segment.params
  assert toys.distance(state.server.segment.params, origin) > 0.05


@pytest.mark.slow
def test_splitfed_of_one_depth_is_fedavg_of_the_uncut_network():
  cut = toys.world(NET, (1, 1, 1, 1), toys.parts_of(SIZES))
  uncut = toys.world(NET, (4, 4, 4, 4), toys.parts_of(SIZES))
  split, told = toys.train(cut, splitfed_v1(NET, SGD))
  whole, told_whole = toys.train(uncut, fedavg(NET, SGD))
  assert_moved(cut, split)
  for n in range(4):
    both = Segment(
      {**cut.client(split, n).params, **split.server.segment.params}, {}
    )
    toys.assert_close(both.params, uncut.client(whole, n).params, TOL)
  for a, b in zip(told, told_whole, strict=True):
    np.testing.assert_allclose(
      a.losses["server"], b.losses["client"], rtol=1e-10
    )


@functools.cache
def multi_exit():
  return toys.train(ragged(), METHODS["multi_exit"](NET, SGD))


@pytest.mark.slow
def test_harmony_without_its_parts_is_multi_exit():
  # Its first view is drawn as the only view of the other is.
  method = harmony(
    NET,
    SGD,
    inner_steps=0,
    csa_weight=0.0,
    stochastic_depth=False,
    wire_dtype="float32",
  )
  place, (plain, told_plain) = ragged(), multi_exit()
  state, told = toys.train(place, method)
  assert_moved(place, state)
  same_state(place, state, plain)
  for a, b in zip(told, told_plain, strict=True):
    for name in ("client", "server"):
      np.testing.assert_allclose(a.losses[name], b.losses[name], rtol=1e-10)
  head, embedding = 8 * 3 + 3, 8  # of 27 samples in 3 + 2 + 2 + 1 steps
  u_shape = {
    "down/server_head": 4 * head * 8,
    "down/embeddings": 27 * embedding * 4,
    "up/embedding_gradient": 27 * embedding * 4,
    "up/head_gradient": 8 * head * 8,
  }
  check_ledger(told, u_shape)


def check_ledger(told, extra):
  """The messages of a round, of clients with exits, and others."""
  # Padded samples and padded steps cost nothing. Depth 1 is 5 wide, depth 2
  # is 7; two clients of each. Parameters are sent as they are, in float64.
  block1, block2, exit1, exit2 = 16 * 5 + 5, 5 * 7 + 7, 5 * 3 + 3, 7 * 3 + 3
  features = ((10 + 4) * 5 + (6 + 7) * 7) * 4
  want = {"up/features": features, "down/feature_gradient": features, **extra}
  for way in ("up", "down"):
    want[f"{way}/prefix"] = (4 * block1 + 2 * block2) * 8
    want[f"{way}/exit"] = (2 * exit1 + 2 * exit2) * 8
  for metrics in told:
    assert {k: float(size) for k, size in metrics.wire.items()} == want
    assert int(metrics.participants) == 4


def test_ledger_of_a_round():
  _, told = multi_exit()
  check_ledger(told, {"up/labels": 27 * 4})


def of_task(task):
  """SplitFed v1 whose server averages over the clients of one task alone."""
  plain = splitfed_v1(NET, SGD, mean="uniform")

  def begin(client, server, samples, round, key):
    client, server, down = plain.begin(client, server, samples, round, key)
    mine = (samples.shard.counts.argmax() == task).astype(float)
    return client, server._replace(memory=mine), down

  def contribute(client, server, weight):
    every = rule.contribute(client, server, weight)
    return Sums(
      *every[:2], *rule.contribute(client, server, weight * server.memory)[2:]
    )

  rule = plain.aggregation
  return plain._replace(
    begin=begin, aggregation=rule._replace(contribute=contribute)
  )


@pytest.mark.slow
def test_a_part_two_of_multi_head_is_splitfeds_of_its_task():
  place, method = ragged(), multi_head(NET, SGD)
  state, _ = toys.train(place, method, 1)
  counts = [np.asarray(shard.counts) for shard in place.shards]
  tasks = set(np.concatenate(counts).argmax(axis=1).tolist())
  assert 1 < len(tasks) < toys.CLASSES
  for task in tasks:
    alone, _ = toys.train(place, of_task(task), 1)
    own = trees.take(state.server.segment, task)
    toys.assert_close(own, alone.server.segment, TOL)
    for n in range(len(DEPTHS)):
      toys.assert_close(place.client(state, n), place.client(alone, n), TOL)
  # One that no client trained answers nothing.
  assert set(np.flatnonzero(state.server.memory)) == tasks
  image = jnp.asarray(toys.stock()[0][:2], float)
  (cohort, *_) = state.clients
  logits = np.asarray(method.paths(cohort, state.server, image))
  assert set(np.flatnonzero((logits != UNSURE).all(axis=(1, 2)))) == tasks
