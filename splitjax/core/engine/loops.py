"""How clients and server work together in a round.

  parallel    every client has its own copy of the server;
  sequential  one server takes the clients' batches in turns;
  relay       the same, with one client half that is handed from client to
              client;
  merged      one server takes the batches of all clients in each step.

To add a loop of your own: LOOPS["mine"] = function; a method names it by
`topology`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core import wire
from splitjax.core.engine import visit
from splitjax.core.engine.finite import finite
from splitjax.core.engine.layout import Cohort, Layout
from splitjax.core.engine.schedules import Schedule
from splitjax.core.engine.visit import (
  ClientRound,
  Common,
  Pair,
  Report,
  Tally,
  Visit,
  zeroed,
)
from splitjax.core.methods import nets
from splitjax.core.methods.method import Method
from splitjax.core.records import Client, Half, Tree
from splitjax.data.feed import BatchPlan
from splitjax.registry import unknown
from splitjax.types import UserError

Trained = tuple[tuple[Client, Array], Report]
"""Clients [n, ...] after a round, whether their updates count, and sums."""


class Group(NamedTuple):
  """The clients of a cohort that a device trains in a round.

  Attributes:
    method: the method of this round.
    plan: batches and epochs.
    layout: all clients.
    cohort: the cohort.
    idle: whether clients may take no step: padding of single clients, clients
      that were not sampled, faults.
    common: what all clients of the round share.
    visits: the n clients, leaves [n, ...].
  """

  method: Method
  plan: BatchPlan
  layout: Layout
  cohort: Cohort
  idle: bool
  common: Common
  visits: Visit

  @property
  def clients(self) -> int:
    """n, the number of clients."""
    return len(self.visits.sampled)

  def over_clients(
    self, function: Callable, *stacked: Tree, out_axes: Any = 0
  ) -> Any:
    """Maps a function (ClientRound, *stacked) over the clients."""

    def of_client(visit, *rest):
      in_round = ClientRound(self.method, self.plan, self.common, visit)
      return function(in_round, *rest)

    return jax.vmap(of_client, out_axes=out_axes)(self.visits, *stacked)

  def total(self, visits: Visit, reports: Report) -> Report:
    """Adds up the reports of clients; some entries are by client number."""
    by_number = {
      name: jnp.zeros(self.layout.size)
      .at[visits.shard.number]
      .add(getattr(reports, name))
      for name in ("masked", "bytes", "steps", "alone")
    }
    return trees.total(reports)._replace(**by_number)


def parallel(group: Group) -> Trained:
  """Every client trains with a copy of the server, `chunk` of them at a time.

  Of a chunk only its clients and sums stay, so that no more than `chunk` copies
  of the server exist at once.
  """
  ragged = group.idle or not group.plan.equal
  run = functools.partial(
    visit.run, group.method, group.plan, ragged, group.common
  )

  def together(visits):
    clients, counts, reports = map_clients(run, visits)
    return (clients, counts), group.total(visits, reports)

  count, visits = group.clients, group.visits
  chunk = group.cohort.chunk or count
  if chunk == count:
    return together(visits)
  together = jax.jit(together, inline=True)  # traced once, for both uses

  def next_chunk(carry, start):
    # In place: the clients are carried, and overwritten chunk by chunk.
    clients, sums = carry
    visits = group.visits._replace(client=clients)
    (trained, counts), of_chunk = together(trees.window(visits, start, chunk))
    clients = trees.put_window(clients, start, trained)
    return (clients, trees.add(sums, of_chunk)), counts

  none = jax.eval_shape(lambda: together(trees.window(visits, 0, chunk))[1])
  (clients, sums), counts = jax.lax.scan(
    next_chunk,
    (visits.client, trees.zeros(none)),
    jnp.arange(0, count, chunk, dtype=jnp.int32),
  )
  return (clients, counts.reshape(count)), sums


def map_clients(function: Callable, visits: Visit) -> Tree:
  """Maps a function of one client over n clients.

  A single one is not vmapped: its conditions then compute one branch only.
  """
  if len(visits.sampled) > 1:
    return jax.vmap(function)(visits)
  single = function(trees.take(visits, 0))
  return jax.tree.map(lambda x: jnp.asarray(x)[None], single)


class Crowd(NamedTuple):
  """Clients at their one server, during a round; leaves [n, ...].

  Attributes:
    clients: their halves.
    server: the one server, unstacked.
    contexts: of their rounds.
    tally: sums over their steps so far, with the messages of the download.
    schedules: of their steps.
  """

  clients: Half
  server: Half
  contexts: Tree
  tally: Tally
  schedules: tuple[Schedule]

  @property
  def taken(self) -> Array:
    """[n, T] bool, the steps that they take."""
    return self.schedules[0].taken

  def scheduled(self, group: Group) -> Group:
    """Returns the group, whose visits have these schedules."""
    visits = group.visits._replace(schedules=self.schedules)
    return group._replace(visits=visits)

  def after(self, clients: Half, server: Half, tally: Tally) -> "Crowd":
    """Returns the crowd after its steps; adds the `tally` of these."""
    tally = nets.union(tally, self.tally)
    return self._replace(clients=clients, server=server, tally=tally)


class Turns(NamedTuple):
  """What changes from turn to turn.

  Attributes:
    clients: the clients' halves [n, ...]; in a relay [1, ...].
    server: the one server.
    tally: sums of each client, [n].
    failed: [n] bool, clients with a loss that was not finite.
    holder: [] int32, the client that was served last; -1: none was, n: unknown.
  """

  clients: Half
  server: Half
  tally: Tally
  failed: Array
  holder: Array


def sequential(group: Group, *, relay: bool = False) -> Trained:
  """One server takes the clients' batches in turns (Shard.service_order).

  A turn whose loss is not finite is undone, and its client takes no more turns
  in this round. If the server is not finite at the end, nothing counts.
  """
  crowd = begin(group)
  group = crowd.scheduled(group)
  method, visits, common = group.method, group.visits, group.common

  # The queue: steps, as client * T + step, in the order of their positions.
  position = visits.shard.service_order[:, common.round]
  queued = crowd.taken & (position >= 0)
  last = jnp.iinfo(position.dtype).max
  queue = jnp.argsort(jnp.where(queued, position, last).ravel())

  def serve(client, server, who, t, holder):
    context, served = trees.take((crowd.contexts, visits), who)
    lent = method.lend(server, context)
    client_round = ClientRound(method, group.plan, common, served)
    pair, tally = client_round.step(0, Pair(client, lent), context, t)
    if relay:
      handed = hand_on(method, client, who, holder)
      tally = tally._replace(wire=nets.union(tally.wire, handed))
    return pair, tally

  serve = jax.jit(serve, inline=True)  # traced once, for both uses
  zero = jnp.int32(0)
  first = trees.take(crowd.clients, 0), crowd.server, zero, zero, zero
  none = trees.zeros(jax.eval_shape(serve, *first)[1])

  def turn(q, turns):
    who, t = jnp.divmod(queue[q], position.shape[1])
    place: Any = 0 if relay else who
    client = trees.take(turns.clients, place)
    context = trees.take(crowd.contexts, who)
    before = Pair(client, method.lend(turns.server, context))
    on = ~turns.failed[who]
    # Without `cond` XLA copies the leaves of all clients in every turn.
    after, tally = jax.lax.cond(
      on,
      lambda: serve(client, turns.server, who, t, turns.holder),
      lambda: (before, none),
    )
    fine = on & jnp.isfinite(sum(tally.losses.values(), jnp.zeros(())))
    client, lent = trees.where(fine, after, before)
    tally = tally._replace(losses=zeroed(fine, tally.losses))
    tally = trees.add(trees.take(turns.tally, who), tally)
    return Turns(
      clients=trees.put(turns.clients, place, client),
      server=method.take_back(turns.server, context, lent),
      tally=trees.put(turns.tally, who, tally),
      failed=turns.failed.at[who].set(~fine),
      holder=jnp.where(on, who, turns.holder).astype(jnp.int32),
    )

  clients = trees.window(crowd.clients, 0, 1) if relay else crowd.clients
  start = Turns(
    clients=clients,
    server=crowd.server,
    tally=trees.repeat(none, group.clients),
    failed=jnp.zeros(group.clients, bool),
    holder=last_holder(group),
  )
  turns = jax.lax.fori_loop(0, queued.sum(), turn, start)
  clients = turns.clients
  if relay:
    clients = trees.repeat(trees.take(clients, 0), group.clients)
  crowd = crowd.after(clients, turns.server, turns.tally)
  return end(group, crowd, turns.failed)


def hand_on(
  method: Method, client: Half, who: Array, holder: Array
) -> wire.Ledger:
  """Prices the handing of the client half to the client that is served.

  The last holder, if it is another client, sends the half up, and the next one
  gets it down. Before the first turn of a run the server has it.
  """
  with wire.ledger() as sent:
    method.exchange("up", client.net)
    method.exchange("down", client.net)
  moved = who != holder
  by_client = moved & (holder >= 0)
  return {
    name: jnp.where(by_client if name.startswith("up/") else moved, size, 0.0)
    for name, size in sent.items()
  }


def last_holder(group: Group) -> Array:
  """Finds which client was served last before this round, [] int32.

  Returns -1 in the first round, before which no client was served. Returns n if
  clients may miss a round, because it is then unknown who was last.
  """
  order, round = group.visits.shard.service_order, group.common.round
  holder: Array | int = len(order)
  if not group.idle:
    before = order[:, jnp.maximum(round - 1, 0)]
    holder = before.max(axis=-1).argmax()
  return jnp.where(round > 0, holder, -1).astype(jnp.int32)


def merged(group: Group) -> Trained:
  """One server takes the batches of all clients in each step.

  The method's step gets halves, contexts, batches and keys of all clients,
  stacked [n, ...]; its losses and messages are [n].
  """
  (stage,) = group.method.stages()
  crowd = begin(group)
  group = crowd.scheduled(group)
  ones = jnp.ones(group.clients)

  @functools.partial(jax.jit, inline=True)  # traced once, for both uses
  def step(clients, server, t):
    batches, keys = group.over_clients(lambda client: client.batches(0, t))
    with wire.ledger() as sent:
      clients, server, losses = stage.step(
        clients, server, crowd.contexts, batches, keys
      )
    with_loss = dict.fromkeys(losses, ones)
    return clients, server, Tally(losses, with_loss, sent)

  def next_step(carry, t):
    clients, server, tally = carry
    stepped, after, of_step = step(clients, server, t)
    # Clients without a batch in this step stay as they are.
    on = crowd.taken[:, t]
    server = trees.where(on.any(), after, server)
    tally = trees.add(tally, zeroed(on, of_step))
    return (trees.where(on, stepped, clients), server, tally), None

  first = crowd.clients, crowd.server, jnp.int32(0)
  none = trees.zeros(jax.eval_shape(step, *first)[2])
  start = crowd.clients, crowd.server, none
  steps = jnp.arange(crowd.taken.shape[1])
  (clients, server, tally), _ = jax.lax.scan(next_step, start, steps)
  crowd = crowd.after(clients, server, tally)
  return end(group, crowd, jnp.zeros(group.clients, bool))


def begin(group: Group) -> Crowd:
  """Runs all clients' downloads from one server, and schedules their steps."""

  def download(client_round: ClientRound) -> Crowd:
    (client, server), context, tally = client_round.begin()
    (steps,) = client_round.schedules
    assert steps is not None
    return Crowd(
      clients=client,
      server=server,
      contexts=context,
      tally=tally,
      schedules=(steps,),
    )

  axes: Any = Crowd(0, None, 0, 0, 0)  # type: ignore[arg-type]
  return group.over_clients(download, out_axes=axes)


