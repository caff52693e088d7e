"""A Method becomes one compiled round.

Cohorts are a Python loop over a tuple inside the one jitted function, devices
a shard_map around it; aggregation ends it. The state is donated, and
everything that a round reads lies on the device.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from splitjax import trees
from splitjax.data.feed import Plan
from splitjax.engine import sequential, sharding
from splitjax.engine.base import (
  FAULT,
  ROUND,
  CohortPlan,
  Common,
  Group,
  Metrics,
  RoundSums,
  add_sums,
  client_keys,
)
from splitjax.engine.faults import Faults
from splitjax.engine.fleet import Fleet, Sample, sample_clients
from splitjax.engine.parallel import train_cohort
from splitjax.engine.sharding import deterministic_options, state_specs
from splitjax.types import Array, Half, Method, Shard, Tree

TOPOLOGIES = {
  "parallel": train_cohort,
  "sequential": sequential.sequential_round,
  "relay": sequential.sequential_round,
  "merged": sequential.merged_round,
}
"""Topology -> what a device does with the clients of a cohort."""


def make_round(
  method: Method,
  plans: tuple[Plan, ...],
  fleet: Fleet,
  *,
  faults: Faults | None = None,
  mesh: Mesh | None = None,
  deterministic: bool = False,
  side_by_side: bool = False,
) -> Any:
  """Compiles a round.

  In a parallel one, where every client has its own copy of the server, clients
  train on the device where they lie, and the sums of all are the only thing
  that devices exchange; where few of many take part, their halves too. One
  server has one device and clients of one depth: a loop over clients cannot
  pick from trees of different shapes.

  Args:
    method: what a pair does.
    plans: one for each cohort.
    fleet: the clients, divided among the devices.
    faults: what goes wrong; None for nothing.
    mesh: the devices; None for one.
    deterministic: the same bits on any number of devices, if chunks are as
      large: chunks are added up in the order of the clients, at the price of
      holding every chunk's sums, and with EXACT for the compiler. It wants a
      mesh, even of one device.
    side_by_side: it is to be vmapped, over seeds.

  Returns:
    A jitted (state, shards) -> (state, Metrics), traced once, state donated;
    shards are one Shard per cohort.
  """
  if faults is not None and not faults.on:
    faults = None
  if method.topology != "parallel":
    assert len(fleet.cohorts) == 1, "one server takes clients of one depth"
    assert fleet.devices == 1, "one server takes one device"

  def on_device(common, groups):
    """What one device does: all cohorts, one after another."""
    clients, total = [], None
    for c, group in groups.items():
      chunk = fleet.cohorts[c].chunk
      cohort_plan = CohortPlan(
        method,
        plans[c],
        chunk,
        deterministic,
        fleet.num_clients,
        faults,
        fleet.participants < fleet.num_clients,
        side_by_side,
      )
      new, found = TOPOLOGIES[method.topology](cohort_plan, common, group)
      if deterministic:
        found = _in_order(found, mesh)
      total = found if total is None else add_sums(total, found)
      clients.append(new)
    if mesh is not None and not deterministic:
      total = jax.lax.psum(total, sharding.AXIS)
    return dict(zip(groups, clients, strict=True)), total

  train = sharding.on_each(
    on_device,
    mesh,
    (sharding.COPIED, sharding.DIVIDED),
    (sharding.DIVIDED, sharding.COPIED),
  )

  def step(state, shards):
    key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
    invite, work = jax.random.split(key)
    sampled = sample_clients(fleet, invite, [shard.number for shard in shards])
    groups = {
      c: _select_participants(state.clients[c], shards[c], sample, work)
      for c, sample in enumerate(sampled)
      if sample.slots.shape[0]
    }
    fault_key = jax.random.fold_in(state.key, FAULT) if faults else None
    stock = shards[0].image, shards[0].label
    common = Common(state.server, *stock, state.round, fault_key)
    new, found = train(common, groups)
    clients = list(state.clients)
    active = [jnp.zeros(len(cohort.places), bool) for cohort in fleet.cohorts]
    for c, both in new.items():
      if not sampled[c].everyone:
        both = trees.put((clients[c], active[c]), sampled[c].slots, both)
      clients[c], active[c] = both
    state = method.merge(state, tuple(clients), tuple(active), found.sums)
    return state, _metrics(found)

  placed = state_specs(len(fleet.cohorts))
  return jax.jit(
    step,
    donate_argnums=0,
    out_shardings=sharding.sharding(mesh, (placed, sharding.COPIED)),
    compiler_options=deterministic_options(deterministic),
  )


def _select_participants(
  clients: Half, shard: Shard, sample: Sample, key: Array
) -> Group:
  """The clients of a cohort that a round computes."""
  mine = clients, tuple(shard[2:]), client_keys(key, shard.number)
  if not sample.everyone:
    # A slot of nobody reads the last place, and is not active.
    mine = trees.take(mine, sample.slots)
  return Group(*mine, sample.active)


def _metrics(found: RoundSums) -> Metrics:
  """What a round says of itself, from what all clients left."""
  return Metrics(
    jax.tree.map(jnp.divide, found.losses, found.having),
    found.ledger,
    found.participants.astype(jnp.int32),
    found.masked > 0,
    jax.tree.map(lambda x: x.astype(jnp.int32), found.faults),
  )


def _in_order(found: Tree, mesh: Mesh | None) -> Tree:
  """Adds up chunks [k, ...] in the order of the clients, over all devices."""
  if mesh is not None:
    found = jax.lax.all_gather(found, sharding.AXIS, tiled=True)
  start = trees.zeros(jax.eval_shape(lambda: trees.take(found, 0)))
  return jax.lax.scan(lambda a, b: (trees.add(a, b), None), start, found)[0]
