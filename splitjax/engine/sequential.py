"""Rounds with one server that serves clients one after another.

The service order is data (Shard.service_order), so one program serves any
order. A client that does not participate takes no turn, and one that has fewer
batches than others takes fewer turns.

A turn trains on the next batch of one client. Before the server, the batch
passes through the client half that the topology chooses:

  sequential   the client's own half;
  relay        one client half that is handed from client to client.
"""

import functools

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.base import (
  CohortSpec,
  Participants,
  RoundInputs,
  RoundSums,
)
from splitjax.engine.client_update import local_step, step_with_faults
from splitjax.engine.one_server import (
  TurnMetrics,
  finish_round,
  start_clients,
  zero_metrics,
)
from splitjax.types import Array, Half, Method, Shard, Tree


def make_queue(service_order: Array, real: Array) -> tuple[Array, Array]:
  """Sorts the steps of a round into the order in which the server takes them.

  Args:
    service_order: [n, T] int32, each step's position; below 0: not taken.
    real: [n, T] bool, steps with samples.

  Returns:
    The queue, [n * T] int32: steps, each written as client * T + step, sorted
    by position; and the number of steps taken, [] int. The steps that are not
    taken come last in the queue, in any order.
  """
  taken = real & (service_order >= 0)
  last = jnp.iinfo(service_order.dtype).max
  queue = jnp.argsort(jnp.where(taken, service_order, last).ravel())
  return queue.astype(jnp.int32), taken.sum()


def sequential_round(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """Serves clients one after another by one server: a loop over the queue.

  A turn with a non-finite loss is undone, and its client takes no more turns in
  this round; its earlier updates of the server remain. If the server is not
  finite at the end of the round, the whole round is undone.

  Returns the result of `one_server.finish_round`.
  """
  method, relay = spec.method, spec.topology.hands_on

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
    """Takes no step: nothing changes, and all sums are 0."""
    return arguments[0], trees.zeros(jax.eval_shape(step, *arguments)[1])

  def serve(clients, server, who, t, holder, on):
    """Takes step t of client `who`, but only if `on`.

    Returns the pair before the step, the pair after it, and losses and ledger.
    """
    data, schedule = trees.take((group.data, started.schedules), who)
    shard = inputs.shard(data)
    client = trees.take(clients, 0 if relay else who)
    pair = client, for_group(method, server, shard.group)
    # Without `cond` XLA copies the leaves of all clients in every turn.
    new, (losses, ledger, _) = jax.lax.cond(
      on, step, skip, pair, shard, schedule, t
    )
    if relay and method.hand_on is not None:
      # The last holder, if another client, sends the half up. Before the first
      # turn of a run nobody holds it: the server sends it down.
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
    on = ~metrics.failed[who]
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
    total = trees.add(trees.take(metrics, who), of_turn)  # flags: logical or
    metrics = trees.put(metrics, who, total)
    return clients, after, metrics, jnp.where(on, who, holder)

  # The loop over turns.
  clients = started.clients
  if relay:
    clients = trees.window(clients, 0, 1)
  holder = last_holder(spec, inputs, shards)
  first = *jnp.divmod(queue[0], width), holder, jnp.array(True)
  shapes = jax.eval_shape(lambda: serve(clients, started.server, *first)[2])
  metrics = zero_metrics(num_clients, *shapes)
  carry = clients, started.server, metrics, holder
  clients, server, metrics, _ = jax.lax.fori_loop(0, count, turn, carry)
  if relay:
    clients = trees.repeat(trees.take(clients, 0), num_clients)

  return finish_round(spec, inputs, group, started, clients, server, metrics)


def for_group(method: Method, server: Half, group: Tree) -> Half:
  """Selects the part of the server that trains with the clients of one group.

  `group` [] is its number. A turn copies only this part, to be able to undo its
  step.
  """
  if method.group is None:
    return server
  return server._replace(memory=trees.take(server.memory, group))


def with_group(method: Method, server: Half, group: Tree, after: Half) -> Half:
  """Puts `after`, the part that a step has changed, back into the server."""
  if method.group is None:
    return after
  return after._replace(memory=trees.put(server.memory, group, after.memory))


def last_holder(spec: CohortSpec, inputs: RoundInputs, shards: Shard) -> Array:
  """Finds which client was served last before this round, [] int32.

  Returns -1 in the first round, before which no client was served. Returns n if
  clients may miss a round, because it is then unknown who was last.
  """
  order = shards.service_order  # [n, R, T]
  holder: Array | int = len(order)
  if not spec.partial and not shards.faults:
    before = order[:, jnp.maximum(inputs.round - 1, 0)]
    holder = before.max(axis=-1).argmax()
  return jnp.where(inputs.round > 0, holder, -1).astype(jnp.int32)
