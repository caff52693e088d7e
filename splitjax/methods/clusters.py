"""DFL's clusters of clients with similar networks; each cluster runs FedAvg.

Samikwa, Di Maio and Braun, 2024, see `splitjax.methods.dfl`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.engine.resources import Rates
from splitjax.methods import aggregations
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Tree


class Clusters(NamedTuple):
  """Memory of the server between rounds.

  Attributes:
    cluster: [N] int32, the cluster of each client. A cluster is denoted by the
      lowest index among its clients.
    rounds: [] int32, number of finished rounds.
    rates: the run's `Rates`; every field is [] float.
  """

  cluster: Array
  rounds: Array
  rates: Rates


def kernels(params: Tree) -> list[Array]:
  """Lists the arrays of a tree that are stored under the key "kernel"."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return [x for path, x in leaves if getattr(path[-1], "key", "") == "kernel"]


def similarity(params: Tree) -> Array:
  """Computes how similar clients' networks are, by linear CKA.

  For single centred columns x and y, linear CKA is <x, y>^2 / (|x| |y|)^2. Here
  x and y are the flattened kernels that two clients have in the same layer;
  the result is the mean over layers.

  Args:
    params: the clients' parameters, arrays [N, ...]. Only `kernels` are
      compared; biases, scales, class token and positions are not.

  Returns:
    [N, N].
  """
  layers = kernels(params)
  total = jnp.zeros(())
  for kernel in layers:
    x = kernel.reshape(len(kernel), -1)
    x = x - x.mean(axis=1, keepdims=True)
    x = x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    exact = jax.lax.Precision.HIGHEST
    total += jnp.square(jnp.matmul(x, x.T, precision=exact))
  return total / len(layers)


def clusters(near: Array) -> Array:
  """Puts clients into one cluster if `near` connects them, maybe via others.

  Maps near [N, N] bool to Clusters.cluster [N] int32. This is DBSCAN with
  a minimum cluster size of 1, as in the authors' code.
  """
  count = len(near)
  reach = near | jnp.eye(count, dtype=bool)
  for _ in range(max(1, math.ceil(math.log2(count)))):
    reach = jnp.matmul(reach.astype(float), reach.astype(float)) > 0
  return reach.argmax(axis=1).astype(jnp.int32)


def in_clusters(backbone: Backbone, warmup: int, eps: float) -> Aggregation:
  """Builds an aggregation that averages within each cluster after warmup."""

  # Clusters are formed once, from the networks at the end of the warmup.
  def server(server, clients, active, sums):
    del active, sums
    memory, (cohort,) = server.memory, clients
    count = len(memory.cluster)
    params = jax.tree.map(lambda x: x[:count], cohort.segment.params)
    due = memory.rounds + 1 == warmup
    found = jax.lax.cond(
      due,
      lambda: clusters(1 - similarity(params) <= eps),
      lambda: memory.cluster,
    )
    return server._replace(
      memory=memory._replace(cluster=found, rounds=memory.rounds + 1)
    )

  # A client gets the mean of its cluster, weighted by samples.
  def clients(half: Half, active, sums, server):
    del sums
    cluster, rounds = server.memory.cluster, server.memory.rounds
    count = len(cluster)
    weight = jnp.where(active, half.memory.samples, 0.0)[:count]
    shares = jnp.where(cluster[:, None] == cluster, weight, 0.0)
    total = shares.sum(axis=1)
    shares = shares / jnp.where(total > 0, total, 1.0)[:, None]
    gets = (total > 0) & (rounds > warmup)

    def averaged(x):
      mean = aggregations.combine(shares, x[:count])
      return x.at[:count].set(trees.where(gets, mean, x[:count]))

    both = half.segment.params, half.segment.stats
    params, stats = jax.tree.map(averaged, both)
    new = half.segment._replace(params=params, stats=stats)
    return half._replace(
      segment=own_norm(backbone.local_norm, new, half.segment)
    )

  return Aggregation(
    aggregations.no_sums,
    server,
    clients,
    alike=warmup == 0 and not backbone.local_norm,
  )
