"""Many clients' rounds at once: the vmap over clients.

The clients of a cohort are a vmap over `turn.client_round`, chunks of them a
scan around it. A method never sees more than one client.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.base import (
  CohortPlan,
  Common,
  Group,
  RoundSums,
  apply_faults,
  finite,
)
from splitjax.engine.client_update import client_round
from splitjax.types import Array, Half, Shard


def train_clients(
  cohort_plan: CohortPlan, common: Common, group: Group
) -> tuple[tuple[Half, Array], RoundSums]:
  """Trains clients at once: vmap over `client_round`, then sums.

  A client whose halves or losses are not finite is masked: it has sent what it
  has sent, but weighs nothing, tells no loss and stays as it was.

  Returns:
    The clients after the round and [n] bool, whose work counts (all others
    are unchanged); and what they leave.
  """

  def one(client, own, key, on):
    shard = Shard(common.image, common.label, *own)
    fault, on, met = apply_faults(cohort_plan, common, shard, on)
    pair, when = (client, common.server), (common.round, key)
    participating = (
      on if cohort_plan.idle or cohort_plan.faults is not None else None
    )
    client, copy, losses, ledger, had = client_round(
      cohort_plan.method,
      cohort_plan.plan,
      *pair,
      shard,
      *when,
      fault,
      participating,
    )
    counts = on & finite((client, copy, losses))
    present, counted = on.astype(float), counts.astype(float)
    found = RoundSums(
      cohort_plan.method.contribute(client, copy, counted * shard.size),
      wire.weigh(losses, counted),
      {k: counted * (had[k] > 0) if had else counted for k in losses},
      wire.weigh(ledger, present),
      present,
      present - counted,
      met,
    )
    return client, counts, found

  new, counts, found = jax.vmap(one)(*group)
  number = Shard(common.image, common.label, *group.own).number
  masked = jnp.zeros(cohort_plan.num_clients).at[number].add(found.masked)
  found = trees.total(found._replace(masked=()))._replace(masked=masked)
  return (trees.where(counts, new, group.clients), counts), found


def train_cohort(
  cohort_plan: CohortPlan, common: Common, group: Group
) -> tuple[tuple[Half, Array], RoundSums]:
  """Trains a device's clients of one cohort, job.chunk of them at a time.

  A chunk leaves its sums and nothing else, so no more than `chunk` copies of
  the server exist at once.

  Args:
    cohort_plan: what they do.
    common: what they share.
    group: the clients, a multiple of the chunk.

  Returns:
    As `side_by_side`; what is found stacked by chunk if job.ordered.
  """
  n = group.keys.shape[0]
  chunk = n if cohort_plan.chunk is None else cohort_plan.chunk
  if chunk == n and not cohort_plan.ordered:
    return train_clients(cohort_plan, common, group)

  # Jitted for its cache: the shapes of the sums and the scan share one trace.
  train = jax.jit(functools.partial(train_clients, cohort_plan), inline=True)

  def next_chunk(carry, start):
    # In place: the clients are carried, and each chunk written where it lay.
    clients, total = carry
    mine = trees.window(group._replace(clients=clients), start, chunk)
    (new, counts), found = train(common, mine)
    clients = trees.put_window(clients, start, new)
    if cohort_plan.ordered:
      return (clients, total), (counts, found)
    return (clients, trees.add(total, found)), (counts, None)

  def sums_of_one(group):
    return train(common, trees.window(group, 0, chunk))[1]

  total: Any = ()
  if not cohort_plan.ordered:
    total = trees.zeros(jax.eval_shape(sums_of_one, group))
  (clients, total), (counts, each) = jax.lax.scan(
    next_chunk, (group.clients, total), jnp.arange(0, n, chunk)
  )
  return (clients, counts.reshape(n)), each if cohort_plan.ordered else total
