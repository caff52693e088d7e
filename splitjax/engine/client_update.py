"""One client's round, unbatched: a loop over its local steps."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.batch_schedule import (
  BatchSchedule,
  Visit,
  draw_batches,
  draw_schedule,
  drawn_for,
)
from splitjax.engine.faults import NO_FAULT, ClientFault
from splitjax.types import Array, Half, Ledger, Method, Shard, Stage, Tree


def begin_round(
  method: Method, plan: BatchPlan, visit: Visit
) -> tuple[Half, Half, Ledger]:
  """Runs a client's download; returns client, server and ledger after it."""
  samples = Samples(visit.shard, plan)
  key = drawn_for(method, plan, visit).begin_key
  return method.begin(visit.client, visit.server, samples, visit.round, key)


def local_step(
  plan: BatchPlan,
  step: Callable,
  pair: tuple[Half, Half],
  shard: Shard,
  schedule: BatchSchedule,
  t: Array,
) -> tuple[tuple[Half, Half], Tree]:
  """Takes a client's t-th local step of a round.

  `step` is built by `step_with_faults`, and `pair` is (client, server). The
  other arguments are as in `draw_batches`. Returns the pair after the step and
  the step's outputs (losses, ledger, loss_steps).
  """
  batches, key = draw_batches(plan, shard, schedule, t)
  client, server, outputs = step(*pair, batches, key)
  return (client, server), outputs


def client_round(
  method: Method, plan: BatchPlan, visit: Visit
) -> tuple[
  Half, Half, dict[str, Array], Ledger, dict[str, Array], Array, Array | None
]:
  """Runs one client's round, unbatched: download, all stages, upload.

  Returns:
    The client's and the server's half; each loss's mean over the steps that
    have this loss; the ledger; for each loss the number of steps that have it;
    the number of all local steps, [] float; and the number of local steps
    without the server, [] float, or None if the server is always available.
  """
  drawn = drawn_for(method, plan, visit)
  visit = visit._replace(drawn=drawn)
  client, server, download = begin_round(method, plan, visit)

  # The stages, one after another.
  pair = client, server
  sums: tuple[dict[str, Array], ...] = ({}, download, {})
  steps, alone = jnp.zeros(()), None
  for number in range(len(method.stages)):
    pair, outputs, more, missed = run_stage(method, plan, visit, number, pair)
    sums = tuple(map(wire.merge, sums, outputs))
    steps += more
    if missed is not None:
      alone = missed if alone is None else alone + missed
  losses, ledger, taken = sums

  # Average the losses, then upload.
  losses = {name: x / jnp.maximum(taken[name], 1) for name, x in losses.items()}
  client, server, upload = method.finish(
    *pair, Samples(visit.shard, plan), drawn.finish_key
  )
  ledger = wire.merge(ledger, upload)
  return client, server, losses, ledger, taken, steps, alone


def run_stage(
  method: Method,
  plan: BatchPlan,
  visit: Visit,
  number: int,
  pair: tuple[Half, Half],
) -> tuple[tuple[Half, Half], Tree, Array, Array | None]:
  """Runs one stage for a client: the stage's steps, or its function `once`.

  Returns:
    The pair after the stage; sums over the steps (losses, ledger, and for each
    loss the number of steps that have it); the number of steps taken, [] float;
    and the number of steps without the server, [] float, or None if the server
    is always available.
  """
  stage, shard, fault = method.stages[number], visit.shard, visit.fault
  if stage.epochs is not None:
    plan = plan._replace(epochs=stage.epochs, limit=None)
  if stage.once is not None:
    samples = Samples(shard, plan)
    key = drawn_for(method, plan, visit).step_keys[number]
    client, server, losses, ledger = stage.once(*pair, samples, key)
    once = dict.fromkeys(losses, jnp.ones(()))
    return (client, server), (losses, ledger, once), jnp.zeros(()), None

  # Local steps: a scan where all clients take the same number of them.
  schedule = draw_schedule(method, plan, visit, number)
  step = functools.partial(local_step, plan, step_with_faults(stage, fault))
  if plan.equal and fault.share is None and visit.participating is None:
    pair, each = jax.lax.scan(
      lambda pair, t: step(pair, shard, schedule, t),
      pair,
      jnp.arange(len(schedule.rows)),
    )
    outputs = trees.total(each)
  else:
    pair, outputs = ragged_steps(step, pair, shard, schedule)
  losses, ledger, loss_steps = outputs
  taken = schedule.real.any(axis=1).sum()
  alone = None
  if loss_steps:  # steps with the server have every loss
    alone = taken - functools.reduce(jnp.minimum, loss_steps.values())
  over = {name: loss_steps.get(name, taken) for name in losses}
  return pair, (losses, ledger, over), taken.astype(float), alone


def ragged_steps(
  step: Callable, pair: tuple[Half, Half], shard: Shard, schedule: BatchSchedule
) -> tuple[tuple[Half, Half], Tree]:
  """Runs a client's local steps; clients may take different numbers of steps.

  Only steps with real samples are computed. If clients are vmapped, the loop
  runs until the client with the most steps is done; clients with fewer steps
  then take steps of padding.

  `step` maps (pair, shard, schedule, t) to the pair after step t and its
  outputs. Returns the last pair and the outputs summed over all steps.
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


def step_with_faults(stage: Stage, fault: ClientFault = NO_FAULT) -> Callable:
  """Builds a stage's local step; `fault` may make the server unavailable.

  While the server is unavailable, the step is the stage's function `alone`, if
  the stage has this function.

  Returns:
    (client, server, batches, key) -> (client, server, (losses, ledger,
    loss_steps)). loss_steps: loss name -> 1 if the step had this loss, else 0;
    {} if every step has all losses.
  """
  one, alone = stage.step, stage.alone
  assert one is not None

  def step(client, server, batches, key):
    def with_server():
      *new, losses, ledger = one(client, server, batches, key)
      return *new, (losses, ledger, dict.fromkeys(losses, jnp.ones(())))

    down = fault.server_down
    if down is None or alone is None:
      *new, (losses, ledger, _) = with_server()
      return *new, (losses, ledger, {})
    blank = trees.zeros(jax.eval_shape(with_server)[2])

    def without_server():
      new, *own = alone(client, batches, key)
      own.append(dict.fromkeys(own[0], jnp.ones(())))
      outputs = tuple({**a, **b} for a, b in zip(blank, own, strict=True))
      return new, server, outputs

    return jax.lax.cond(down, without_server, with_server)

  return step
