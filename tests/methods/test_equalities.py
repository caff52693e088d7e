"""Methods that must agree do so through compiled rounds, in float64.

Both sides compute one formula, fused differently, for three rounds; parameters
are of order 1 and move by at least 0.05.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from marks import slow

from splitjax import trees
from splitjax.engine import batch_schedule, client_update
from splitjax.engine.rounds import aggregate
from splitjax.methods import METHODS, optimizers
from splitjax.methods.fedavg import fedavg
from splitjax.methods.harmony import harmony
from splitjax.methods.multi_head import UNSURE, multi_head
from splitjax.methods.splitfed import splitfed_v1
from splitjax.methods.splitgp import splitgp
from splitjax.types import Segment, Shard, Sums

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = optimizers.sgd(0.1)
SIZES = 10, 6, 7, 4
DEPTHS = 1, 2, 2, 1
TOL = 1e-10
WAYS = "up", "down"


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


@pytest.mark.slow
def test_splitgp_without_client_loss_is_splitfed():
  place = ragged()
  state, told = toys.train(place, splitgp(NET, SGD, gamma=0.0, lam=0.0))
  plain, told_plain = toys.train(place, splitfed_v1(NET, SGD))
  assert_moved(place, state)
  same_state(place, state, plain)
  for a, b in zip(told, told_plain, strict=True):
    np.testing.assert_allclose(
      a.losses["server"], b.losses["server"], rtol=1e-10
    )


@functools.cache
def multi_exit():
  return toys.train(ragged(), METHODS["multi_exit"](NET, SGD))


@functools.cache
def bare_harmony():
  method = harmony(
    NET,
    SGD,
    inner_steps=0,
    csa_weight=0.0,
    stochastic_depth=False,
    wire_dtype="float32",
  )
  return toys.train(ragged(), method)


@pytest.mark.slow
def test_harmony_without_its_parts_is_multi_exit():
  # Its first view is drawn as the only view of the other is.
  place, (state, told), (plain, told_plain) = (
    ragged(),
    bare_harmony(),
    multi_exit(),
  )
  assert_moved(place, state)
  same_state(place, state, plain)
  for a, b in zip(told, told_plain, strict=True):
    for name in ("client", "server"):
      np.testing.assert_allclose(a.losses[name], b.losses[name], rtol=1e-10)


def test_ledger_of_a_round():
  # Padded samples and padded steps cost nothing. Depth 1 is 5 wide, depth 2
  # is 7; two clients of each, with 27 samples and 3 + 2 + 2 + 1 steps.
  block1, block2, head = 16 * 5 + 5, 5 * 7 + 7, 8 * 3 + 3
  exit1, exit2 = 5 * 3 + 3, 7 * 3 + 3
  width = 8  # parameters are sent as they are, here in float64
  features = ((10 + 4) * 5 + (6 + 7) * 7) * 4
  common = {
    "up/features": features,
    "down/feature_gradient": features,
    **{f"{way}/prefix": (4 * block1 + 2 * block2) * width for way in WAYS},
    **{f"{way}/exit": (2 * exit1 + 2 * exit2) * width for way in WAYS},
  }
  u_shape = {
    "down/server_head": 4 * head * width,
    "down/embeddings": 27 * 8 * 4,
    "up/embedding_gradient": 27 * 8 * 4,
    "up/head_gradient": 8 * head * width,
  }
  _, plain = multi_exit()
  _, u = bare_harmony()
  for told, extra in ((plain, {"up/labels": 27 * 4}), (u, u_shape)):
    for metrics in told:
      sizes = {name: float(size) for name, size in metrics.wire.items()}
      assert sizes == {**common, **extra}
      assert int(metrics.participants) == 4


@pytest.mark.slow
def test_twins_are_one():
  # Every batch is all of a client's data, so that the draws do not matter.
  rows = toys.parts_of((7,)) * 3
  alone = toys.world(NET, (2,), rows[:1], batch_size=7, epochs=2)
  twins = toys.world(NET, (2, 2, 2), rows, batch_size=7, epochs=2)
  method = splitgp(NET, SGD, lam=0.3)
  one, _ = toys.train(alone, method)
  three, _ = toys.train(twins, method)
  assert_moved(alone, one)
  for n in range(3):
    toys.assert_close(twins.client(three, n), alone.client(one, 0), TOL)
  toys.assert_close(three.server.segment, one.server.segment, TOL)


@pytest.mark.parametrize(
  "name",
  [
    "splitgp",
    *slow("fedavg", "harmony", "multi_exit", "splitfed_v1", "local"),
  ],
)
def test_the_mean_of_one_pair_is_that_pair(name):
  method = METHODS[name](NET, optimizers.sgd(0.1, weight_decay=0.01))
  depth = NET.length if method.traits.depth == "full" else 1
  place = toys.world(NET, (depth,), toys.parts_of((10,)), epochs=2)

  def play(state, shard):
    """One round of the only client, and what aggregation makes of it."""
    first, shard = jax.tree.map(
      lambda x: x[0], (state.clients[0], tuple(shard[2:]))
    )
    visit = batch_schedule.Visit(
      first,
      state.server,
      Shard(*place.shards[0][:2], *shard),
      state.round,
      state.key,
    )
    client, server, *_ = client_update.client_round(
      method, place.plans[0], visit
    )
    sums = method.aggregation.contribute(client, server, jnp.asarray(10, float))
    stacked = jax.tree.map(lambda x: x[None], client)
    on = jnp.array([True])
    after = aggregate(method.aggregation, state, (stacked,), (on,), sums)
    return client, server, after

  state = toys.start(place, method)
  args = state, place.shards[0]
  client, server, new = toys.hasty(play, *args)(*args)
  # Times a weight, divided by it: two roundings.
  toys.assert_close(place.client(new, 0), client.segment, 0, 1e-13)
  toys.assert_close(new.server.segment, server.segment, 0, 1e-13)
  assert toys.distance(client.segment, place.client(state, 0)) > 0.05


@pytest.mark.slow
def test_clients_that_keep_all_of_themselves_train_alone():
  # gamma = 1: nothing of the common server reaches them either. In company,
  # client 3 has two steps a round that are padding altogether: they change
  # nothing and do not count in the mean of its losses.
  parts, method = toys.parts_of(SIZES), splitgp(NET, SGD, gamma=1.0, lam=1.0)
  place = toys.world(NET, DEPTHS, parts, numbers=(0, 3))
  state, told = toys.train(place, method)
  origin = toys.start(place, method)
  toys.assert_close(state.server.segment, origin.server.segment, TOL)
  losses = []
  for n in (0, 3):
    lone = toys.world(NET, DEPTHS, parts, numbers=(n,))
    alone, mine = toys.train(lone, method)
    losses.append([float(metrics.losses["client"]) for metrics in mine])
    task, participating = place.client(state, n), lone.client(alone, n)
    toys.assert_close(task, participating, TOL)
    assert toys.distance(task, place.client(origin, n)) > 0.05
  got = [float(metrics.losses["client"]) for metrics in told]
  assert got == pytest.approx(list(np.mean(losses, axis=0)), rel=1e-10)


@pytest.mark.slow
def test_the_order_of_clients_does_not_matter():
  # Every batch is all of a client's data, so that the draws do not matter.
  parts, order = toys.parts_of((9, 6, 7, 4)), (3, 2, 1, 0)
  place, other = (
    toys.world(NET, DEPTHS, held, batch_size=9, epochs=2)
    for held in (parts, tuple(parts[n] for n in order))
  )
  method = splitgp(NET, SGD, lam=0.2)
  states = [toys.start(place, method) for _ in range(2)]
  step = toys.compiled(place, method, states[0])
  for _ in range(3):
    states = [
      step(state, task.shards)[0]
      for state, task in zip(states, (place, other), strict=True)
    ]
  a, b = states
  assert_moved(place, a)
  toys.assert_close(a.server.segment, b.server.segment, TOL)
  for new, old in enumerate(order):
    toys.assert_close(other.client(b, new), place.client(a, old), TOL)
    assert toys.distance(place.client(b, new), place.client(a, new)) > 0.01


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
