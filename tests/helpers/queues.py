"""Worlds with one server, whose clients are served in an order."""

import jax.numpy as jnp
import numpy as np
from engine import world

from splitjax.fleet import orders

SIZES = 10, 6, 7, 4
ROUNDS = 3


def ordered(name, *, turn=1, **options):
  """Four clients of depth 2 that are served in cycles."""
  made = world(name, depths=(2,), sizes=SIZES, **options)
  (shard,), (plan,) = made.shards, made.plans
  shard = orders.with_service_order(
    made.method,
    shard,
    plan,
    made.fleet,
    order="cyclic",
    turn=turn,
    rounds=ROUNDS,
    seed=0,
  )
  return made._replace(shards=(shard,))


def served(made, order):
  """The same clients, served in this order [Q] in every round."""
  (shard,) = made.shards
  taken = np.asarray(shard.service_order[:, 0]) >= 0
  table = np.full(shard.service_order.shape, orders.NO_TURN, np.int32)
  for client, steps in enumerate(taken):
    positions = np.flatnonzero(np.asarray(order) == client)
    table[client, :, steps] = positions[:, None]
  shard = shard._replace(service_order=jnp.asarray(table))
  return made._replace(shards=(shard,))
