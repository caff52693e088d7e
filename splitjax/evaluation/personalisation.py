"""Personalises clients' networks, which precedes an evaluation."""

import functools
from typing import Any

import jax
from jax import Array
from jax.sharding import Mesh

from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.layout import Layout
from splitjax.engine.round import TUNE
from splitjax.evaluation.evaluate import map_clients
from splitjax.methods.method import Method
from splitjax.types import Net, Shard, State


@functools.partial(jax.jit, static_argnames=("layout", "plans", "mesh"))
def personalise_clients(
  method: Method,
  state: State,
  shards: tuple[Shard, ...],
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  mesh: Mesh | None = None,
) -> tuple[Net, ...]:
  """Makes the networks that answer in a row of results that is personal.

  The state stays as it is. Arguments are those of `engine.round.run_round`.
  Returns each cohort's networks, leaves [N, ...].
  """

  def of_client(plan, common, part):
    method, server, image, label = common
    client, shard, key = part
    shard = shard._replace(image=image, label=label)
    samples = Samples(shard=shard, plan=plan)
    return method.personalise(client, server, samples, key)

  key = tuning_key(state.key, state.round)
  shared: Any = ()  # image and label, which all clients share
  stacked = [
    (
      clients,
      shard._replace(image=shared, label=shared),
      jax.vmap(functools.partial(jax.random.fold_in, key))(shard.number),
    )
    for clients, shard in zip(state.clients, shards, strict=True)
  ]
  common = method, state.server, shards[0].image, shards[0].label
  return tuple(map_clients(of_client, layout, plans, mesh, common, stacked))


def tuning_key(key: Array, round: Array) -> Array:
  """Derives the key of a round's personalisation from the key of the run.

  A client folds its number in.
  """
  return jax.random.fold_in(jax.random.fold_in(key, TUNE), round)
