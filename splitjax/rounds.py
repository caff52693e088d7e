"""A Method becomes one compiled round: the only place with vmap over clients.

Local steps are a scan, clients of a cohort a vmap, cohorts a Python loop over
a tuple inside the one jitted function; aggregation ends it. The state is
donated, and everything that a round reads lies on the device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import merge, trees, wire
from splitjax.data.feed import Plan, Samples
from splitjax.fleet import Fleet, draw
from splitjax.types import Array, Half, Ledger, Method, Shard

SHARD_AXES: Any = Shard(None, None, 0, 0, 0)  # type: ignore[arg-type]
"""How a cohort's shard is mapped over its clients: the data set is shared."""

ROUND, TUNE = 0, 1
"""What a key that is folded from the run's key is for."""

EPOCH = 1 << 20
"""Numbers set aside for the steps of one epoch, in a client's keys."""


class Metrics(NamedTuple):
  """What a round says of itself.

  Attributes:
    losses: name -> [] float32, nats; the plain mean over participants of each
      one's mean over its local steps.
    wire: message name -> [] float32, bytes, summed over the participants.
    participants: [] int32.
  """

  losses: dict[str, Array]
  wire: Ledger
  participants: Array


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


def client_keys(key: Array, ids: tuple[int, ...]) -> Array:
  """One key for each client, by its number: [N] keys."""
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.asarray(ids))


def cohort_round(
  method, plan, clients, server, shard, round, keys, turnout
) -> tuple[Any, ...]:
  """All participants of one cohort: vmap over `client_round`, then sums.

  Args:
    method: what they do.
    plan: the cohort's.
    clients: leaves [N, ...].
    server: one server, not stacked.
    shard: stacked, the data set not.
    round: [] int32.
    keys: [N] keys.
    turnout: who takes part.

  Returns:
    The cohort after the round (whoever sat out unchanged), its Sums, and
    losses and ledger summed over its participants.
  """
  slots, active = turnout
  everyone = slots.shape[0] == keys.shape[0]  # then slots are 0, 1, 2, ...

  def pick(tree):
    return tree if everyone else trees.take(tree, slots)

  mine = pick(clients)
  own = Shard(shard.image, shard.label, *pick(tuple(shard[2:])))

  def one(client, shard, key, on):
    weight = jnp.where(on, shard.size, 0).astype(jnp.float32)
    client, copy, losses, ledger = client_round(
      method, plan, client, server, shard, round, key
    )
    sums = method.contribute(client, copy, weight)
    return client, sums, wire.weigh((losses, ledger), on.astype(jnp.float32))

  axes = (0, SHARD_AXES, 0, 0)
  new, sums, told = jax.vmap(one, in_axes=axes)(mine, own, pick(keys), active)
  new = trees.where(active, new, mine)
  clients = new if everyone else trees.put(clients, slots, new)
  return clients, trees.total(sums), *trees.total(told)


def make_round(method: Method, plans: tuple[Plan, ...], fleet: Fleet) -> Any:
  """Compiles a parallel round: every client has its own copy of the server.

  Args:
    method: what a pair does.
    plans: one for each cohort.
    fleet: the clients.

  Returns:
    A jitted (state, shards) -> (state, Metrics), traced once, state donated;
    shards are one Shard per cohort.
  """

  def step(state, shards):
    key = jax.random.fold_in(jax.random.fold_in(state.key, ROUND), state.round)
    invite, work = jax.random.split(key)
    clients, active, sums = [], [], None
    losses: dict[str, Array] = {}
    ledger: Ledger = {}
    count = jnp.int32(0)
    for c, (cohort, turnout) in enumerate(
      zip(fleet.cohorts, draw(fleet, invite), strict=True)
    ):
      if turnout.slots.shape[0] == 0:
        clients.append(state.clients[c])
        active.append(jnp.zeros(len(cohort.ids), bool))
        continue
      new, add, told, sent = cohort_round(
        method,
        plans[c],
        state.clients[c],
        state.server,
        shards[c],
        state.round,
        client_keys(work, cohort.ids),
        turnout,
      )
      sums = add if sums is None else merge.add(sums, add)
      losses = trees.union_add(losses, told)
      ledger = wire.merge(ledger, sent)
      count += turnout.active.sum()
      clients.append(new)
      on = jnp.zeros(len(cohort.ids), bool)
      active.append(on.at[turnout.slots].set(turnout.active))
    state = method.merge(state, tuple(clients), tuple(active), sums)
    losses = jax.tree.map(lambda x: x / count, losses)
    return state, Metrics(losses, ledger, count)

  return jax.jit(step, donate_argnums=0)
