"""The personalisation of clients before an evaluation, as a program."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine import sharding
from splitjax.engine.base import TUNE, client_keys
from splitjax.engine.fleets import Fleet
from splitjax.evaluation import evaluate
from splitjax.types import Array, Half, Method, Shard, State


def personalised(
  method: Method,
  plan: BatchPlan,
  stock: Any,
  client: Half,
  server: Half,
  own: Any,
  key: Array,
) -> Half:
  """Personalises a copy of one client: Adapt((phi, h); D_n).

  `client` is unbatched, `key` [] its PRNG key; `stock` is (image, label) of the
  training split, `own` the rest of the client's Shard.
  """
  samples = Samples(Shard(*stock, *own), plan)
  return method.personalise(client, server, samples, key)


def _parts(state: State, shards: Sequence[Shard]) -> list[Any]:
  """Collects (clients, shards, keys) of each cohort, leaves [N, ...]."""
  key = jax.random.fold_in(jax.random.fold_in(state.key, TUNE), state.round)
  return [
    (clients, tuple(shard[2:]), client_keys(key, shard.number))
    for clients, shard in zip(state.clients, shards, strict=True)
  ]


def make_personalised(
  method: Method,
  plans: tuple[BatchPlan, ...],
  fleet: Fleet,
  *,
  mesh: Mesh | None = None,
  deterministic: bool = False,
  jit: Callable[..., Any] = jax.jit,
) -> Any:
  """Compiles the personalisation of all clients.

  Arguments are those of `evaluate.make_evaluate`. Returns a jitted function
  from (state, shards) to the personalised clients of each cohort, leaves
  [N, ...].
  """

  def one(c, common, mine):
    (server, stock), (client, own, key) = common, mine
    return personalised(method, plans[c], stock, client, server, own, key)

  def tune(state, shards):
    parts = _parts(state, shards)
    common = state.server, tuple(shards[0][:2])
    return tuple(evaluate.map_clients(one, fleet, mesh, common, parts))

  return evaluate.compiled(tune, mesh, sharding.DIVIDED, deterministic, jit)
