"""Compiles a Method's round: sampling, training and aggregation.

One jitted function samples the participants, trains them and aggregates. The
training is a shard_map over the devices, inside which a Python loop runs over
the cohorts. The state is donated, and all inputs of a round are on the device.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from splitjax import trees
from splitjax.data.feed import BatchPlan
from splitjax.engine import sharding
from splitjax.engine.base import (
  ROUND,
  CohortSpec,
  Metrics,
  Participants,
  RoundInputs,
  RoundSums,
  add_sums,
)
from splitjax.engine.draws import draw_together, fold
from splitjax.engine.fleets import Fleet
from splitjax.engine.sampling import Sample, sample_clients
from splitjax.engine.sharding import state_specs
from splitjax.engine.topologies import topology_of
from splitjax.types import (
  Aggregation,
  Array,
  Half,
  Method,
  Shard,
  State,
  Sums,
)


def make_round(
  method: Method,
  plans: tuple[BatchPlan, ...],
  fleet: Fleet,
  *,
  mesh: Mesh | None = None,
  jit: Callable[..., Any] = jax.jit,
) -> Any:
  """Compiles a round.

  In a parallel round every client has its own copy of the server and trains on
  the device that holds it; devices exchange only sums over clients. Halves of
  clients move between devices if few of many clients are sampled. A round with
  one server uses one device and clients of one depth, because its loop over
  clients cannot index trees of different shapes.

  Args:
    method: the method.
    plans: one for each cohort.
    fleet: the clients, divided among the devices.
    mesh: the devices; None for one.
    jit: called in place of `jax.jit`, with the function and jit's options.

  Returns:
    A jitted (state, shards) -> (state, Metrics). It is traced once, and the
    state is donated; `shards` has one Shard per cohort.
  """
  topology = topology_of(method.traits)
  if topology.one_server:
    assert len(fleet.cohorts) == 1, "one server takes clients of one depth"
    assert fleet.devices == 1, "one server takes one device"
    assert len(method.stages) == 1, "one server takes one stage"
  specs = [
    CohortSpec(
      method,
      topology,
      plan,
      cohort.chunk,
      fleet.num_clients,
      # A device that trains one client at a time skips the padding clients.
      partial=fleet.participants < fleet.num_clients
      or (cohort.chunk == 1 and cohort.padding > 0),
    )
    for plan, cohort in zip(plans, fleet.cohorts, strict=True)
  ]

  def on_device(inputs, groups):
    groups = draw_together(specs, inputs, groups)
    each = [
      topology.round(spec, inputs, group)
      for spec, group in zip(specs, groups, strict=True)
    ]
    clients, sums = zip(*each, strict=True)
    total = functools.reduce(add_sums, sums)
    if mesh is not None:
      total = jax.lax.psum(total, sharding.AXIS)
    return clients, total

  train = sharding.on_each(
    on_device,
    mesh,
    (sharding.COPIED, sharding.DIVIDED),
    (sharding.DIVIDED, sharding.COPIED),
  )

  def step(state, shards):
    # Sample the clients of every cohort, and gather them.
    sample_key, client_key = round_keys(state.key, state.round)
    numbers = [shard.number for shard in shards]
    samples = sample_clients(fleet, sample_key, numbers)
    groups = tuple(map(_gather, state.clients, shards, samples))

    # Train them, each device its own part.
    data = shards[0].image, shards[0].label
    inputs = RoundInputs(state.server, *data, state.round, client_key)
    trained, sums = train(inputs, groups)

    # Write the trained clients back to their places.
    written = map(_scatter, state.clients, trained, samples)
    clients, active = zip(*written, strict=True)

    # Aggregate.
    rule = method.aggregation
    state = aggregate(rule, state, clients, active, sums.updates)
    return state, _metrics(sums)

  placed = state_specs(len(fleet.cohorts))
  return jit(
    step,
    donate_argnums=0,
    out_shardings=sharding.client_sharding(mesh, (placed, sharding.COPIED)),
  )


def round_keys(key: Array, round: Array) -> Array:
  """Derives a round's two keys, [2]: for its sample and for its clients."""
  return fold(key, [(ROUND, round, use) for use in range(2)])


def aggregate(
  rule: Aggregation,
  state: State,
  clients: tuple[Half, ...],
  active: tuple[Array, ...],
  sums: Sums,
) -> State:
  """Ends a round: makes the next server, then the next clients.

  `state` is the state before the round. The other arguments are passed to the
  functions of `rule`.
  """
  means = state.means
  if rule.on_means is not None:
    means, sums = rule.on_means(means, state.server, sums)
  server = rule.server(state.server, clients, active, sums)
  cohorts = tuple(
    rule.clients(half, on, sums, server)
    for half, on in zip(clients, active, strict=True)
  )
  return State(state.round + 1, state.key, cohorts, server, means)


def _gather(clients: Half, shard: Shard, sample: Sample) -> Participants:
  """Gathers the clients of a cohort that a round computes."""
  rows = clients, tuple(shard[2:])
  if not sample.all_places:
    # A padding slot reads the last place; it is not active.
    rows = trees.take(rows, sample.slots)
  return Participants(*rows, sample.active)


def _scatter(
  clients: Half, trained: tuple[Half, Array], sample: Sample
) -> tuple[Half, Array]:
  """Writes a cohort's trained clients, and their flags, to their places."""
  if sample.all_places:
    return trained
  nobody = jnp.zeros(len(jax.tree.leaves(clients)[0]), bool)
  return trees.put((clients, nobody), sample.slots, trained)


def _metrics(sums: RoundSums) -> Metrics:
  return Metrics(
    jax.tree.map(jnp.divide, sums.losses, sums.loss_counts),
    sums.ledger,
    sums.participants.astype(jnp.int32),
    sums.masked > 0,
    sums.bytes,
    sums.steps,
    sums.alone,
    jax.tree.map(lambda x: x.astype(jnp.int32), sums.faults),
  )
