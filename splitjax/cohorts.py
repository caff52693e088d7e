"""Many clients' rounds at once: the vmap over clients.

The clients of a cohort are a vmap over `turn.client_round`, chunks of them a
scan around it. A method never sees more than one client.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import faults, merge, trees, wire
from splitjax.data.feed import Plan
from splitjax.faults import FINE, Fate, Faults
from splitjax.turn import client_round
from splitjax.types import Array, Half, Ledger, Method, Shard, Sums, Tree


def client_keys(key: Array, numbers: Array) -> Array:
  """One key for each client, by its number [N] int32: [N] keys."""
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)


class Job(NamedTuple):
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
    misfortune: [] key of the run's faults; None without any.
  """

  server: Half
  image: Array
  label: Array
  round: Array
  misfortune: Array | None = None


class Found(NamedTuple):
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


def join(a: Found, b: Found) -> Found:
  """Adds what two cohorts leave; names that only one of them has are kept."""
  return Found(
    merge.add(a.sums, b.sums),
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
  each = [(jnp.abs(x.astype(jnp.float32)) < LARGEST).all() for x in floats]
  every = jnp.stack([jnp.bool_(True), *each])
  # A loop, for XLA repeats anything less in front of every leaf that waits for
  # the answer, and so compiles leaves times leaves.
  return jax.lax.scan(lambda a, b: (a & b, None), every[0], every[1:])[0]


def meet(
  job: Job, common: Common, shard: Shard, on: Array
) -> tuple[Fate, Array, Tree]:
  """What befalls a client that is to take part.

  Args:
    job: what it does.
    common: what all share.
    shard: the client's.
    on: [] bool, whether it is to take part.

  Returns:
    Its fate, whether it does take part, and Found.faults.
  """
  if job.faults is None or common.misfortune is None:
    return FINE, on, ()
  fate = faults.befall(job.faults, common.misfortune, common.round, shard)
  if job.method.whole:
    fate = fate._replace(down=None)
  never, there = jnp.bool_(False), on
  if fate.lost is not None:
    there &= ~fate.lost
  alone = never if fate.down is None else there & fate.down
  if job.method.alone is None:
    there, alone = there & ~alone, never
  slow = never if fate.share is None else there & (fate.share < 1)
  told = {"dropped": on & ~there, "stragglers": slow, "alone": alone}
  return fate, there, {k: v.astype(jnp.float32) for k, v in told.items()}


def side_by_side(
  job: Job, common: Common, group: Group
) -> tuple[tuple[Half, Array], Found]:
  """Trains clients at once: vmap over `client_round`, then sums.

  A client whose halves or losses are not finite is masked: it has sent what it
  has sent, but weighs nothing, tells no loss and stays as it was.

  Returns:
    The clients after the round and [n] bool, whose work counts (all others
    are unchanged); and what they leave.
  """

  def one(client, own, key, on):
    shard = Shard(common.image, common.label, *own)
    fate, on, met = meet(job, common, shard, on)
    pair, when = (client, common.server), (common.round, key)
    there = on if job.idle or job.faults is not None else None
    client, copy, losses, ledger, had = client_round(
      job.method, job.plan, *pair, shard, *when, fate, there
    )
    counts = on & finite((client, copy, losses))
    present, counted = on.astype(jnp.float32), counts.astype(jnp.float32)
    found = Found(
      job.method.contribute(client, copy, counted * shard.size),
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
  masked = jnp.zeros(job.num_clients).at[number].add(found.masked)
  found = trees.total(found._replace(masked=()))._replace(masked=masked)
  return (trees.where(counts, new, group.clients), counts), found


def cohort_round(
  job: Job, common: Common, group: Group
) -> tuple[tuple[Half, Array], Found]:
  """Trains a device's clients of one cohort, job.chunk of them at a time.

  A chunk leaves its sums and nothing else, so no more than `chunk` copies of
  the server exist at once.

  Args:
    job: what they do.
    common: what they share.
    group: the clients, a multiple of the chunk.

  Returns:
    As `side_by_side`; what is found stacked by chunk if job.ordered.
  """
  n = group.keys.shape[0]
  chunk = n if job.chunk is None else job.chunk
  if chunk == n and not job.ordered:
    return side_by_side(job, common, group)

  # Jitted for its cache: the shapes of the sums and the scan share one trace.
  train = jax.jit(functools.partial(side_by_side, job), inline=True)

  def next_chunk(carry, start):
    # In place: the clients are carried, and each chunk written where it lay.
    clients, total = carry
    mine = trees.window(group._replace(clients=clients), start, chunk)
    (new, counts), found = train(common, mine)
    clients = trees.put_window(clients, start, new)
    if job.ordered:
      return (clients, total), (counts, found)
    return (clients, trees.add(total, found)), (counts, None)

  def sums_of_one(group):
    return train(common, trees.window(group, 0, chunk))[1]

  total: Any = ()
  if not job.ordered:
    total = trees.zeros(jax.eval_shape(sums_of_one, group))
  (clients, total), (counts, each) = jax.lax.scan(
    next_chunk, (group.clients, total), jnp.arange(0, n, chunk)
  )
  return (clients, counts.reshape(n)), each if job.ordered else total
