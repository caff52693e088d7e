"""Rounds with one server: clients one after another, or all in each step.

The service order is data (Shard.service_order), so one program serves any
order. A client that does not participate, or has fewer batches than others,
takes no turn.

  sequential   a turn: one client's next batch, through its own client half.
  relay        the same, through one client half that is handed on.
  merged       a step: the next batches of all clients, through one server.
"""

import functools
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
  by_number,
  finite,
)
from splitjax.engine.client_update import (
  BatchSchedule,
  Visit,
  begin_round,
  draw_batches,
  draw_schedule,
  local_step,
  step_with_faults,
)
from splitjax.types import Array, Half, Ledger, Method, Segment, Tree

EMPTY = Half(Segment({}, {}))
"""A half without blocks, which contributes to no sum."""


class Started(NamedTuple):
  """Clients and server before the first turn; leaves [n, ...] but the server's.

  Attributes:
    clients: their halves after the download.
    server: the one server.
    schedules: the clients' batches; of one that does not participate all are
      padding.
    download: its ledger.
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
  """Sums over the turns of a round, by client: leaves [n].

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
  """The downloads and batches of all clients, from the same server."""

  def one(client, data, key, active):
    shard = inputs.shard(data)
    fault, on, fault_counts = apply_faults(spec, inputs, shard, active)
    visit = Visit(client, inputs.server, shard, inputs.round, key, fault)
    client, server, download = begin_round(spec.method, spec.plan, visit)
    schedule = draw_schedule(spec.method, spec.plan, visit)
    schedule = schedule._replace(real=schedule.real & on)
    return Started(client, server, schedule, download, on, fault_counts)

  axes = Started(0, None, 0, 0, 0, 0)  # type: ignore[arg-type]
  return jax.vmap(one, out_axes=axes)(*group)


def make_queue(service_order: Array, real: Array) -> tuple[Array, Array]:
  """The steps of a round in the order in which the server takes them.

  Args:
    service_order: [n, T] int32, each step's position; below 0: not taken.
    real: [n, T] bool, steps with samples.

  Returns:
    [n * T] int32, client * T + step by position, and [] int, how many of them
    are taken; the rest follow in any order.
  """
  taken = real & (service_order >= 0)
  last = jnp.iinfo(service_order.dtype).max
  queue = jnp.argsort(jnp.where(taken, service_order, last).ravel())
  return queue.astype(jnp.int32), taken.sum()


