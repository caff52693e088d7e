"""How clients and server work together in a round.

  parallel    every client has its own copy of the server (`visit`);
  sequential  one server takes the clients' batches in turns;
  relay       the same, with one client half that is handed on;
  merged      one server takes the batches of all clients in each step.

A loop of your own is an entry of TOPOLOGIES that a method names by `topology`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees, wire
from splitjax.engine.visit import (
  ClientRound,
  Group,
  Pair,
  Tally,
  Trained,
  Visit,
  finite,
  parallel,
  tallied,
  zeroed,
)
from splitjax.fields import unknown
from splitjax.methods import nets
from splitjax.methods.method import Method
from splitjax.types import Half, Tree, UserError

_AT_SERVER = -1
"""Holder of a relay's client half before the first turn of a run."""

_UNKNOWN = 2**31 - 1
"""Holder that is some client, but equals no client's row."""


class Crowd(NamedTuple):
  """Clients [n, ...] at their one server, during a round."""

  halves: Half
  server_half: Half  #: unstacked
  contexts: Tree
  tally: Tally  #: of their steps so far, with the messages of the download
  visits: Visit  #: with the schedules of their steps

  @property
  def taken(self) -> Array:
    """[n, T] bool, the steps that they take."""
    (steps,) = self.visits.schedules
    assert steps is not None
    return steps.taken

  def after(self, halves: Half, server_half: Half, tally: Tally) -> "Crowd":
    """Returns the crowd after its steps, whose `tally` is added."""
    tally = nets.add(tally, self.tally)
    return self._replace(halves=halves, server_half=server_half, tally=tally)


class Turns(NamedTuple):
  """What changes from turn to turn."""

  halves: Half  #: [n, ...]; in a relay [1, ...]
  server_half: Half
  tally: Tally  #: [n]
  failed: Array  #: [n] bool, clients with a turn that was undone
  holder: Array  #: [] int32, row of the client served last


def sequential(group: Group, *, relay: bool = False) -> Trained:
  """One server takes the clients' batches in turns (Shard.service_order).

  A turn that leaves a loss or a half not finite is undone, and its client takes
  no more turns in this round: the next client would start from its numbers.
  """
  crowd = begin(group)
  group = group._replace(visits=crowd.visits)
  method = group.method
  order = group.visits.shard.service_order[:, group.common.round]
  queue, length = _queue_of(order, crowd.taken)
  zero = jnp.int32(0)

  @functools.partial(jax.jit, inline=True)  # traced once, for both uses
  def serve(pair, who, t, holder):
    context, visit = trees.take((crowd.contexts, group.visits), who)
    client_round = ClientRound(method, group.plan, group.common, visit)
    after, tally = client_round.step(0, pair, context, t)
    if relay:
      handed = _hand_on(method, pair.half, who, holder)
      tally = tally._replace(wire=nets.add(tally.wire, handed))
    return after, tally

  # What a skipped turn adds: zeros in the shapes of a served one.
  half, context = trees.take((crowd.halves, crowd.contexts), zero)
  pair = Pair(half=half, copy=method.lend(crowd.server_half, context))
  no_tally = trees.zeros(jax.eval_shape(serve, pair, zero, zero, zero)[1])

  def turn(q, turns):
    who, t = jnp.divmod(queue[q], order.shape[1])
    row = zero if relay else who  # a relay has a single half
    context = trees.take(crowd.contexts, who)
    lent = method.lend(turns.server_half, context)
    pair = Pair(half=trees.take(turns.halves, row), copy=lent)
    on = ~turns.failed[who]
    # Without `cond` XLA copies the leaves of all clients in every turn.
    after, tally = jax.lax.cond(
      on,
      lambda: serve(pair, who, t, turns.holder),
      lambda: (pair, no_tally),
    )
    # Also the optimiser's slots, which outlive the turn.
    fine = on & finite((tuple(after), tally.losses))
    client, lent = trees.where(fine, after, pair)
    tally = tally._replace(losses=zeroed(fine, tally.losses))
    tally = trees.add(trees.take(turns.tally, who), tally)
    return Turns(
      halves=trees.put(turns.halves, row, client),
      server_half=method.take_back(turns.server_half, context, lent),
      tally=trees.put(turns.tally, who, tally),
      failed=turns.failed.at[who].set(~fine),
      holder=jnp.where(on, who, turns.holder).astype(jnp.int32),
    )

  start = Turns(
    halves=trees.take(crowd.halves, slice(1 if relay else group.clients)),
    server_half=crowd.server_half,
    tally=trees.repeat(no_tally, group.clients),
    failed=jnp.zeros(group.clients, bool),
    holder=_last_holder(group),
  )
  turns = jax.lax.fori_loop(0, length, turn, start)
  clients = turns.halves
  if relay:
    clients = trees.repeat(trees.take(clients, 0), group.clients)
  crowd = crowd.after(clients, turns.server_half, turns.tally)
  return end(group, crowd, turns.failed)


