"""The batches and keys of one client's local steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.draws import EPOCH, Drawn, draw, stage_epochs
from splitjax.engine.faults import NO_FAULT, ClientFault, truncate_steps
from splitjax.types import Array, Batch, Half, Method, Shard

WIRE = 1 << 28
"""WIRE + view, folded into a step's key, gives the key of a view's batch."""


class Visit(NamedTuple):
  """One client's participation in one round.

  Attributes:
    client: its half.
    server: its copy of the server, or the one server that clients share.
    shard: its data.
    round: [] int32.
    key: [] PRNG key of this client in this round.
    fault: its simulated faults.
    participating: [] bool. If False, the client takes no step and its results
      have no meaning. None: all clients of the round participate.
    drawn: the draws made with `key`. None: functions that need draws make them.
  """

  client: Half
  server: Half
  shard: Shard
  round: Array
  key: Array
  fault: ClientFault = NO_FAULT
  participating: Array | None = None
  drawn: Drawn | None = None


class BatchSchedule(NamedTuple):
  """The batches and keys of one client's local steps in a stage of a round.

  Attributes:
    rows: [T, V, B] int32, rows of the data set.
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


def drawn_for(method: Method, plan: BatchPlan, visit: Visit) -> Drawn:
  """Returns `visit.drawn`, or makes the visit's draws if it is None."""
  if visit.drawn is not None:
    return visit.drawn
  epochs = stage_epochs(method, plan)
  shard, views = visit.shard, method.traits.views
  return draw(visit.key, views, epochs, len(shard.rows), shard.size)


def draw_schedule(
  method: Method, plan: BatchPlan, visit: Visit, stage: int = 0
) -> BatchSchedule:
  """Schedules the batches of one client in one stage of a round."""
  drawn, shard = drawn_for(method, plan, visit), visit.shard
  # Turn the steps that are not taken into padding.
  orders = drawn.orders[stage][..., : len(shard.rows)]
  rows, real = Samples(shard, plan).round_batches(orders)
  if plan.limit is not None:
    order = jnp.argsort(~real.any(axis=1), stable=True)[: plan.limit]
    rows, real = rows[order], real[order]
  if visit.fault.share is not None:
    real = truncate_steps(real, visit.fault.share)
  if visit.participating is not None:
    real &= visit.participating
  augment_keys, step_key = drawn.augment_keys[stage], drawn.step_keys[stage]
  return BatchSchedule(rows, real, augment_keys, step_key, drawn.finish_key)


def draw_batches(
  plan: BatchPlan, shard: Shard, schedule: BatchSchedule, t: Array
) -> tuple[tuple[Batch, ...], Array]:
  """Collects the V batches and the key of a client's t-th local step.

  `shard` and `schedule` are those of this client, t is [] int32.
  """
  # Number a step by its epoch and its place in the epoch: the draws of a client
  # with little data must not depend on the largest client of its cohort.
  number = t // plan.steps * EPOCH + t % plan.steps
  if plan.limit is not None:  # steps follow one another without gaps
    number = t
  samples = Samples(shard, plan)
  rows, real = schedule.rows[t], schedule.real[t]
  keys = schedule.augment_keys
  own = jax.random.fold_in(schedule.step_key, number)
  batches = tuple(
    samples.batch(rows[v], real, jax.random.fold_in(keys[v], number))._replace(
      key=jax.random.fold_in(own, WIRE + v)
    )
    for v in range(len(rows))
  )
  return batches, own
