"""One client's round, unbatched: its local steps are a loop."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Plan, Samples
from splitjax.engine import faults
from splitjax.engine.faults import NO_FAULT, ClientFault
from splitjax.types import Array, Batch, Half, Ledger, Method, Shard, Tree

EPOCH = 1 << 20
"""Numbers set aside for the steps of one epoch, in a client's keys."""


class BatchSchedule(NamedTuple):
  """How one client goes through its data in a round.

  Attributes:
    rows: [T, V, B] int32 of the data set.
    real: [T, B] bool, wholly False from the client's last step on.
    looks: [V] keys, of augmentation.
    key: [] key of its steps.
    last: [] key of the round's end.
  """

  rows: Array
  real: Array
  looks: Array
  key: Array
  last: Array


def begin_round(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  shard: Shard,
  round: Array,
  key: Array,
  fault: ClientFault = NO_FAULT,
  participating: Array | None = None,
) -> tuple[Half, Half, Ledger, BatchSchedule]:
  """What comes before a client's first step: the download, its batches drawn.

  Args: as of `client_round`.
  """
  samples = Samples(shard, plan)
  first, shuffle, schedule, last = jax.random.split(key, 4)
  rows, real = samples.visits(shuffle, method.views)
  if fault.share is not None:
    real = faults.truncate_steps(real, fault.share)
  if participating is not None:
    real &= participating
  numbers = EPOCH + jnp.arange(method.views)
  looks = jax.vmap(lambda v: jax.random.fold_in(shuffle, v))(numbers)
  client, server, down = method.begin(client, server, samples, round, first)
  return client, server, down, BatchSchedule(rows, real, looks, schedule, last)


def draw_batches(
  plan: Plan, shard: Shard, schedule: BatchSchedule, t: Array
) -> tuple[tuple[Batch, ...], Array]:
  """The V batches of a client's t-th local step, and the step's key.

  Args:
    plan: how it walks through its data.
    shard: the client's data.
    schedule: its batches.
    t: [] int32.
  """
  # Numbered by epoch and step in it: how long the cohort's largest client
  # takes must not change what a short one draws in its second epoch.
  number = t // plan.steps * EPOCH + t % plan.steps
  samples = Samples(shard, plan)
  rows, real = schedule.rows[t], schedule.real[t]
  batches = tuple(
    samples.batch(rows[v], real, jax.random.fold_in(schedule.looks[v], number))
    for v in range(len(rows))
  )
  return batches, jax.random.fold_in(schedule.key, number)


def local_step(
  plan: Plan,
  step: Callable,
  pair: tuple[Half, Half],
  shard: Shard,
  schedule: BatchSchedule,
  t: Array,
) -> tuple[tuple[Half, Half], Tree]:
  """A client's t-th local step of a round.

  Args:
    plan: how it walks through its data.
    step: as `step_for` makes it.
    pair: client and server.
    shard: the client's data.
    schedule: its batches.
    t: [] int32.

  Returns:
    The pair after it, and what the step told.
  """
  client, server, told = step(*pair, *draw_batches(plan, shard, schedule, t))
  return (client, server), told


def client_round(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  shard: Shard,
  round: Array,
  key: Array,
  fault: ClientFault = NO_FAULT,
  participating: Array | None = None,
) -> tuple[Half, Half, dict[str, Array], Ledger, dict[str, Array]]:
  """One client, one round, unbatched.

  Args:
    method: what it does.
    plan: how it walks through its data.
    client: its half.
    server: its copy of the server.
    shard: its data.
    round: [] int32.
    key: [] PRNG key, the client's own in this round.
    fault: what befalls it.
    participating: [] bool, whether it takes part: if not it takes no step, and what is
      returned means nothing; None where everyone does.

  Returns:
    Both halves, losses averaged over its local steps, its ledger; and, where
    the server may be down, loss name -> [] float32, in how many steps it had
    that loss.
  """
  client, server, down, schedule = begin_round(
    method, plan, client, server, shard, round, key, fault, participating
  )
  take = functools.partial(
    local_step, plan, step_with_faults(method, fault.down)
  )
  pair = client, server
  if plan.equal and fault.share is None and participating is None:
    steps = jnp.arange(plan.epochs * plan.steps)
    pair, each = jax.lax.scan(
      lambda p, t: take(p, shard, schedule, t), pair, steps
    )
    told = trees.total(each)
  else:
    pair, told = ragged_steps(take, pair, shard, schedule)
  losses, ledger, had = told
  taken = jnp.maximum(schedule.real.any(axis=1).sum(), 1)
  losses = jax.tree.map(lambda x: x / taken, losses)
  client, server, up = method.finish(*pair, Samples(shard, plan), schedule.last)
  return client, server, losses, wire.merge(down, ledger, up), had


def ragged_steps(
  take: Callable, pair: tuple[Half, Half], shard: Shard, schedule: BatchSchedule
) -> tuple[tuple[Half, Half], Tree]:
  """The local steps of a client that may have fewer than others, or none.

  Only its own are computed: of clients that are trained side by side as many as
  the largest of these has, of one at a time its own. A step beyond them would
  be one of wholly masked batches.

  Args:
    take: (pair, shard, walk, t) -> the pair after step t, and what it told.
    pair: client and server.
    shard: the client's data.
    schedule: its batches.

  Returns:
    The pair after the last step, and what the steps told, summed.
  """
  # Jitted for its cache: the shapes of what is told and the loop share a trace.
  take = jax.jit(take, inline=True)
  on = schedule.real.any(axis=1)
  order = jnp.argsort(~on, stable=True)  # every epoch has some of its own
  told = trees.zeros(jax.eval_shape(take, pair, shard, schedule, order[0])[1])

  def next_step(i, carry):
    pair, told = carry
    pair, more = take(pair, shard, schedule, order[i])
    return pair, trees.add(told, more)

  return jax.lax.fori_loop(0, on.sum(), next_step, (pair, told))


def step_with_faults(method: Method, down: Array | None) -> Callable:
  """A method's local step, which may have to do without the server.

  Args:
    method: has `step`, and `alone` where it can do without.
    down: [] bool, whether the server cannot be reached; None if it always can.

  Returns:
    (client, server, batches, key) -> (client, server, (losses, ledger, had));
    had: loss name -> 1 if the step had that loss, 0 if not; {} if it always
    has.
  """

  def step(client, server, batches, key):
    def together():
      *new, losses, ledger = method.step(client, server, batches, key)
      return *new, (losses, ledger, dict.fromkeys(losses, jnp.ones(())))

    alone = method.alone
    if down is None or alone is None:
      *new, (losses, ledger, _) = together()
      return *new, (losses, ledger, {})
    blank = trees.zeros(jax.eval_shape(together)[2])

    def apart():
      new, *own = alone(client, batches, key)
      own.append(dict.fromkeys(own[0], jnp.ones(())))
      told = tuple({**a, **b} for a, b in zip(blank, own, strict=True))
      return new, server, told

    return jax.lax.cond(down, apart, together)

  return step