def _queue_of(order: Array, taken: Array) -> tuple[Array, Array]:
  """Queues the steps that are `taken` [n, T] by their places in `order` [n, T].

  Step t of client i has the number i T + t. Returns the numbers [n T], those of
  steps without a place behind the others, and how many have one. The order [[0,
  2], [1, -1]] makes the queue [0, 2, 1, 3], 3 turns: of clients 0, 1 and 0.
  """
  queued = taken & (order >= 0)
  behind = jnp.iinfo(order.dtype).max
  queue = jnp.argsort(jnp.where(queued, order, behind).ravel())
  return queue, queued.sum()


def _hand_on(
  method: Method, half: Half, who: Array, holder: Array
) -> wire.Ledger:
  """Prices the client half's way from its last holder, by the server."""
  with wire.ledger() as sent:
    method.exchange("up", half.net)
    method.exchange("down", half.net)
  moved = who != holder
  by_client = moved & (holder != _AT_SERVER)
  return {
    name: jnp.where(by_client if name.startswith("up/") else moved, size, 0.0)
    for name, size in sent.items()
  }


def _last_holder(group: Group) -> Array:
  """Finds the client that was served last before this round, [] int32.

  AT_SERVER in the first round. UNKNOWN if clients may miss rounds: then every
  first turn of a round is priced as if another client had the half.
  """
  order = group.visits.shard.service_order
  positions = order[:, jnp.maximum(group.common.round - 1, 0)]
  holder = _UNKNOWN if group.idle else positions.max(axis=-1).argmax()
  holder = jnp.where(group.common.round > 0, holder, _AT_SERVER)
  return holder.astype(jnp.int32)


def merged(group: Group) -> Trained:
  """One server takes the batches of all clients in each step.

  The method's step gets halves, contexts, batches and keys of all clients,
  stacked [n, ...]; its losses and messages are [n].
  """
  (stage,) = group.method.stages()
  if stage.alone is not None:
    raise UserError("alone: a merged step needs the server; leave it None")
  crowd = begin(group)
  group = group._replace(visits=crowd.visits)

  @functools.partial(jax.jit, inline=True)  # traced once, for both uses
  def step(pair, t):
    batches, keys = group.over_clients(lambda client: client.batches(0, t))
    return tallied(stage.step, *pair, crowd.contexts, batches, keys)

  def next_step(carry, t):
    pair, tally = carry
    after, of_step = step(pair, t)
    # Clients without a batch in this step stay as they are.
    on = crowd.taken[:, t]
    clients = trees.where(on, after.half, pair.half)
    server = trees.where(on.any(), after.copy, pair.copy)
    tally = trees.add(tally, zeroed(on, of_step))
    return (Pair(half=clients, copy=server), tally), None

  pair = Pair(half=crowd.halves, copy=crowd.server_half)
  none = trees.zeros(jax.eval_shape(step, pair, jnp.int32(0))[1])
  steps = jnp.arange(crowd.taken.shape[1])
  (pair, tally), _ = jax.lax.scan(next_step, (pair, none), steps)
  crowd = crowd.after(pair.half, pair.copy, tally)
  return end(group, crowd, jnp.zeros(group.clients, bool))


def begin(group: Group) -> Crowd:
  """Runs all clients' downloads from one server; schedules their steps."""

  def download(client_round: ClientRound) -> Crowd:
    (client, server), context, tally = client_round.download()
    visit = client_round.visit._replace(schedules=client_round.schedules)
    return Crowd(
      halves=client,
      server_half=server,
      contexts=context,
      tally=tally,
      visits=visit,
    )

  axes: Any = dict.fromkeys(Crowd._fields, 0) | {"server_half": None}
  return group.over_clients(download, out_axes=Crowd(**axes))


def end(group: Group, crowd: Crowd, failed: Array) -> Trained:
  """Runs all clients' uploads; `failed` [n] leaves clients out."""
  fine = finite((crowd.server_half.net, crowd.server_half.memory))

  def upload(client_round, client, context, tally, failed):
    counts = client_round.visit.struck.active & ~failed & fine
    counts &= finite((client.net, client.memory, tally.losses))
    pair = Pair(half=client, copy=crowd.server_half)
    return client_round.upload(pair, context, tally, counts)

  of_clients = crowd.halves, crowd.contexts, crowd.tally, failed
  clients, counts, reports = group.over_clients(upload, *of_clients)
  sums = group.total(group.visits, reports)
  # The one server has the only share of its mean.
  net = group.method.copies(crowd.server_half, (), fine.astype(float))
  shares = sums.shares | {"net": net}
  return (clients, counts), sums._replace(shares=shares)


TOPOLOGIES: dict[str, Callable[[Group], Trained]] = {
  "parallel": parallel,
  "sequential": sequential,
  "relay": functools.partial(sequential, relay=True),
  "merged": merged,
}
"""Topology -> its loop over the clients of a cohort."""


def loop_of(method: Method) -> Callable[[Group], Trained]:
  """Finds the loop that a method's topology names."""
  name = method.topology
  if name not in TOPOLOGIES:
    raise UserError(unknown("topology", name, TOPOLOGIES, "topology"))
  return TOPOLOGIES[name]


def one_server(method: Method) -> bool:
  """Tells whether all clients of a round train with one server."""
  return method.topology != "parallel"
