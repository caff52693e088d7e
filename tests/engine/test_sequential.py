"""Rounds with one server equal plain loops and other methods, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from marks import slow
from queues import (
  NET,
  NORMED,
  SGD,
  TOL,
  one_by_one,
  ordered,
  with_order,
)
from refusals import refused

from splitjax import methods
from splitjax.engine import (
  TOPOLOGIES,
  Topology,
  TurnMetrics,
  begin_round,
  finish_round,
  local_step,
  ragged_steps,
  start_clients,
  step_with_faults,
)
from splitjax.methods import (
  METHODS,
  fedavg,
  hydra,
  mean_head,
  merge_sfl,
  splitfed_v2,
)
from splitjax.types import Half, Opt, Segment, Traits

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

ORDERS = {
  "cyclic": [0, 1, 2, 3, 0, 1, 2, 0],
  "permuted": [2, 0, 0, 3, 1, 2, 0, 1],
}


@pytest.mark.parametrize(
  ("name", "epochs"), [("splitfed_v2", 2), *slow(("splitnn", 1), ("hydra", 1))]
)
def test_a_round_is_a_loop_over_its_order(name, epochs):
  # Including running statistics.
  method = METHODS[name](NORMED, methods.sgd(0.02))
  servers = {}
  place = ordered(method, net=NORMED, epochs=epochs)
  state = toys.start(place, method)
  step = toys.compiled(place, method, state)
  for kind, order in ORDERS.items():
    order = order * epochs
    state = toys.start(place, method)
    before = jax.device_get(state.server.segment.stats)
    mean, server = one_by_one(place, method, state, order)
    after, metrics = step(state, with_order(place, order).shards)
    servers[kind] = after.server.segment.params
    toys.assert_close(after.server.segment, server.segment, TOL)
    assert toys.distance(after.server.segment.stats, before) > 1e-3
    for n in range(4):
      toys.assert_close(place.client(after, n), mean, TOL)
    assert not metrics.masked.any() and metrics.participants == 4
  # The order matters, and is data: one program served both.
  assert toys.distance(*servers.values()) > 1e-3


def in_visits(spec, inputs, group):
  """A topology of one's own: one server, each client's steps in one visit."""
  started = start_clients(spec, inputs, group)
  take = step_with_faults(spec.method.stages[0])
  step = functools.partial(local_step, spec.plan, take)

  def visit(server, one):
    client, data, schedule = one
    shard = inputs.shard(data)
    (client, server), (losses, ledger, _) = ragged_steps(
      step, (client, server), shard, schedule
    )
    return server, (client, TurnMetrics(losses, ledger, jnp.bool_(False)))

  clients = started.clients, group.data, started.schedules
  server, ended = jax.lax.scan(visit, started.server, clients)
  return finish_round(spec, inputs, group, started, ended[0], server, ended[1])


@pytest.mark.slow
def test_a_topology_of_ones_own_is_a_function_and_a_line(monkeypatch):
  topology = Topology(in_visits, one_server=True)
  monkeypatch.setitem(TOPOLOGIES, "visits", topology)
  method = splitfed_v2(NORMED, SGD)
  visited = method._replace(traits=method.traits._replace(topology="visits"))
  place = ordered(method, net=NORMED)
  in_turn = with_order(place, [0, 0, 0, 1, 1, 2, 2, 3])
  want, metrics = toys.train(in_turn, method)
  got, mine = toys.train(place, visited)
  assert_same_state(place, got, want)
  toys.assert_close(mine[-1].losses, metrics[-1].losses, TOL)


def test_an_unknown_topology_is_named():
  traits = Traits(topology="sequental")
  with refused("traits.topology"):
    methods.method(NET, SGD, (), traits=traits)


def test_the_mean_of_heads_is_over_those_that_moved():
  params = {"head": {"w": jnp.array([[1.0], [4.0], [8.0]])}}
  stats = {"head": {"mean": jnp.array([[2.0], [6.0], [1.0]])}}
  slots = {"head": jnp.array([0.0, 3.0, 9.0])}
  moved = {"head": jnp.array([False, True, True])}
  wrote = {"head": jnp.array([True, True, False])}
  opt = Opt(jnp.ones(3), slots, moved, wrote)
  one = mean_head(Half(Segment(params, stats), opt))
  assert one.segment.params["head"]["w"].tolist() == [6.0]
  assert one.segment.stats["head"]["mean"].tolist() == [4.0]
  assert bool(one.opt.touched["head"]) and bool(one.opt.wrote["head"])
  still = {"head": jnp.zeros(3, bool)}
  none = mean_head(
    Half(Segment(params, stats), Opt(opt.rate, slots, still, still))
  )
  assert none.segment.params["head"]["w"].tolist() == [1.0]


def assert_same_state(place, one, two):
  toys.assert_close(one.server.segment, two.server.segment, TOL)
  for n in range(len(place.depths)):
    toys.assert_close(place.client(one, n), place.client(two, n), TOL)


@pytest.mark.slow
def test_hydra_with_one_head_is_splitfed_v2():
  one_head = hydra(NET, SGD, groups=1, second_cut=3)
  place = ordered(one_head)
  one, metrics = toys.train(place, one_head)
  two, want = toys.train(place, splitfed_v2(NET, SGD))
  assert_same_state(place, one, two)
  toys.assert_close(metrics[2].losses, want[2].losses, TOL)
  # Each client sends its label counts once: 4 clients, 3 classes, 4 bytes.
  assert [float(t.wire["up/statistics"]) for t in metrics] == [48, 0, 0]


def test_label_counts_are_billed_to_each_client_when_it_first_takes_part():
  method = hydra(NET, SGD, second_cut=3)
  _, metrics = toys.train(ordered(method, participants=1), method, 8)
  known, want = set(), []
  for each in metrics:
    (who,) = np.flatnonzero(each.steps)
    want.append(0 if who in known else 4 * toys.CLASSES)
    known.add(who)
  assert [float(t.wire["up/statistics"]) for t in metrics] == want
  assert 0 < sum(want[1:]), "somebody came later"


@pytest.mark.slow
def test_merged_with_one_step_a_round_is_sgd_on_the_concatenation():
  sizes = (4, 2, 3)
  method = merge_sfl(NET, SGD, mean="size")
  cut = ordered(method, sizes=sizes)
  together = (sum(toys.parts_of(sizes), ()),)
  uncut = toys.world(NET, (4,), together, batch_size=sum(sizes))
  one, _ = toys.train(cut, method)
  two, _ = toys.train(uncut, fedavg(NET, SGD))
  joined = cut.client(one, 0).params | one.server.segment.params
  toys.assert_close(dict(joined), dict(uncut.client(two, 0).params), TOL)


@pytest.mark.slow
def test_l2_pulls_by_its_share_of_the_weights():
  after = {}
  for l2, on in ((0.0, "server"), (0.5, "server"), (0.5, "both")):
    method = splitfed_v2(NET, methods.sgd(0.1, 0.0), l2=l2, l2_on=on)
    place = ordered(method, sizes=(4,))
    start = toys.start(place, method)
    weights = place.client(start, 0).params, start.server.segment.params
    weights = jax.tree.map(np.asarray, weights)
    state, _ = toys.train(place, method, 1)
    after[l2, on] = place.client(state, 0).params, state.server.segment.params
  for on, share in (("server", (0, 1)), ("both", (1, 1))):
    for part in (0, 1):
      pulled = jax.tree.map(
        lambda x, w, s=share[part]: x - 0.1 * 0.5 * s * w,
        after[0.0, "server"][part],
        weights[part],
      )
      toys.assert_close(after[0.5, on][part], pulled, TOL)


def test_part_2b_begins_at_the_second_cut():
  method = hydra(NET, SGD, second_cut=3)
  place = ordered(method)
  pair = begin_round(method, place.plans[0], toys.visit(place, method))[:2]
  assert pair[1].memory.segment.params.keys() == {"block4", "head"}
