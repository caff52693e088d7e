"""Rounds with one server equal plain loops and other methods, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from worlds import (
  assert_close,
  distance,
  networks,
  of_kind,
  one_client,
  one_shard,
  ordered,
  served,
  world,
)

from splitjax import trees
from splitjax.engine import loops, round
from splitjax.engine.loops import TOPOLOGIES
from splitjax.engine.round import ROUND
from splitjax.engine.visit import ClientRound, Pair
from splitjax.methods import means_of
from splitjax.methods.splitfed import SplitFedV2
from splitjax.parameters import pytree
from splitjax.simulation.sandbox import CLASSES

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

TOLERANCE = 1e-9
"""In float64."""

ORDERS = {
  "cyclic": [0, 1, 2, 3, 0, 1, 2, 0],
  "permuted": [2, 0, 0, 3, 1, 2, 0, 1],
}


def one_by_one(made, state, order):
  """A round as a Python loop over the order, step by step.

  Returns:
    The mean of the clients' networks, and the server's network.
  """
  (shards,), (plan,), (clients,) = made.shards, made.plans, state.clients
  method, relay = made.method.at(state.round), made.method.topology == "relay"
  key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
  key = jax.random.fold_in(key, 1)

  def in_round(n):
    shard = one_shard(shards, n)
    return one_client(
      made.method, plan, trees.take(clients, n), state.server, shard,
      state.round, jax.random.fold_in(key, shard.number),
    )  # fmt: skip

  @jax.jit
  def begin(n):
    client_round = in_round(n)
    pair, context, _ = client_round.download()
    return pair, context, client_round.schedules[0].taken

  @jax.jit
  def step(n, client, server, context, t):
    lent = method.lend(server, context)
    pair, _ = in_round(n).step(0, Pair(client, lent), context, t)
    return pair.half, method.take_back(server, context, pair.copy)

  # Download.
  halves, contexts, left = [], [], []
  for n in range(len(shards.number)):
    (client, server), context, taken = begin(n)
    halves.append(client)
    contexts.append(context)
    left.append(np.flatnonzero(taken).tolist())

  # The steps, in order.
  for n in order:
    place = 0 if relay else n
    halves[place], server = step(
      n, halves[place], server, contexts[n], left[n].pop(0)
    )
  assert not any(left)

  # Upload.
  halves = halves[:1] if relay else halves
  networks = [half.net for half in halves]
  mean = jax.tree.map(lambda *x: sum(x) / len(x), *networks)
  shares = method.copies(server, (), jnp.ones(()))
  return mean, means_of(shares, state.server.net)


@pytest.mark.parametrize(
  ("name", "epochs"), [("splitfed_v2", 2), *slow(("splitnn", 1), ("hydra", 1))]
)
def test_a_round_is_a_loop_over_its_order(name, epochs):
  # Including running statistics.
  made = ordered(name, outer=(("lr", 0.02),), batch_norm=True, epochs=epochs)
  servers, programs = {}, round.run_round._cache_size()
  for kind, order in ORDERS.items():
    order = order * epochs
    state = made.start(made.method)
    before = jax.device_get(state.server.net.stats)
    mean, server = one_by_one(made, state, order)
    place = served(made, order)
    after, metrics = place.round(place.method, state)
    servers[kind] = after.server.net.params
    assert_close(after.server.net, server, TOLERANCE)
    assert distance(after.server.net.stats, before) > 1e-3
    for net in networks(place, after):
      assert_close(net, jax.device_get(mean), TOLERANCE)
    assert not metrics.masked.any() and metrics.participants == 4
  # The order matters, and is data: one program served both.
  assert distance(*servers.values()) > 1e-3
  assert round.run_round._cache_size() == programs + 1


def in_visits(group):
  """A topology of one's own: one server, each client's steps in one visit."""
  crowd = loops.begin(group)

  def visit(server, row):
    client, context, visit = row
    alone = ClientRound(group.method, group.plan, group.common, visit)
    pair, tally = alone.run_stage(0, Pair(client, server), context, True)
    return pair.copy, (pair.half, tally)

  rows = crowd.halves, crowd.contexts, group.visits
  server, (clients, tally) = jax.lax.scan(visit, crowd.server_half, rows)
  crowd = crowd.after(clients, server, tally)
  return loops.end(group, crowd, jnp.zeros(group.clients, bool))


@pytree
class Visited(SplitFedV2):
  """SplitFed with this topology."""

  topology = "visits"


@pytest.mark.slow
def test_a_topology_of_ones_own_is_a_function_and_a_line(monkeypatch):
  monkeypatch.setitem(TOPOLOGIES, "visits", in_visits)
  made = ordered("splitfed_v2", batch_norm=True)
  want, metrics = play(served(made, [0, 0, 0, 1, 1, 2, 2, 3]))
  got, other = play(of_kind(made, Visited))
  assert_close(got, want, TOLERANCE)
  assert_close(other[-1].losses, metrics[-1].losses, TOLERANCE)


def play(made, rounds=3):
  """(Networks, the server's) after some rounds, and all metrics."""
  state, metrics = made.start(made.method), []
  for _ in range(rounds):
    state, of_round = made.round(made.method, state)
    metrics.append(jax.device_get(of_round))
  return (networks(made, state), jax.device_get(state.server.net)), metrics


def test_label_counts_are_billed_to_each_client_when_it_first_takes_part():
  options = {"options": (("second_cut", 3),), "participants": 1}
  _, metrics = play(ordered("hydra", **options), 8)
  known, want = set(), []
  for of_round in metrics:
    (who,) = np.flatnonzero(of_round.steps)
    want.append(0 if who in known else 4 * CLASSES)
    known.add(who)
  assert [float(t.wire["up/statistics"]) for t in metrics] == want
  assert 0 < sum(want[1:]), "somebody came later"


@pytest.mark.slow
def test_merged_with_one_step_a_round_is_sgd_on_the_concatenation():
  sizes = (4, 2, 3)
  options = {"options": (("mean", "size"),), "depths": (2,)}
  cut = world("merge_sfl", sizes=sizes, **options)
  uncut = world("fedavg", sizes=(sum(sizes),), batch=sum(sizes), depths=(2,))
  # The same samples of the data set: those of three clients.
  rows = np.concatenate([rows[rows >= 0] for rows in cut.shards[0].rows])
  shard = cut.shards[0]._replace(
    rows=jnp.array(rows)[None],
    size=jnp.array([len(rows)]),
    counts=shard_sum(cut.shards[0].counts),
    number=jnp.zeros(1, jnp.int32),
  )
  uncut = uncut._replace(shards=(shard,))
  (held, server), _ = play(cut)
  (want, _), _ = play(uncut)
  assert_close(held[0].params | server.params, want[0].params, TOLERANCE)


def shard_sum(counts):
  """Counts of all clients as those of one."""
  return counts.sum(axis=0, keepdims=True)
