"""Parallel rounds: a vmap over clients, each with its own copy of the server.

A vmap maps `client_update.client_round` over the clients of a chunk (a single
client is not vmapped), and a scan around it runs the chunks of a cohort. A
method never sees more than one client.
"""

import functools

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.base import (
  CohortSpec,
  Participants,
  RoundInputs,
  RoundSums,
  apply_faults,
  finite,
  over_clients,
  sum_clients,
)
from splitjax.engine.batch_schedule import Visit
from splitjax.engine.client_update import client_round
from splitjax.types import Array, Half


def train_clients(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """Trains clients at once, by a vmap over `client_round`; adds up their sums.

  A client with a non-finite half or loss is masked: its messages count in the
  ledger, but its update has weight zero, its losses are left out, and its half
  stays as it was.

  `group` has n clients of one cohort.

  Returns:
    A pair and the sums. The pair has the clients after the round, stacked
    [n, ...], and [n] bool, False for a client that was masked or did not
    participate. Such a client is unchanged.
  """
  may_idle = spec.partial or bool(inputs.shard(group.data).faults)

  def one(client, data, active, key, drawn):
    shard = inputs.shard(data)
    fault, on, fault_counts = apply_faults(spec, inputs, shard, active)

    # Train the client.
    visit = Visit(
      client,
      inputs.server,
      shard,
      inputs.round,
      key,
      fault,
      on if may_idle else None,
      drawn,
    )
    client, server, losses, ledger, loss_steps, steps, missed = client_round(
      spec.method, spec.plan, visit
    )

    # Mask a non-finite update, then weigh its share of all sums.
    counts = on & finite((client, server, losses))
    participates, counted = on.astype(float), counts.astype(float)
    alone = jnp.zeros(())
    if missed is not None:
      alone = missed
      fault_counts = {**fault_counts, "alone": participates * (alone > 0)}
    sums = RoundSums(
      spec.method.aggregation.contribute(client, server, counted * shard.size),
      wire.weigh(losses, counted),
      {
        k: counted if missed is None else counted * (loss_steps[k] > 0)
        for k in losses
      },
      wire.weigh(ledger, participates),
      participates,
      participates - counted,
      wire.weigh(wire.total(ledger), participates),
      wire.weigh(steps, participates),
      wire.weigh(alone, participates),
      fault_counts,
    )
    return client, counts, sums

  new, counts, sums = over_clients(one, *group)
  total = sum_clients(spec, inputs.shard(group.data).number, sums)
  return (trees.where(counts, new, group.clients), counts), total


def train_cohort(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """Trains a device's clients of one cohort, `spec.chunk` of them at a time.

  Of a chunk only its clients and sums are kept, so no more than `chunk` copies
  of the server exist at once. `group` has n clients, a multiple of the chunk.

  Returns the same as `train_clients`.
  """
  n = group.active.shape[0]
  chunk = n if spec.chunk is None else spec.chunk
  if chunk == n:
    return train_clients(spec, inputs, group)

  # Jitted for its cache: eval_shape and the scan share one trace.
  train = jax.jit(functools.partial(train_clients, spec), inline=True)

  def next_chunk(carry, start):
    # In place: the carried clients are updated chunk by chunk.
    clients, total = carry
    rows = trees.window(group._replace(clients=clients), start, chunk)
    (new, counts), sums = train(inputs, rows)
    clients = trees.put_window(clients, start, new)
    return (clients, trees.add(total, sums)), counts

  def sums_of_one(group):
    return train(inputs, trees.window(group, 0, chunk))[1]

  total = trees.zeros(jax.eval_shape(sums_of_one, group))
  (clients, total), counts = jax.lax.scan(
    next_chunk, (group.clients, total), jnp.arange(0, n, chunk)
  )
  return (clients, counts.reshape(n)), total
