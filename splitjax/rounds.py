"""A Method becomes one compiled round.

Cohorts are a Python loop over a tuple inside the one jitted function, devices
a shard_map around it; aggregation ends it. The state is donated, and
everything that a round reads lies on the device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from splitjax import mesh as meshes
from splitjax import serving, trees
from splitjax.cohorts import (
  Common,
  Found,
  Group,
  Job,
  client_keys,
  cohort_round,
  join,
)
from splitjax.data.feed import Plan
from splitjax.faults import Faults
from splitjax.fleet import Fleet, Turnout, draw
from splitjax.types import Array, Half, Ledger, Method, Shard, State, Tree

ROUND, TUNE, FAULT = 0, 1, 2
"""What a key that is folded from the run's key is for."""


EXACT: dict[str, Any] = {
  "cpu": {"xla_disable_hlo_passes": "fusion,algsimp"},
  "gpu": {"xla_gpu_deterministic_ops": True},
}
"""Compiler options of a deterministic round, by backend. What XLA fuses and
simplifies, and so how it rounds, depends on the number of devices; on a GPU
some operations also add up in whatever order threads arrive."""


PLAY = {
  "parallel": cohort_round,
  "sequential": serving.serve,
  "relay": serving.serve,
  "merged": serving.merged,
}
"""Topology -> what a device does with the clients of a cohort."""


class Metrics(NamedTuple):
  """What a round says of itself.

  Attributes:
    losses: name -> [] float32, nats; the plain mean, over the participants
      that have it and are not masked, of each one's mean over its local steps;
      NaN if there are none.
    wire: message name -> [] float32, bytes, summed over the participants.
    participants: [] int32.
    masked: [num_clients] bool, by client number: whose update was not finite
      and left out.
    faults: "dropped", "stragglers" and "alone" -> [] int32, how many, see
      cohorts.Found; () without faults.
  """

  losses: dict[str, Array]
  wire: Ledger
  participants: Array
  masked: Array
  faults: Tree = ()


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
      job = Job(
        method,
        plans[c],
        chunk,
        deterministic,
        fleet.num_clients,
        faults,
        fleet.participants < fleet.num_clients,
        side_by_side,
      )
      new, found = PLAY[method.topology](job, common, group)
      if deterministic:
        found = _in_order(found, mesh)
      total = found if total is None else join(total, found)
      clients.append(new)
    if mesh is not None and not deterministic:
      total = jax.lax.psum(total, meshes.AXIS)
    return dict(zip(groups, clients, strict=True)), total

  train = meshes.on_each(
    on_device,
    mesh,
    (meshes.COPIED, meshes.DIVIDED),
    (meshes.DIVIDED, meshes.COPIED),
  )

  def step(state, shards):
    key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
    invite, work = jax.random.split(key)
    turnouts = draw(fleet, invite, [shard.number for shard in shards])
    groups = {
      c: _invited(state.clients[c], shards[c], turnout, work)
      for c, turnout in enumerate(turnouts)
      if turnout.slots.shape[0]
    }
    misfortune = jax.random.fold_in(state.key, FAULT) if faults else None
    stock = shards[0].image, shards[0].label
    common = Common(state.server, *stock, state.round, misfortune)
    new, found = train(common, groups)
    clients = list(state.clients)
    active = [jnp.zeros(len(cohort.places), bool) for cohort in fleet.cohorts]
    for c, both in new.items():
      if not turnouts[c].everyone:
        both = trees.put((clients[c], active[c]), turnouts[c].slots, both)
      clients[c], active[c] = both
    state = method.merge(state, tuple(clients), tuple(active), found.sums)
    return state, _metrics(found)

  placed = state_specs(len(fleet.cohorts))
  return jax.jit(
    step,
    donate_argnums=0,
    out_shardings=meshes.sharding(mesh, (placed, meshes.COPIED)),
    compiler_options=exact(deterministic),
  )


def exact(deterministic: bool) -> dict[str, Any] | None:
  """Compiler options of this backend; None for its own."""
  return EXACT.get(jax.default_backend()) if deterministic else None


def state_specs(cohorts: int) -> State:
  """How a State lies on the devices: clients divided, all else copied."""
  copied, divided = meshes.COPIED, (meshes.DIVIDED,) * cohorts
  specs: Any = State(copied, copied, divided, copied)  # type: ignore[arg-type]
  return specs


def _invited(
  clients: Half, shard: Shard, turnout: Turnout, key: Array
) -> Group:
  """The clients of a cohort that a round computes."""
  mine = clients, tuple(shard[2:]), client_keys(key, shard.number)
  if not turnout.everyone:
    # A slot of nobody reads the last place, and is not active.
    mine = trees.take(mine, turnout.slots)
  return Group(*mine, turnout.active)


def _metrics(found: Found) -> Metrics:
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
    found = jax.lax.all_gather(found, meshes.AXIS, tiled=True)
  start = trees.zeros(jax.eval_shape(lambda: trees.take(found, 0)))
  return jax.lax.scan(lambda a, b: (trees.add(a, b), None), start, found)[0]
