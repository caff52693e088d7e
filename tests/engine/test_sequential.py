"""Rounds with one server: loops, orders, turns, the cost of handing on."""

import dataclasses
import re

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
  planned,
  play,
  rounds,
  same_bits,
  served,
  spoilt,
  world,
)

from splitjax import METHODS, trees
from splitjax.engine import loops, round
from splitjax.engine.loops import TOPOLOGIES
from splitjax.engine.round import ROUND, run_round
from splitjax.engine.visit import ClientRound, Pair
from splitjax.fleet.orders import ORDERS, Queue
from splitjax.methods import means_of
from splitjax.methods.splitfed import SplitFedV2
from splitjax.parameters import pytree
from splitjax.simulation.sandbox import CLASSES

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

TOLERANCE = 1e-9
"""In float64."""

SERVED = {
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
  for kind, order in SERVED.items():
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
  want = play(served(made, [0, 0, 0, 1, 1, 2, 2, 3]), 3)
  got = play(of_kind(made, Visited), 3)
  assert_close(got[1:3], want[1:3], TOLERANCE)
  assert_close(got.metrics.losses, want.metrics.losses, TOLERANCE)


def test_label_counts_are_billed_to_each_client_when_it_first_takes_part():
  options = {"options": (("second_cut", 3),), "participants": 1}
  _, metrics = rounds(ordered("hydra", **options), 8)
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
  got, want = play(cut, 3), play(uncut, 3).networks[0].params
  whole = got.networks[0].params | got.server.params
  assert_close(whole, want, TOLERANCE)


def shard_sum(counts):
  """Counts of all clients as those of one."""
  return counts.sum(axis=0, keepdims=True)


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
    state, (metrics,) = rounds(place)
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
  # The first step is longer than what may be summed.
  made = ordered("splitfed_v2", outer=(("lr", 3e38), ("momentum", None)))
  before = jax.device_get(made.start(made.method).server.net)
  state, (metrics,) = rounds(made)
  assert metrics.masked.all()
  assert_close(jax.device_get(state.server.net), before, 0.0)


@pytest.mark.parametrize("name", ["splitfed_v2", "merge_sfl"])
def test_dropped_clients_cost_no_turn_and_leave_the_server(name):
  made = world(name, outer=(("weight_decay", 0.1),), batch_norm=True)
  place = planned(made, dropped=np.ones((6, 1), bool))
  state, (metrics,) = rounds(place)
  assert metrics.participants == 0 and metrics.wire["up/labels"] == 0
  assert_close(state.server.net, place.start(place.method).server.net, 0.0)


def prefix_bytes(made):
  """The size of part-1."""
  return trees.num_bytes(networks(made, made.start(made.method))[0].params)


def test_splitnn_pays_for_every_hand_over():
  made = ordered("splitnn")
  size = prefix_bytes(made)
  # The first client gets part-1 from the server. In the second round it is
  # handed on by the last client of the first, unless that is the same one.
  for order, *turns in (
    ([0, 1, 2, 3, 0, 1, 2, 0], (7, 8), (7, 7)),
    ([0, 0, 0, 1, 1, 2, 2, 3], (3, 4), (4, 4)),
  ):
    place = served(made, order)
    for (up, down), metrics in zip(turns, rounds(place, 2)[1], strict=True):
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
  size = prefix_bytes(place)
  _, (_, metrics) = rounds(place, 2)
  # Client 3, who was last, is first: it hands on to 0, which does to 1 and 2.
  assert metrics.wire["up/prefix"] == metrics.wire["down/prefix"] == 3 * size


@pytest.mark.slow
def test_who_misses_a_round_hands_nothing_on():
  # Two of four clients take part: who had part-1 last is not known, and the
  # first client of a later round counts as another.
  made = ordered("splitnn", participants=2)
  made = served(made, [0, 0, 0, 1, 1, 2, 2, 3])
  size = prefix_bytes(made)
  ledgers = [metrics.wire for metrics in rounds(made, 2)[1]]
  sent = [[x["up/prefix"], x["down/prefix"]] for x in ledgers]
  assert sent == [[size, 2 * size], [2 * size, 2 * size]]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_turn_copies_no_other_client():
  made = world("splitfed_v2", sizes=(8,) * 32)
  inputs = made.method, made.start(made.method), made.shards
  text = run_round.lower(*inputs, **made.how).compile().as_text()
  loops, entry = text.split("\nENTRY ")
  stack = r"f64\[32,16,8\]"  # of all clients' first kernels
  assert re.search(stack, loops + entry)
  assert not re.search(rf"= {stack}\S* copy\(", loops)


# Six clients; 0 and 3 have label 1, 1 and 4 label 0, 2 and 5 label 2.
LABEL = np.array([1, 0, 2, 1, 0, 2])
EVEN = Queue("cyclic", rounds=1, seed=0, steps=np.full(6, 2), group=LABEL)
RAGGED = EVEN._replace(steps=np.array([3, 1, 2, 3, 2, 1]))


@pytest.mark.parametrize("turn", [1, 2, 100])
@pytest.mark.parametrize("spec", [EVEN, RAGGED], ids=["even", "ragged"])
@pytest.mark.parametrize("name", ORDERS)
def test_every_batch_is_served_once(name, spec, turn):
  order = ORDERS[name](spec._replace(turn=turn), 3)
  assert order.dtype == np.int32
  np.testing.assert_array_equal(np.bincount(order, minlength=6), spec.steps)


def labels(order):
  return LABEL[order].tolist()


def test_a_cycle_goes_through_the_labels_one_after_another():
  order = ORDERS["cyclic"](EVEN, 0)
  once, again = order[:6], order[6:]
  np.testing.assert_array_equal(once, again)
  order_of_labels = labels(once)
  assert order_of_labels[::2] == order_of_labels[1::2] and sorted(
    order_of_labels[::2]
  ) == [0, 1, 2]
  assert all(a < b for a, b in once.reshape(3, 2))  # by number
  np.testing.assert_array_equal(ORDERS["cyclic"](EVEN, 7), order)


def test_the_order_of_labels_is_the_seeds():
  orders = {
    tuple(ORDERS["cyclic"](EVEN._replace(seed=s), 0)) for s in range(20)
  }
  assert len(orders) > 1


def test_every_other_cycle_runs_back():
  forth = ORDERS["cyclic"](EVEN, 0)[:6]
  order = ORDERS["cyclic_reverse"](EVEN, 0)
  np.testing.assert_array_equal(order, [*forth, *forth[::-1]])
  # Three cycles a round: the second round begins backwards.
  three = EVEN._replace(steps=np.full(6, 3))
  order = ORDERS["cyclic_reverse"](three, 1)
  np.testing.assert_array_equal(order, [*forth[::-1], *forth, *forth[::-1]])


def test_a_long_turn_is_served_in_a_row():
  order = ORDERS["cyclic"](EVEN._replace(turn=2), 0)
  assert (order[::2] == order[1::2]).all()
  order = ORDERS["random"](RAGGED._replace(turn=100), 0)
  assert (np.diff(order) != 0).sum() == 5  # one turn each


def test_clients_without_batches_left_are_skipped():
  order = ORDERS["cyclic"](RAGGED, 0)
  assert set(order[:6]) == set(range(6))
  assert set(order[6:10]) == {0, 2, 3, 4} and set(order[10:]) == {0, 3}


def test_random_clients_are_served_to_their_end():
  order = ORDERS["random_clients"](RAGGED, 0)
  assert (np.diff(order) != 0).sum() == 5
  assert ORDERS["random_clients"](RAGGED, 1).tolist() != order.tolist()


def test_random_turns_are_uniform_among_those_with_batches_left():
  first = [ORDERS["random"](RAGGED, r)[0] for r in range(3000)]
  counts = np.bincount(first, minlength=6)
  assert abs(counts - 500).max() < 5 * np.sqrt(500 * 5 / 6)
  # Any client may come last.
  last = [ORDERS["random"](EVEN._replace(seed=s), 0)[-1] for s in range(50)]
  assert len(set(last)) == 6
