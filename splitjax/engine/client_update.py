"""One client's round, unbatched: a loop over its local steps."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Plan, Samples
from splitjax.engine.faults import NO_FAULT, ClientFault, truncate_steps
from splitjax.types import Array, Batch, Half, Ledger, Method, Shard, Tree

EPOCH = 1 << 20
"""Fold-in numbers reserved for the steps of one epoch, in a client's keys."""


class Visit(NamedTuple):
  """One client's participation in one round.

  Attributes:
    client: its half.
    server: its copy of the server, or the one server that there is.
    shard: its data.
    round: [] int32.
    key: [] PRNG key, the client's own in this round.
    fault: what goes wrong for it.
    participating: [] bool. If False, the client takes no step and its results
      have no meaning. None: all clients of the round participate.
  """

  client: Half
  server: Half
  shard: Shard
  round: Array
  key: Array
  fault: ClientFault = NO_FAULT
  participating: Array | None = None


class BatchSchedule(NamedTuple):
  """The batches and keys of one client's local steps in a round.

  Attributes:
    rows: [T, V, B] int32 of the data set.
    real: [T, B] bool, False on padding; steps that are not taken are padding.
    augment_keys: [V] keys of augmentation.
    step_key: [] key of the local steps.
    finish_key: [] key of the upload.
  """

  rows: Array
  real: Array
  augment_keys: Array
  step_key: Array
  finish_key: Array


def begin_round(
  method: Method, plan: Plan, visit: Visit
) -> tuple[Half, Half, Ledger, BatchSchedule]:
  """Starts a client's round: draws its batches, then the download.

  Returned are both halves after the download, its ledger, and the batches of
  the round.
  """
  client, server, shard, round, key, fault, participating = visit
  samples = Samples(shard, plan)
  begin_key, batch_key, step_key, finish_key = jax.random.split(key, 4)

  # Draw all batches; turn the steps that are not taken into padding.
  rows, real = samples.round_batches(batch_key, method.views)
  if fault.share is not None:
    real = truncate_steps(real, fault.share)
  if participating is not None:
    real &= participating
  numbers = EPOCH + jnp.arange(method.views)
  augment_keys = jax.vmap(lambda v: jax.random.fold_in(batch_key, v))(numbers)
  schedule = BatchSchedule(rows, real, augment_keys, step_key, finish_key)

  client, server, download = method.begin(
    client, server, samples, round, begin_key
  )
  return client, server, download, schedule


def draw_batches(
  plan: Plan, shard: Shard, schedule: BatchSchedule, t: Array
) -> tuple[tuple[Batch, ...], Array]:
  """The V batches of a client's t-th local step, and the key of the step.

  `shard` and `schedule` are the client's own, t is [] int32.
  """
  # Number a step by its epoch and its place in the epoch: the draws of a client
  # with little data must not depend on the largest client of its cohort.
  number = t // plan.steps * EPOCH + t % plan.steps
  samples = Samples(shard, plan)
  rows, real = schedule.rows[t], schedule.real[t]
  keys = schedule.augment_keys
  batches = tuple(
    samples.batch(rows[v], real, jax.random.fold_in(keys[v], number))
    for v in range(len(rows))
  )
  return batches, jax.random.fold_in(schedule.step_key, number)


def local_step(
  plan: Plan,
  step: Callable,
  pair: tuple[Half, Half],
  shard: Shard,
  schedule: BatchSchedule,
  t: Array,
) -> tuple[tuple[Half, Half], Tree]:
  """A client's t-th local step of a round.

  `step` is from `step_with_faults`, `pair` is client and server; the others are
  as of `draw_batches`. Returned are the pair after the step and its outputs
  (losses, ledger, loss_steps).
  """
  batches, key = draw_batches(plan, shard, schedule, t)
  client, server, outputs = step(*pair, batches, key)
  return (client, server), outputs


def client_round(
  method: Method, plan: Plan, visit: Visit
) -> tuple[Half, Half, dict[str, Array], Ledger, dict[str, Array]]:
  """One client, one round, unbatched: download, local steps, upload.

  Returns:
    Both halves; losses, averaged over the client's local steps; its ledger; and
    loss name -> [] float, the number of steps with this loss, if the server may
    be unavailable, else {}.
  """
  shard, fault = visit.shard, visit.fault
  client, server, download, schedule = begin_round(method, plan, visit)

  # Local steps: a scan where all clients take the same number of them.
  step = functools.partial(
    local_step, plan, step_with_faults(method, fault.server_down)
  )
  pair = client, server
  if plan.equal and fault.share is None and visit.participating is None:
    pair, each = jax.lax.scan(
      lambda pair, t: step(pair, shard, schedule, t),
      pair,
      jnp.arange(plan.epochs * plan.steps),
    )
    outputs = trees.total(each)
  else:
    pair, outputs = ragged_steps(step, pair, shard, schedule)
  losses, ledger, loss_steps = outputs

  # Average the losses, then upload.
  taken = jnp.maximum(schedule.real.any(axis=1).sum(), 1)
  losses = jax.tree.map(lambda x: x / taken, losses)
  client, server, upload = method.finish(
    *pair, Samples(shard, plan), schedule.finish_key
  )
  ledger = wire.merge(download, ledger, upload)
  return client, server, losses, ledger, loss_steps


def ragged_steps(
  step: Callable, pair: tuple[Half, Half], shard: Shard, schedule: BatchSchedule
) -> tuple[tuple[Half, Half], Tree]:
  """The local steps of a client that may take fewer of them than others.

  Only the steps with real samples are computed. Of vmapped clients the loop
  runs as long as the client with most steps needs; for the others the rest are
  steps of padding.

  `step` maps (pair, shard, schedule, t) to the pair after step t and its
  outputs. Returned are the last pair and the summed outputs of all steps.
  """
  # Jitted for its cache: eval_shape and the loop share one trace.
  step = jax.jit(step, inline=True)
  taken = schedule.real.any(axis=1)
  order = jnp.argsort(~taken, stable=True)  # every epoch may end in padding
  total = trees.zeros(jax.eval_shape(step, pair, shard, schedule, order[0])[1])

  def next_step(i, carry):
    pair, total = carry
    pair, outputs = step(pair, shard, schedule, order[i])
    return pair, trees.add(total, outputs)

  return jax.lax.fori_loop(0, taken.sum(), next_step, (pair, total))


def step_with_faults(method: Method, server_down: Array | None) -> Callable:
  """A method's local step, without the server while it is unavailable.

  A method with `alone` trains without it. `server_down` is [] bool, None if the
  server is always available.

  Returns:
    (client, server, batches, key) -> (client, server, (losses, ledger,
    loss_steps)). loss_steps: loss name -> 1 if the step had this loss, else 0;
    {} if every step has all losses.
  """

  def step(client, server, batches, key):
    def with_server():
      *new, losses, ledger = method.step(client, server, batches, key)
      return *new, (losses, ledger, dict.fromkeys(losses, jnp.ones(())))

    alone = method.alone
    if server_down is None or alone is None:
      *new, (losses, ledger, _) = with_server()
      return *new, (losses, ledger, {})
    blank = trees.zeros(jax.eval_shape(with_server)[2])

    def without_server():
      new, *own = alone(client, batches, key)
      own.append(dict.fromkeys(own[0], jnp.ones(())))
      outputs = tuple({**a, **b} for a, b in zip(blank, own, strict=True))
      return new, server, outputs

    return jax.lax.cond(server_down, without_server, with_server)

  return step
