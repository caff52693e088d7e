"""Worlds with one server, and a sequential round as a Python loop."""

import jax
import jax.numpy as jnp
import numpy as np
import toy_world as toys

from splitjax import engine, methods, trees
from splitjax.engine import ROUND, topology_of
from splitjax.types import Shard

NET = toys.network((2,))
NORMED = toys.network((2,), True)
SGD = methods.sgd(0.1)
SIZES = 10, 6, 7, 4
TOL = 1e-9
"""In float64."""

ROUNDS = 3


def ordered(method, sizes=SIZES, turn=1, net=NET, **options):
  """Clients of depth 2 with a service order."""
  depths = (2,) * len(sizes)
  place = toys.world(net, depths, toys.parts_of(sizes), **options)
  (shard,), (plan,) = place.shards, place.plans
  shard = engine.with_service_order(
    method, shard, plan, order="cyclic", turn=turn, rounds=ROUNDS, seed=0
  )
  return place._replace(shards=(shard,))


def with_order(place, order):
  """The same clients, served in this order [Q] in every round."""
  (shard,) = place.shards
  taken = np.asarray(shard.service_order[:, 0]) >= 0
  table = np.full(shard.service_order.shape, engine.NO_TURN, np.int32)
  for client, steps in enumerate(taken):
    positions = np.flatnonzero(np.asarray(order) == client)
    table[client, :, steps] = positions[:, None]
  shard = shard._replace(service_order=jnp.asarray(table))
  return place._replace(shards=(shard,))


def one_by_one(place, method, state, order):
  """A round as a Python loop over the order, step by step.

  Returns:
    The mean of the clients' segments, and the server half after the upload.
  """
  (shard,), (plan,), (clients,) = place.shards, place.plans, state.clients
  key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
  keys = engine.client_keys(jax.random.split(key)[1], shard.number)
  count = len(shard.number)
  own = [Shard(*shard[:2], *trees.take(shard[2:], n)) for n in range(count)]

  @jax.jit
  def begin(half, shard, key):
    visit = engine.Visit(half, state.server, shard, state.round, key)
    pair = engine.begin_round(method, plan, visit)[:2]
    return *pair, engine.draw_schedule(method, plan, visit)

  # Download.
  halves, schedules = [], []
  for n in range(count):
    half, server, drawn = begin(trees.take(clients, n), own[n], keys[n])
    halves.append(half)
    schedules.append(drawn)
  left = [np.flatnonzero(s.real.any(axis=1)).tolist() for s in schedules]

  @jax.jit
  def step(pair, shard, schedule, t):
    take = engine.step_with_faults(method.stages[0])
    return engine.local_step(plan, take, pair, shard, schedule, t)

  # The steps, in order.
  for n in order:
    at = 0 if topology_of(method.traits).hands_on else n
    before, group = server, own[n].group
    if method.group is not None:
      before = server._replace(memory=trees.take(server.memory, group))
    pair, _ = step((halves[at], before), own[n], schedules[n], left[n].pop(0))
    halves[at], after = pair
    if method.group is not None:
      memory = trees.put(server.memory, group, after.memory)
      after = after._replace(memory=memory)
    server = after
  assert not any(left)

  # Upload.
  if topology_of(method.traits).hands_on:
    halves = [halves[0]] * count
  mean = jax.tree.map(lambda *x: sum(x) / count, *(h.segment for h in halves))
  return mean, method.finish(halves[0], server, None, None)[1]
