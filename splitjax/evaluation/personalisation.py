"""Compiles the personalisation of clients, which precedes an evaluation."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine import sharding
from splitjax.engine.base import TUNE, client_keys
from splitjax.engine.fleets import Fleet
from splitjax.evaluation import evaluate
from splitjax.types import Method, Shard


def make_personalised(
  method: Method,
  plans: tuple[BatchPlan, ...],
  fleet: Fleet,
  *,
  mesh: Mesh | None = None,
  jit: Callable[..., Any] = jax.jit,
) -> Any:
  """Compiles the personalisation of all clients' copies: Adapt((phi, h); D_n).

  Arguments are those of `evaluate.make_evaluate`. Returns a jitted function
  (state, shards) -> the personalised clients of each cohort, arrays [N, ...].
  """

  def one(c, common, mine):
    (server, data_set), (client, own, key) = common, mine
    samples = Samples(Shard(*data_set, *own), plans[c])
    return method.personalise(client, server, samples, key)

  def tune(state, shards):
    key = jax.random.fold_in(jax.random.fold_in(state.key, TUNE), state.round)
    parts = [
      (clients, tuple(shard[2:]), client_keys(key, shard.number))
      for clients, shard in zip(state.clients, shards, strict=True)
    ]
    common = state.server, tuple(shards[0][:2])
    return tuple(evaluate.map_clients(one, fleet, mesh, common, parts))

  return jit(
    tune, out_shardings=sharding.client_sharding(mesh, sharding.DIVIDED)
  )
