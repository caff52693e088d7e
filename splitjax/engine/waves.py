"""Sequential rounds in waves: clients side by side, the server in their order.

A client half changes only at its own turn. Until a client comes again, the
forward passes of all turns in the queue can therefore be computed at once, and
so can the backward passes, once the server has taken its steps one by one. The
numbers are those of `sequential.sequential_round`.
"""

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.base import (
  CohortSpec,
  Participants,
  RoundInputs,
  RoundSums,
)
from splitjax.engine.client_update import draw_batches
from splitjax.engine.one_server import (
  Started,
  TurnMetrics,
  finish_round,
  start_clients,
  zero_metrics,
)
from splitjax.engine.sequential import (
  for_group,
  make_queue,
  sequential_round,
  with_group,
)
from splitjax.types import Array, Half, Tree


def round_in_turns(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """A sequential round, in waves where that is asked for.

  A step that is not in parts (Stage.trip) is not. Nor is a vmapped round: a
  loop over waves takes the turns of the slowest of its rounds.

  Returns as `parallel.train_cohort`.
  """
  (stage,) = spec.method.stages
  if spec.wave == 1 or stage.trip is None or spec.vmapped:
    return sequential_round(spec, inputs, group)
  started = start_clients(spec, inputs, group)
  ended = _serve(spec, inputs, group, started)
  return finish_round(spec, inputs, group, started, *ended)


def next_wave(
  queue: Array, count: Array, first: Array, size: int
) -> tuple[Array, Array]:
  """The next turns that are of different clients.

  Args:
    queue: [Q] int32, the client of each turn.
    count: [] int, turns that are taken, those at the front.
    first: [] int, the place of the next one.
    size: of a wave.

  Returns:
    [size] int, places in the queue, and [size] bool, whether they are of this
    wave: those before the first one whose client is in it already.
  """
  place = first + jnp.arange(size)
  inside = place < count
  place = jnp.minimum(place, len(queue) - 1)
  who = queue[place]
  again = jnp.tril(who[:, None] == who, -1).any(axis=1)
  return place, inside & (jnp.cumsum(again) == 0)


def _serve(
  spec: CohortSpec,
  inputs: RoundInputs,
  group: Participants,
  started: Started,
) -> tuple[Half, Half, TurnMetrics]:
  """All turns of a round: clients [n, ...], server and metrics after them."""
  method, (stage,) = spec.method, spec.method.stages
  trip = stage.trip
  assert trip is not None
  shards = inputs.shard(group.data)
  positions = shards.service_order[:, inputs.round]
  n, width = positions.shape
  queue, count = make_queue(positions, started.schedules.real.any(axis=-1))
  shape = jax.eval_shape(lambda: trees.take(started.clients, 0))

  def near(client, data, schedule, t):
    shard = inputs.shard(data)
    return trip.near(client, *draw_batches(spec.plan, shard, schedule, t))

  def far(server, turn):
    """One turn at the server, undone if its loss is not finite."""
    up, losses, on, of_group = turn
    before = for_group(method, server, of_group)
    after, down, more, ledger = trip.far(shape, before, up)
    losses = losses | more
    valid = on & jnp.isfinite(sum(losses.values(), jnp.zeros(())))
    after = trees.where(valid, after, before)
    server = with_group(method, server, of_group, after)
    of_turn = TurnMetrics(
      wire.weigh(losses, valid.astype(float)),
      wire.weigh(ledger, on.astype(float)),
      on & ~valid,
    )
    return server, (down, valid, of_turn)

  def wave(carry):
    clients, server, metrics, first = carry
    place, here = next_wave(queue // width, count, first, min(spec.wave, n))
    who, t = jnp.divmod(queue[place], width)
    on = here & ~metrics.failed[who]
    mine, data, schedules, groups = trees.take(
      (clients, group.data, started.schedules, shards.group), who
    )
    up, held, losses = jax.vmap(near)(mine, data, schedules, t)
    turns = up, losses, on, groups
    server, (down, valid, of_turns) = jax.lax.scan(far, server, turns)
    new = jax.vmap(trip.end)(mine, held, down)

    # What is not of the wave is written nowhere.
    clients = _put(clients, jnp.where(valid, who, n), new)
    total = trees.add(trees.take(metrics, who), of_turns)
    metrics = _put(metrics, jnp.where(here, who, n), total)
    return clients, server, metrics, first + here.sum()

  def of_first() -> TurnMetrics:
    parts = started.clients, group.data, started.schedules, shards.group
    client, data, schedule, of_group = trees.take(parts, 0)
    up, _, losses = near(client, data, schedule, jnp.int32(0))
    return far(started.server, (up, losses, jnp.bool_(True), of_group))[1][2]

  shapes = jax.eval_shape(of_first)
  metrics = zero_metrics(n, shapes.losses, shapes.ledger)
  start = jnp.zeros((), count.dtype)
  carry = started.clients, started.server, metrics, start
  clients, server, metrics, _ = jax.lax.while_loop(
    lambda carry: carry[-1] < count, wave, carry
  )
  return clients, server, metrics


def _put(tree: Tree, rows: Array, new: Tree) -> Tree:
  """As `trees.put`; a row beyond the last is written nowhere."""
  return jax.tree.map(lambda x, y: x.at[rows].set(y, mode="drop"), tree, new)
