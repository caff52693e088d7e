"""Rounds of one server: clients come one after another, or all at once.

The visiting order is data (Shard.turns), so one program serves any order, and
whoever sits out, or has fewer batches than others, costs no turn.

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
  CohortPlan,
  Common,
  Group,
  RoundSums,
  apply_faults,
  finite,
)
from splitjax.engine.client_update import (
  BatchSchedule,
  begin_round,
  draw_batches,
  local_step,
  step_with_faults,
)
from splitjax.types import Array, Half, Ledger, Segment, Shard, Tree

NOBODY = Half(Segment({}, {}))
"""A half that has no block, and so no share of any sum."""


class Prepared(NamedTuple):
  """Clients and server before the first turn; leaves [n, ...] but the server's.

  Attributes:
    clients: their halves.
    server: the one there is.
    walks: how they go through their data; nothing is real of whoever sits out.
    down: ledger of the download.
    on: [n] bool, who takes part.
    met: Found.faults.
  """

  clients: Half
  server: Half
  schedules: BatchSchedule
  down: Ledger
  on: Array
  met: Tree


class TurnMetrics(NamedTuple):
  """What the turns told, by client: leaves [n].

  Attributes:
    losses: name -> sum over its steps.
    ledger: message name -> bytes.
    broken: bool, whether a loss was not finite.
  """

  losses: dict[str, Array]
  ledger: Ledger
  broken: Array


def prepare(cohort_plan: CohortPlan, common: Common, group: Group) -> Prepared:
  """Everyone sets out: `begin` of all clients, from the same server."""

  def one(client, own, key, on):
    shard = Shard(common.image, common.label, *own)
    fault, on, met = apply_faults(cohort_plan, common, shard, on)
    client, server, down, schedule = begin_round(
      cohort_plan.method,
      cohort_plan.plan,
      client,
      common.server,
      shard,
      common.round,
      key,
      fault,
    )
    schedule = schedule._replace(real=schedule.real & on)
    return Prepared(client, server, schedule, down, on, met)

  apart = Prepared(0, None, 0, 0, 0, 0)  # type: ignore[arg-type]
  return jax.vmap(one, out_axes=apart)(*group)


def service_order(turns: Array, real: Array) -> tuple[Array, Array]:
  """Whose step comes when.

  Args:
    turns: [n, T] int32, where each step stands in line; below 0: nowhere.
    real: [n, T] bool, steps that there are.

  Returns:
    [n * T] int32, client * T + step in the order of the line, and [] int32, how
    many of them are taken.
  """
  taken = real & (turns >= 0)
  last = jnp.iinfo(turns.dtype).max
  line = jnp.argsort(jnp.where(taken, turns, last).ravel())
  return line.astype(jnp.int32), taken.sum()


def sequential_round(
  cohort_plan: CohortPlan, common: Common, group: Group
) -> tuple[tuple[Half, Array], RoundSums]:
  """One after another before one server: a loop over the line.

  A turn whose loss is not finite is undone, and its client is left out for the
  rest of the round; what it taught the server before remains. A server that is
  not finite at the end of the round undoes all of it.

  Args and Returns as of `parallel.train_cohort`.
  """
  ready, relay = (
    prepare(cohort_plan, common, group),
    cohort_plan.method.topology == "relay",
  )
  stock = common.image, common.label
  turns = Shard(*stock, *group.own).turns[:, common.round]
  width = turns.shape[1]
  line, count = service_order(turns, ready.schedules.real.any(axis=-1))
  # Jitted for its cache: the shapes of what is heard and the loop share it.
  one = functools.partial(
    local_step, cohort_plan.plan, step_with_faults(cohort_plan.method, None)
  )
  step = jax.jit(one, inline=True)

  def serve_one(clients, server, who, t, handed):
    own, schedule = trees.take((group.own, ready.schedules), who)
    shard = Shard(*stock, *own)
    pair = trees.take(clients, 0 if relay else who), of_group(server, shard)
    new, (losses, ledger, _) = step(pair, shard, schedule, t)
    if relay and cohort_plan.method.hand_on is not None:
      sent = wire.weigh(cohort_plan.method.hand_on(pair[0]), handed)
      ledger = wire.merge(ledger, sent)
    return pair, new, (losses, ledger)

  def of_group(server, shard):
    # No more than the head that moves: a turn that may be undone is a copy.
    if cohort_plan.method.group is None:
      return server
    return server._replace(memory=trees.take(server.memory, shard.group))

  def turn(q, carry):
    clients, server, heard, last = carry
    who, t = jnp.divmod(line[q], width)
    handed = (who != last).astype(float)
    pair, new, told = serve_one(clients, server, who, t, handed)
    participating = (q < count) & ~heard.broken[who]
    losses, ledger = told
    fine = participating & jnp.isfinite(sum(losses.values(), jnp.zeros(())))
    client, after = trees.where(fine, new, pair)
    clients = trees.put(clients, jnp.where(relay, 0, who), client)
    if cohort_plan.method.group is not None:
      head = Shard(*stock, *group.own).group[who]
      memory = trees.put(server.memory, head, after.memory)
      after = after._replace(memory=memory)
    losses = wire.weigh(losses, fine.astype(float))
    ledger = wire.weigh(ledger, participating.astype(float))
    news = TurnMetrics(losses, ledger, participating & ~fine)
    heard = jax.tree.map(lambda x, y: _record_turn(x, who, y), heard, news)
    return clients, after, heard, jnp.where(participating, who, last)

  clients = trees.window(ready.clients, 0, 1) if relay else ready.clients
  first = *jnp.divmod(line[0], width), jnp.ones(())
  told = jax.eval_shape(lambda: serve_one(clients, ready.server, *first)[2])
  start = clients, ready.server, _zero_metrics(len(turns), *told), jnp.int32(-1)
  # Of rounds side by side one may have more turns than another: a loop that
  # ends apart would copy all that it carries in every turn.
  turns_of_all = line.size if cohort_plan.side_by_side else count
  clients, server, heard, _ = jax.lax.fori_loop(0, turns_of_all, turn, start)
  if relay:
    clients = trees.repeat(trees.take(clients, 0), len(turns))
  return finish_round(cohort_plan, common, group, ready, clients, server, heard)


def merged_round(
  cohort_plan: CohortPlan, common: Common, group: Group
) -> tuple[tuple[Half, Array], RoundSums]:
  """All at once before one server: a scan over local steps.

  Args and Returns as of `parallel.train_cohort`.
  """
  ready, stock = (
    prepare(cohort_plan, common, group),
    (common.image, common.label),
  )

  @functools.partial(jax.jit, inline=True)  # for its cache, as above
  def step(clients, server, own, schedules, t):
    batches, keys = jax.vmap(
      lambda own, schedule: draw_batches(
        cohort_plan.plan, Shard(*stock, *own), schedule, t
      )
    )(own, schedules)
    return cohort_plan.method.step(clients, server, batches, keys)

  def at(clients, server, t):
    return step(clients, server, group.own, ready.schedules, t)

  def next_step(carry, t):
    clients, server, heard = carry
    new, after, losses, ledger = at(clients, server, t)
    on = ready.schedules.real[:, t].any(axis=-1)
    server = trees.where(on.any(), after, server)
    clients = trees.where(on, new, clients)
    weight = on.astype(float)
    losses, ledger = wire.weigh((losses, ledger), weight)
    told = TurnMetrics(losses, ledger, heard.broken & False)
    return (clients, server, jax.tree.map(_join, heard, told)), None

  start = ready.clients, ready.server
  shapes = jax.eval_shape(lambda: trees.take(at(*start, jnp.int32(0))[2:], 0))
  heard = _zero_metrics(len(ready.on), *shapes)
  steps = jnp.arange(ready.schedules.real.shape[1])
  (clients, server, heard), _ = jax.lax.scan(next_step, (*start, heard), steps)
  return finish_round(cohort_plan, common, group, ready, clients, server, heard)


def finish_round(
  cohort_plan: CohortPlan,
  common: Common,
  group: Group,
  ready: Prepared,
  clients: Half,
  server: Half,
  heard: TurnMetrics,
) -> tuple[tuple[Half, Array], RoundSums]:
  """The upload, and what a round of one server leaves.

  Args:
    cohort_plan: what the clients do.
    common: what they share, before the round.
    group: the clients before the round.
    ready: as they set out.
    clients: their halves after the last turn.
    server: after the last turn.
    heard: what the turns told.

  Returns:
    As `parallel.train_cohort`.
  """
  method, stock = cohort_plan.method, (common.image, common.label)

  def finish(client, own, last):
    samples = Samples(Shard(*stock, *own), cohort_plan.plan)
    return method.finish(client, server, samples, last)

  new, after, up = jax.vmap(finish, out_axes=(0, None, 0))(
    clients, group.own, ready.schedules.last
  )
  sound = finite((server, after))
  counts = ready.on & ~heard.broken & sound & jax.vmap(finite)(new)
  present, counted = (x.astype(float) for x in (ready.on, counts))
  shard = Shard(*stock, *group.own)
  each = jax.vmap(method.contribute, in_axes=(0, None, 0))(
    new, NOBODY, counted * shard.size
  )
  alone = method.contribute(NOBODY, after, sound.astype(float))
  sums = trees.total(each)._replace(
    server=alone.server,
    server_weight=alone.server_weight,
    stats_weight=alone.stats_weight,
  )
  taken = jnp.maximum(ready.schedules.real.any(axis=-1).sum(axis=-1), 1)
  losses = {k: wire.weigh(x / taken, counted) for k, x in heard.losses.items()}
  ledger = wire.merge(ready.down, heard.ledger, up)
  masked = (
    jnp.zeros(cohort_plan.num_clients).at[shard.number].add(present - counted)
  )
  found = RoundSums(
    sums,
    trees.total(losses),
    dict.fromkeys(losses, counted.sum()),
    trees.total({k: wire.weigh(x, present) for k, x in ledger.items()}),
    present.sum(),
    masked,
    trees.total(ready.met),
  )
  if cohort_plan.ordered:  # one chunk
    found = jax.tree.map(lambda x: x[None], found)
  given = counts
  if method.topology == "relay":  # what was handed on last is everybody's
    given = jnp.full_like(counts, counts.any())
  return (trees.where(given, new, group.clients), counts), found


def _zero_metrics(n: int, losses: Any, ledger: Any) -> TurnMetrics:
  """Nothing heard yet of n clients, of what one tells in a step."""
  losses, ledger = trees.repeat(trees.zeros((losses, ledger)), n)
  return TurnMetrics(losses, ledger, jnp.zeros(n, bool))


def _record_turn(x: Array, who: Array, told: Array) -> Array:
  """Adds to one client's entry of [n]; once true, a flag stays so."""
  if x.dtype == bool:
    return x.at[who].max(told)
  return x.at[who].add(told)


def _join(x: Array, told: Array) -> Array:
  """Adds [n] to [n]; once true, a flag stays so."""
  return x | told if x.dtype == bool else x + told
