"""Start and end of rounds with one server: downloads, then uploads and sums.

In between, `sequential` serves clients one after another, and `merged` serves
all clients in each step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.engine.base import (
  CohortSpec,
  Participants,
  RoundInputs,
  RoundSums,
  apply_faults,
  finite,
  sum_clients,
)
from splitjax.engine.batch_schedule import (
  BatchSchedule,
  Visit,
  draw_schedule,
)
from splitjax.engine.client_update import begin_round
from splitjax.types import Array, Half, Ledger, Segment, Tree

EMPTY = Half(Segment({}, {}))
"""A half without blocks, which contributes to no sum."""


class Started(NamedTuple):
  """Clients (leaves [n, ...]) and the one server, before the first turn.

  Attributes:
    clients: their halves after the download.
    server: the one server.
    schedules: the clients' batches; those of a client that does not participate
      are all padding.
    download: the ledger of the download.
    participating: [n] bool.
    faults: RoundSums.faults of each client.
  """

  clients: Half
  server: Half
  schedules: BatchSchedule
  download: Ledger
  participating: Array
  faults: Tree


class TurnMetrics(NamedTuple):
  """Sums of each client over its turns in a round; all arrays are [n].

  Attributes:
    losses: name -> sum over the client's steps.
    ledger: message name -> bytes.
    failed: bool, whether a loss was not finite.
  """

  losses: dict[str, Array]
  ledger: Ledger
  failed: Array


def start_clients(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> Started:
  """Runs all clients' downloads from one server and schedules their batches."""

  def one(client, data, active, key, drawn):
    shard = inputs.shard(data)
    fault, on, fault_counts = apply_faults(spec, inputs, shard, active)
    visit = Visit(
      client, inputs.server, shard, inputs.round, key, fault, drawn=drawn
    )
    client, server, download = begin_round(spec.method, spec.plan, visit)
    schedule = draw_schedule(spec.method, spec.plan, visit)
    schedule = schedule._replace(real=schedule.real & on)
    return Started(client, server, schedule, download, on, fault_counts)

  axes = Started(0, None, 0, 0, 0, 0)  # type: ignore[arg-type]
  return jax.vmap(one, out_axes=axes)(*group)


def finish_round(
  spec: CohortSpec,
  inputs: RoundInputs,
  group: Participants,
  started: Started,
  clients: Half,
  server: Half,
  metrics: TurnMetrics,
) -> tuple[tuple[Half, Array], RoundSums]:
  """Runs the upload and makes the sums of a round with one server.

  `group` has the n clients before the round; `started` has them before the
  first turn. `clients` (stacked [n, ...]), `server` and `metrics` are the
  results of the last turn. Returns the same as `parallel.train_cohort`. But in
  a relay, if any client's update counts, all clients change, even those that
  were masked or did not participate: they get the half handed on last.
  """
  method, rule = spec.method, spec.method.aggregation

  # Upload.
  def finish(client, data, key):
    samples = Samples(inputs.shard(data), spec.plan)
    return method.finish(client, server, samples, key)

  new, after, upload = jax.vmap(finish, out_axes=(0, None, 0))(
    clients, group.data, started.schedules.finish_key
  )

  # Mask non-finite updates.
  on = started.participating
  server_valid = finite((server, after))
  counts = on & ~metrics.failed & server_valid & jax.vmap(finite)(new)
  participates, counted = on.astype(float), counts.astype(float)
  shards = inputs.shard(group.data)

  # Sum over clients, losses averaged over each client's steps.
  taken = started.schedules.real.any(axis=-1).sum(axis=-1).astype(float)
  losses = jax.tree.map(lambda x: x / jnp.maximum(taken, 1), metrics.losses)
  losses = wire.weigh(losses, counted)
  ledger = wire.merge(started.download, metrics.ledger, upload)
  ledger = wire.weigh(ledger, participates)
  each = RoundSums(
    jax.vmap(rule.contribute, in_axes=(0, None, 0))(
      new, EMPTY, counted * shards.size
    ),
    losses,
    dict.fromkeys(losses, counted),
    ledger,
    participates,
    participates - counted,
    wire.total(ledger),
    taken,
    jnp.zeros_like(taken),
    started.faults,
  )
  sums = sum_clients(spec, shards.number, each)

  # The one server contributes once.
  of_server = rule.contribute(EMPTY, after, server_valid.astype(float))
  updates = sums.updates._replace(
    server=of_server.server,
    server_weight=of_server.server_weight,
    stats_weight=of_server.stats_weight,
  )
  sums = sums._replace(updates=updates)

  replaced = counts
  # In a relay, if any client counts, all get the half that was handed on last.
  if spec.topology.hands_on:
    replaced = jnp.full_like(counts, counts.any())
  return (trees.where(replaced, new, group.clients), counts), sums


def zero_metrics(n: int, losses: Any, ledger: Any) -> TurnMetrics:
  """Makes zeros for n clients from the shapes of one client's step."""
  losses, ledger = trees.repeat(trees.zeros((losses, ledger)), n)
  return TurnMetrics(losses, ledger, jnp.zeros(n, bool))
