"""What every topology of a round shares: plans, keys, sums, masked updates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Plan
from splitjax.engine import faults as fault_model
from splitjax.engine.faults import NO_FAULT, ClientFault, Faults
from splitjax.types import Array, Half, Ledger, Method, Shard, Sums, Tree


def client_keys(key: Array, numbers: Array) -> Array:
  """One key for each client, by its number [N] int32: [N] keys."""
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)


class CohortPlan(NamedTuple):
  """What is fixed of a cohort's rounds; static to the compiled round.

  Attributes:
    method: what its clients do.
    plan: how they walk through their data.
    chunk: clients that a device trains at a time; None: all that it has.
    ordered: the sums of every chunk are kept, in the order of the clients.
    num_clients: of the fleet, over all cohorts.
    faults: what may go wrong; None if nothing may.
    idle: whether some of the clients may have no part in a round.
    side_by_side: whether rounds of several seeds are one program.
  """

  method: Method
  plan: Plan
  chunk: int | None
  ordered: bool
  num_clients: int
  faults: Faults | None = None
  idle: bool = False
  side_by_side: bool = False


class Group(NamedTuple):
  """Some clients of one cohort and what they train on; leaves [n, ...].

  Attributes:
    clients: their halves.
    own: their shards without the data set.
    keys: [n] keys, their own in this round.
    active: [n] bool, who is to take part.
  """

  clients: Half
  own: tuple[Array, ...]
  keys: Array
  active: Array


class Common(NamedTuple):
  """What all clients of a round share.

  Attributes:
    server: the server's half, unstacked.
    image: [Z, H, W, c] uint8, the training split.
    label: [Z] int32, likewise.
    round: [] int32.
    fault_key: [] key of the run's faults; None without any.
  """

  server: Half
  image: Array
  label: Array
  round: Array
  fault_key: Array | None = None


class RoundSums(NamedTuple):
  """What clients leave of a round beside themselves; additive over clients.

  Attributes:
    sums: for the aggregation.
    losses: name -> [] float32, sum over those who have it.
    having: name -> [] float32, how many have it.
    ledger: what was sent.
    participants: [] float32, who took part.
    masked: [num_clients] float32, by number: 1 for whoever took part and came
      to a number that is not finite.
    faults: how many were "dropped" (have sat out for a fault), are
      "stragglers", or trained "alone" -> [] float32; () without faults.
  """

  sums: Sums
  losses: dict[str, Array]
  having: dict[str, Array]
  ledger: Ledger
  participants: Array
  masked: Array
  faults: Tree = ()


def add_sums(a: RoundSums, b: RoundSums) -> RoundSums:
  """Adds what two cohorts leave; names that only one of them has are kept."""
  return RoundSums(
    add_method_sums(a.sums, b.sums),
    trees.union_add(a.losses, b.losses),
    trees.union_add(a.having, b.having),
    wire.merge(a.ledger, b.ledger),
    a.participants + b.participants,
    a.masked + b.masked,
    trees.add(a.faults, b.faults),
  )


LARGEST = 1e30
"""Beyond it sums over clients, weighted by their samples, may overflow."""


def finite(tree: Tree) -> Array:
  """[] bool: no float in a pytree is NaN, infinite or beyond LARGEST."""
  floats = [
    x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)
  ]
  # Neither is so of NaN.
  each = [(jnp.abs(x.astype(float)) < LARGEST).all() for x in floats]
  every = jnp.stack([jnp.bool_(True), *each])
  # A loop, for XLA repeats anything less in front of every leaf that waits for
  # the answer, and so compiles leaves times leaves.
  return jax.lax.scan(lambda a, b: (a & b, None), every[0], every[1:])[0]


def apply_faults(
  cohort_plan: CohortPlan, common: Common, shard: Shard, on: Array
) -> tuple[ClientFault, Array, Tree]:
  """What befalls a client that is to take part.

  Args:
    cohort_plan: what it does.
    common: what all share.
    shard: the client's.
    on: [] bool, whether it is to take part.

  Returns:
    Its fate, whether it does take part, and Found.faults.
  """
  if cohort_plan.faults is None or common.fault_key is None:
    return NO_FAULT, on, ()
  fault = fault_model.draw_faults(
    cohort_plan.faults, common.fault_key, common.round, shard
  )
  if cohort_plan.method.whole:
    fault = fault._replace(down=None)
  never, participating = jnp.bool_(False), on
  if fault.lost is not None:
    participating &= ~fault.lost
  alone = never if fault.down is None else participating & fault.down
  if cohort_plan.method.alone is None:
    participating, alone = participating & ~alone, never
  slow = never if fault.share is None else participating & (fault.share < 1)
  told = {"dropped": on & ~participating, "stragglers": slow, "alone": alone}
  return (
    fault,
    participating,
    {k: v.astype(float) for k, v in told.items()},
  )


ROUND, TUNE, FAULT = 0, 1, 2
"""What a key that is folded from the run's key is for."""


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
      base.RoundSums; () without faults.
  """

  losses: dict[str, Array]
  wire: Ledger
  participants: Array
  masked: Array
  faults: Tree = ()


def add_method_sums(a: Sums, b: Sums) -> Sums:
  """Adds two sums; blocks that only one of them has are kept."""
  return Sums(*(trees.union_add(x, y) for x, y in zip(a, b, strict=True)))
