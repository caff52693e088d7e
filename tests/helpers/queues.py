"""Small worlds of clients in line, and a round of them as a Python loop."""

import jax
import jax.numpy as jnp
import numpy as np
import world_of_toys as toys

from splitjax import trees
from splitjax.engine import base, client_order, client_update
from splitjax.engine.base import ROUND
from splitjax.methods import optimizer
from splitjax.types import Shard

NET = toys.network((2,))
NORMED = toys.network((2,), True)
SGD = optimizer.sgd(0.1)
SIZES = 10, 6, 7, 4
TOL = 5e-6
NEAR = 3e-4, 3e-4
"""Absolute and relative, through batch normalisation, which divides."""

ROUNDS = 3


def lined(method, sizes=SIZES, order="cyclic", each=1, net=NET, **options):
  """Clients of one depth, in line."""
  depths = (2,) * len(sizes)
  place = toys.world(net, depths, toys.parts_of(sizes), **options)
  (shard,), (plan,) = place.shards, place.plans
  stood = client_order.with_service_order(
    method, shard, plan, order=order, turn=each, rounds=ROUNDS, seed=0
  )
  return place._replace(shards=(stood,))


def with_line(place, line):
  """The same clients, served in this order [Q] in every round."""
  (shard,) = place.shards
  table = np.full(shard.turns.shape, client_order.NOBODY, np.int32)
  for who, participating in enumerate(np.asarray(shard.turns[:, 0]) >= 0):
    table[who, :, participating] = np.flatnonzero(np.asarray(line) == who)[
      :, None
    ]
  return place._replace(shards=(shard._replace(turns=jnp.asarray(table)),))


def one_by_one(place, method, state, line):
  """A round as a Python loop over the line, client by client."""
  (shard,), (plan,), (clients,) = place.shards, place.plans, state.clients
  key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
  keys = base.client_keys(jax.random.split(key)[1], shard.number)
  count = len(shard.number)
  own = [Shard(*shard[:2], *trees.take(shard[2:], n)) for n in range(count)]
  halves, walks, server = [], [], state.server
  for n in range(count):
    half, awake, _, walk = client_update.begin_round(
      method,
      plan,
      trees.take(clients, n),
      state.server,
      own[n],
      state.round,
      keys[n],
    )
    halves.append(half), walks.append(walk)
  server = awake
  left = [np.flatnonzero(walk.real.any(axis=1)).tolist() for walk in walks]

  @jax.jit
  def step(pair, shard, walk, t):
    return client_update.local_step(
      plan, client_update.step_with_faults(method, None), pair, shard, walk, t
    )

  for n in line:
    at = 0 if method.topology == "relay" else n
    seen, group = server, own[n].group
    if method.group is not None:
      seen = server._replace(memory=trees.take(server.memory, group))
    pair, _ = step((halves[at], seen), own[n], walks[n], left[n].pop(0))
    halves[at], after = pair
    if method.group is not None:
      memory = trees.put(server.memory, group, after.memory)
      after = after._replace(memory=memory)
    server = after
  assert not any(left)
  if method.topology == "relay":
    halves = [halves[0]] * count
  mean = jax.tree.map(lambda *x: sum(x) / count, *(h.segment for h in halves))
  ended = [method.finish(half, server, None, None) for half in halves]
  slots = [client.opt for client, _, _ in ended]
  return mean, ended[0][1], slots