def sequential_round(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """Clients one after another before one server: a loop over the queue.

  A turn with a non-finite loss is undone, and its client takes no more turns in
  this round; its earlier updates of the server remain. If the server is not
  finite at the end of the round, the whole round is undone.

  Returns as `parallel.train_cohort`.
  """
  method, relay = spec.method, spec.method.traits.topology == "relay"

  # Download, and the queue of all steps.
  started = start_clients(spec, inputs, group)
  shards = inputs.shard(group.data)
  positions = shards.service_order[:, inputs.round]
  num_clients, width = positions.shape
  queue, count = make_queue(positions, started.schedules.real.any(axis=-1))
  # Jitted for its cache: eval_shape and the loop share one trace.
  (stage,) = method.stages
  step = jax.jit(
    functools.partial(local_step, spec.plan, step_with_faults(stage)),
    inline=True,
  )

  def skip(*arguments):
    """A step that is not taken: nothing changes, and all sums are 0."""
    return arguments[0], trees.zeros(jax.eval_shape(step, *arguments)[1])

  def serve(clients, server, who, t, holder, on):
    """One client's step, if `on`: the pair before, after; losses, ledger."""
    data, schedule = trees.take((group.data, started.schedules), who)
    shard = inputs.shard(data)
    client = trees.take(clients, 0 if relay else who)
    pair = client, for_group(method, server, shard.group)
    # Without `cond` XLA copies the leaves of all clients in every turn.
    new, (losses, ledger, _) = jax.lax.cond(
      on, step, skip, pair, shard, schedule, t
    )
    if relay and method.hand_on is not None:
      # Another holder sends the half up; without one the server has it.
      taken = (who != holder).astype(float)
      passed = {"up": taken * (holder >= 0), "down": taken}
      for name, size in method.hand_on(client).items():
        cost = {name: wire.weigh(size, passed[name.partition("/")[0]])}
        ledger = wire.merge(ledger, cost)
    return pair, new, (losses, ledger)

  def turn(q, carry):
    clients, server, metrics, holder = carry

    # Serve the client at place q of the queue.
    who, t = jnp.divmod(queue[q], width)
    on = (q < count) & ~metrics.failed[who]
    pair, new, (losses, ledger) = serve(clients, server, who, t, holder, on)

    # Undo the turn if its loss is not finite.
    valid = on & jnp.isfinite(sum(losses.values(), jnp.zeros(())))
    client, after = trees.where(valid, new, pair)
    clients = trees.put(clients, jnp.where(relay, 0, who), client)
    group = trees.take(shards.group, who)
    after = with_group(method, server, group, after)

    # Add to the client's losses and ledger.
    of_turn = TurnMetrics(
      wire.weigh(losses, valid.astype(float)),
      wire.weigh(ledger, on.astype(float)),
      on & ~valid,
    )
    total = trees.add(trees.take(metrics, who), of_turn)  # of flags, the or
    metrics = trees.put(metrics, who, total)
    return clients, after, metrics, jnp.where(on, who, holder)

  # The loop over turns.
  clients = started.clients
  if relay:
    clients = trees.window(clients, 0, 1)
  holder = last_holder(spec, inputs, shards.service_order)
  first = *jnp.divmod(queue[0], width), holder, jnp.array(True)
  shapes = jax.eval_shape(lambda: serve(clients, started.server, *first)[2])
  metrics = zero_metrics(num_clients, *shapes)
  carry = clients, started.server, metrics, holder
  # Vmapped rounds may have different numbers of turns, and a loop with a
  # vmapped condition would copy its carry in every turn.
  turns = queue.size if spec.vmapped else count
  clients, server, metrics, _ = jax.lax.fori_loop(0, turns, turn, carry)
  if relay:
    clients = trees.repeat(trees.take(clients, 0), num_clients)

  return finish_round(spec, inputs, group, started, clients, server, metrics)


def for_group(method: Method, server: Half, group: Tree) -> Half:
  """The server as a step of a client of that group [] gets it.

  Undoing a turn copies what the step gets.
  """
  if method.group is None:
    return server
  return server._replace(memory=trees.take(server.memory, group))


def with_group(method: Method, server: Half, group: Tree, after: Half) -> Half:
  """`server` after a step that left `after`, the inverse of `for_group`."""
  if method.group is None:
    return after
  return after._replace(memory=trees.put(server.memory, group, after.memory))


def last_holder(spec: CohortSpec, inputs: RoundInputs, order: Array) -> Array:
  """Who was served last before this round, [] int32: -1 nobody, n unknown.

  It is unknown where clients may miss a round. `order` is the service order
  [n, R, T].
  """
  holder: Array | int = len(order)
  if not spec.partial and spec.faults is None:
    before = order[:, jnp.maximum(inputs.round - 1, 0)]
    holder = before.max(axis=-1).argmax()
  return jnp.where(inputs.round > 0, holder, -1).astype(jnp.int32)


def merged_round(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """All clients in each step before one server: a scan over local steps.

  Returns as `parallel.train_cohort`.
  """
  started = start_clients(spec, inputs, group)
  step_of_all = spec.method.stages[0].step
  assert step_of_all is not None

  @functools.partial(jax.jit, inline=True)  # for its cache, as above
  def step(clients, server, data, schedules, t):
    batches, keys = jax.vmap(
      lambda own, schedule: draw_batches(
        spec.plan, inputs.shard(own), schedule, t
      )
    )(data, schedules)
    return step_of_all(clients, server, batches, keys)

  def step_at(clients, server, t):
    return step(clients, server, group.data, started.schedules, t)

  def next_step(carry, t):
    clients, server, metrics = carry
    new, after, losses, ledger = step_at(clients, server, t)
    # Clients without a batch in this step stay as they are.
    on = started.schedules.real[:, t].any(axis=-1)
    server = trees.where(on.any(), after, server)
    clients = trees.where(on, new, clients)
    losses, ledger = wire.weigh((losses, ledger), on.astype(float))
    of_step = TurnMetrics(losses, ledger, jnp.zeros_like(metrics.failed))
    metrics = trees.add(metrics, of_step)
    return (clients, server, metrics), None

  start = started.clients, started.server
  shapes = jax.eval_shape(
    lambda: trees.take(step_at(*start, jnp.int32(0))[2:], 0)
  )
  metrics = zero_metrics(len(started.participating), *shapes)
  steps = jnp.arange(started.schedules.real.shape[1])
  (clients, server, metrics), _ = jax.lax.scan(
    next_step, (*start, metrics), steps
  )
  return finish_round(spec, inputs, group, started, clients, server, metrics)


def finish_round(
  spec: CohortSpec,
  inputs: RoundInputs,
  group: Participants,
  started: Started,
  clients: Half,
  server: Half,
  metrics: TurnMetrics,
) -> tuple[tuple[Half, Array], RoundSums]:
  """The upload, and the sums of a round with one server.

  `group` has the n clients before the round, `started` those before the first
  turn. `clients` (leaves [n, ...]), `server` and `metrics` are those after the
  last. Returns as `parallel.train_cohort`.
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

  def listed(values):
    return by_number(spec.num_clients, shards.number, values)

  # Sums for the aggregation: of all clients, and of the one server.
  each = jax.vmap(rule.contribute, in_axes=(0, None, 0))(
    new, EMPTY, counted * shards.size
  )
  of_server = rule.contribute(EMPTY, after, server_valid.astype(float))
  updates = trees.total(each)._replace(
    server=of_server.server,
    server_weight=of_server.server_weight,
    stats_weight=of_server.stats_weight,
  )

  # Losses averaged over each client's steps, then summed over clients.
  steps = jnp.maximum(started.schedules.real.any(axis=-1).sum(axis=-1), 1)
  losses = {
    k: wire.weigh(x / steps, counted) for k, x in metrics.losses.items()
  }
  ledger = wire.merge(started.download, metrics.ledger, upload)
  ledger = {k: wire.weigh(x, participates) for k, x in ledger.items()}
  taken = started.schedules.real.any(axis=-1).sum(axis=-1).astype(float)
  sums = RoundSums(
    updates,
    trees.total(losses),
    dict.fromkeys(losses, counted.sum()),
    trees.total(ledger),
    participates.sum(),
    listed(participates - counted),
    listed(wire.total(ledger)),
    listed(taken),
    listed(jnp.zeros_like(taken)),
    (),
    trees.total(started.faults),
  )
  if spec.ordered:  # all clients are one chunk
    sums = jax.tree.map(lambda x: x[None], sums)

  replaced = counts
  # In a relay all clients get the half that was handed on last.
  if method.traits.topology == "relay":
    replaced = jnp.full_like(counts, counts.any())
  return (trees.where(replaced, new, group.clients), counts), sums


def zero_metrics(n: int, losses: Any, ledger: Any) -> TurnMetrics:
  """Zeros for n clients; losses and ledger: shapes of one client's step."""
  losses, ledger = trees.repeat(trees.zeros((losses, ledger)), n)
  return TurnMetrics(losses, ledger, jnp.zeros(n, bool))
