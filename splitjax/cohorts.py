"""One client's round, and many clients' at once: the vmap over clients.

Local steps are a scan, the clients of a cohort a vmap, chunks of them a scan
around it. A method never sees more than one client.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Plan, Samples
from splitjax.types import Array, Half, Ledger, Method, Shard

EPOCH = 1 << 20
"""Numbers set aside for the steps of one epoch, in a client's keys."""


def client_round(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  shard: Shard,
  round: Array,
  key: Array,
) -> tuple[Half, Half, dict[str, Array], Ledger]:
  """One client, one round, unbatched.

  Args:
    method: what it does.
    plan: how it walks through its data.
    client: its half.
    server: its copy of the server.
    shard: its data.
    round: [] int32.
    key: [] PRNG key, the client's own in this round.

  Returns:
    Both halves, losses averaged over its local steps, its ledger.
  """
  samples = Samples(shard, plan)
  first, shuffle, walk, last = jax.random.split(key, 4)
  rows, real = samples.visits(shuffle, method.views)
  looks = [jax.random.fold_in(shuffle, EPOCH + v) for v in range(method.views)]
  client, server, down = method.begin(client, server, samples, round, first)

  def tick(pair, inputs):
    t, row, real = inputs
    batches = tuple(
      samples.batch(row[v], real, jax.random.fold_in(looks[v], t))
      for v in range(method.views)
    )
    *new, losses, ledger = method.step(
      *pair, batches, jax.random.fold_in(walk, t)
    )
    if plan.equal:
      return tuple(new), (losses, ledger)
    # A short client's extra steps change nothing and cost nothing.
    on = real.any()
    kept = trees.where(on, tuple(new), pair)
    return kept, wire.weigh((losses, ledger), on.astype(jnp.float32))

  # Numbered by epoch and step in it: how long the cohort's largest client
  # takes must not change what a short one draws in its second epoch.
  steps = (
    jnp.arange(plan.epochs)[:, None] * EPOCH + jnp.arange(plan.steps)
  ).reshape(-1)
  pair, told = jax.lax.scan(tick, (client, server), (steps, rows, real))
  losses, ledger = trees.total(told)
  taken = jnp.maximum(real.any(axis=1).sum(), 1)
  losses = jax.tree.map(lambda x: x / taken, losses)
  client, server, up = method.finish(*pair, samples, last)
  return client, server, losses, wire.merge(down, ledger, up)


def client_keys(key: Array, numbers: Array) -> Array:
  """One key for each client, by its number [N] int32: [N] keys."""
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)


class Group(NamedTuple):
  """Some clients of one cohort and what they train on; leaves [n, ...].

  Attributes:
    clients: their halves.
    own: their shards without the data set.
    keys: [n] keys, their own in this round.
    active: [n] bool, who takes part.
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
  """

  server: Half
  image: Array
  label: Array
  round: Array


def side_by_side(
  method: Method, plan: Plan, common: Common, group: Group
) -> tuple[Half, Any]:
  """Trains clients at once: vmap over `client_round`, then sums.

  Returns:
    The clients after the round (whoever sat out unchanged) and what is added
    up over clients: (Sums, losses, ledger).
  """

  def one(client, own, key, on):
    shard = Shard(common.image, common.label, *own)
    weight = jnp.where(on, shard.size, 0).astype(jnp.float32)
    client, copy, losses, ledger = client_round(
      method, plan, client, common.server, shard, common.round, key
    )
    sums = method.contribute(client, copy, weight)
    told = wire.weigh((losses, ledger), on.astype(jnp.float32))
    return client, (sums, *told)

  new, found = jax.vmap(one)(*group)
  return trees.where(group.active, new, group.clients), trees.total(found)


def cohort_round(
  method: Method,
  plan: Plan,
  chunk: int | None,
  common: Common,
  group: Group,
  ordered: bool,
) -> tuple[Half, Any]:
  """Trains a device's clients of one cohort, `chunk` of them at a time.

  A chunk leaves its sums and nothing else, so no more than `chunk` copies of
  the server exist at once.

  Args:
    method: what they do.
    plan: the cohort's.
    chunk: clients at a time; None: all.
    common: what they share.
    group: the clients, a multiple of chunk.
    ordered: keep the sums of every chunk, in the order of the clients.

  Returns:
    The clients after the round, and (Sums, losses, ledger): stacked by chunk
    if ordered, else added up.
  """
  n = group.keys.shape[0]
  chunk = n if chunk is None else chunk
  if chunk == n and not ordered:
    return side_by_side(method, plan, common, group)

  # Jitted for its cache: the shapes of the sums and the scan share one trace.
  train = jax.jit(functools.partial(side_by_side, method, plan), inline=True)

  def next_chunk(carry, start):
    # In place: the clients are carried, and each chunk written where it lay.
    clients, total = carry
    mine = trees.window(group._replace(clients=clients), start, chunk)
    new, found = train(common, mine)
    clients = trees.put_window(clients, start, new)
    if ordered:
      return (clients, total), found
    return (clients, trees.add(total, found)), None

  def sums_of_one(group):
    return train(common, trees.window(group, 0, chunk))[1]

  total = () if ordered else trees.zeros(jax.eval_shape(sums_of_one, group))
  (clients, total), each = jax.lax.scan(
    next_chunk, (group.clients, total), jnp.arange(0, n, chunk)
  )
  return clients, each if ordered else total