def end(group: Group, crowd: Crowd, failed: Array) -> Trained:
  """Runs all clients' uploads; `failed` [n] leaves clients out."""
  fine = finite((crowd.server.net, crowd.server.memory))

  def upload(
    client_round: ClientRound, client: Half, *rest: Any
  ) -> tuple[Client, Array, Report]:
    context, tally, failed = rest
    counts = client_round.visit.active & ~failed & fine
    counts &= finite((client.net, client.memory, tally.losses))
    pair = Pair(client=client, server=crowd.server)
    return client_round.end(pair, context, tally, counts)

  clients, counts, reports = group.over_clients(
    upload, crowd.clients, crowd.contexts, crowd.tally, failed
  )
  sums = group.total(group.visits, reports)
  # The one server has the only share of its mean.
  theta = group.method.copies(crowd.server, (), fine.astype(float))
  return (clients, counts), sums._replace(shares=sums.shares | {"theta": theta})


LOOPS: dict[str, Callable[[Group], Trained]] = {
  "parallel": parallel,
  "sequential": sequential,
  "relay": functools.partial(sequential, relay=True),
  "merged": merged,
}
"""Topology -> its loop over the clients of a cohort."""

IN_TURN = ("sequential", "relay")
"""The topologies whose server follows the config's order of service."""


def loop_of(method: Method) -> Callable[[Group], Trained]:
  """Finds the loop that a method's topology names.

  Raises:
    UserError: LOOPS lacks this name.
  """
  name = method.topology
  if name not in LOOPS:
    raise UserError(unknown("topology", name, LOOPS, "topology"))
  return LOOPS[name]


def one_server(method: Method) -> bool:
  """Tells whether all clients of a round train with one server."""
  return method.topology != "parallel"
