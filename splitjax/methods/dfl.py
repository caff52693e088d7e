"""DFL: the cheapest cut for each client, and clusters of similar networks.

Samikwa, Di Maio and Braun, DFL: Dynamic Federated Split Learning in
Heterogeneous IoT, IEEE Transactions on Machine Learning in Communications and
Networking, 2024. Every client has its own copy of the server's part, so that
training across a cut equals training the whole network, wherever the cut is
(SplitFed v1 equals FedAvg). A client therefore trains the whole network here,
and its cut decides messages, time and energy alone.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees, wire
from splitjax.engine.fleets import Fleet
from splitjax.engine.resources import RATES, Devices, Profiles
from splitjax.methods import aggregations, base
from splitjax.methods.allocation import cheapest_cuts, cut_table
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones, shapes
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Method, Stage, State, Tree


class CutMemory(NamedTuple):
  """A client's memory.

  Attributes:
    place: [] int32, the place of the client's cut among `backbone.cuts`.
    samples: [] float, |D_n|.
  """

  place: Array
  samples: Array


class Clusters(NamedTuple):
  """Memory of the server between rounds.

  Attributes:
    cluster: [N] int32, the cluster of each client. A cluster is denoted by the
      lowest index among its clients.
    rounds: [] int32, number of finished rounds.
  """

  cluster: Array
  rounds: Array


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
    return server._replace(memory=Clusters(found, memory.rounds + 1))

  # A client gets the mean of its cluster, weighted by samples.
  def clients(half: Half, active, sums, server):
    del sums
    cluster, rounds = server.memory
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


def dfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  alpha: float = 0.5,
  warmup: int = 3,
  eps: float = 0.3,
  cut: int | None = None,
) -> Method:
  """DFL: each client takes its cheapest cut; clusters run FedAvg.

  The cuts are those of `backbone.depths`, and `allocation.cut_costs` computes
  their costs on the clients' devices. A client's network, with its copy of the
  server's part, is averaged only within the client's cluster.

  The ledger counts a prefix on its way down in the first round and in each
  round after an aggregation. It counts a prefix on its way up in the rounds in
  which the server forms clusters or averages networks.

  Args:
    backbone: the network.
    optimizer: optimiser of the whole network.
    alpha: weight of the time in the cost; the energy has weight 1 - alpha.
    warmup: rounds without aggregation before clients are clustered; 3 in the
      authors' code. 0: one cluster of all clients from the first round.
    eps: clients whose networks are at most this far apart (1 - CKA) are in one
      cluster, directly or through other clients; 0.3 in the authors' code.
    cut: the cut of every client; with warmup=0 this is SplitFed v1. None: the
      cut of the least cost.

  Raises:
    UserError: an option is out of range, `cut` is no cut of the network, or the
      network has no kernels to compare.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = dfl(net, sgd, warmup=5)
    >>> method.traits.depth, method.cuts is not None
    ('full', True)
  """
  base.require("alpha", alpha, 0 <= alpha <= 1, "in 0..1")
  base.require("warmup", warmup, warmup >= 0, "at least 0")
  base.require("eps", eps, eps >= 0, "at least 0")
  known = f"one of {backbone.cuts} (backbone.depths)"
  base.require("cut", cut, cut is None or cut in backbone.cuts, known)
  full = shapes.network(backbone)
  found = bool(kernels(full.params)) or not warmup
  base.require(
    "warmup", warmup, found, "0: no leaf of the network is a `kernel`"
  )
  aggregation = in_clusters(backbone, warmup, eps)
  features = jnp.asarray(cut_table(backbone).size)
  prefixes = [
    backbones.prefix(backbone, full, depth, with_exit=False)
    for depth in backbone.cuts
  ]
  prefix = jnp.array(
    [wire.total(base.traffic(backbone, "up", each, 0.0)) for each in prefixes]
  )

  def cuts(fleet: Fleet) -> np.ndarray:
    count = fleet.num_clients
    if cut is not None:
      return np.full(count, cut)
    usual = Devices(Profiles(*[(1.0,) * count] * 4), RATES)
    return cheapest_cuts(fleet.hardware or usual, backbone, alpha)

  plain = base.initializer(backbone, whole=True)

  def init(key, fleet, full) -> State:
    state = plain(key, fleet, full)
    (cohort,), (clients,) = fleet.cohorts, state.clients
    place = np.searchsorted(backbone.cuts, cuts(fleet))[list(cohort.places)]
    own = CutMemory(jnp.asarray(place, jnp.int32), jnp.zeros(len(place)))
    apart = jnp.zeros(fleet.num_clients, jnp.int32)
    return state._replace(
      clients=(clients._replace(memory=own),),
      server=state.server._replace(memory=Clusters(apart, jnp.int32(0))),
    )

  # The prefix goes down in the first round and after each aggregation.
  def arrive(client, server, samples, round, key):
    size = samples.shard.size.astype(float)
    client = client._replace(memory=client.memory._replace(samples=size))
    used = (round == 0) | (round > warmup)
    sent = jnp.where(used, prefix[client.memory.place], 0.0)
    return client, server, wire.price("down/prefix", sent)

  def leave(client, server, samples, key):
    used = server.memory.rounds + 1 >= warmup
    sent = jnp.where(used, prefix[client.memory.place], 0.0)
    return client, server, wire.price("up/prefix", sent)

  train = base.client_step(backbone, optimizer)

  # Trains the whole network, and counts the messages of the cut.
  def step(client, server, batches, key):
    (batch, *_) = batches
    size = features[client.memory.place] * batch.real.sum()
    client, losses, _ = train(client, batches, key)
    ledger = wire.merge(
      wire.price("up/features", size),
      wire.labels(batch.real),
      wire.price("down/feature_gradient", size),
    )
    return client, server, losses, ledger

  made = base.method(
    backbone,
    optimizer,
    (Stage(step),),
    aggregation,
    traits=base.FULL,
    begin=base.download(
      backbone, optimizer, aggregation, before=arrive, sent=False
    ),
    finish=base.upload(backbone, aggregation, before=leave, sent=False),
  )
  return made._replace(init=init, cuts=cuts)
