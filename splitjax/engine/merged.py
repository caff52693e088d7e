"""Rounds with one server whose step takes the batches of all clients."""

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
from splitjax.engine.batch_schedule import draw_batches
from splitjax.engine.one_server import (
  TurnMetrics,
  finish_round,
  start_clients,
  zero_metrics,
)
from splitjax.types import Array, Half


def merged_round(
  spec: CohortSpec, inputs: RoundInputs, group: Participants
) -> tuple[tuple[Half, Array], RoundSums]:
  """Trains all clients in each step at one server: a scan over local steps.

  Returns the result of `one_server.finish_round`.
  """
  started = start_clients(spec, inputs, group)
  step_of_all = spec.method.stages[0].step
  assert step_of_all is not None

  @functools.partial(jax.jit, inline=True)  # one trace for both uses
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
