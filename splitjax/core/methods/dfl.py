"""DFL: the cheapest cut for each client, and clusters of similar networks.

Samikwa, Di Maio and Braun, DFL: Dynamic Federated Split Learning in
Heterogeneous IoT, IEEE Transactions on Machine Learning in Communications and
Networking, 2024. Every client has its own copy of the server's part, so that
training across a cut equals training the whole network, wherever the cut is
(SplitFed v1 equals FedAvg). A client therefore trains the whole network here,
and its cut decides messages, time and energy alone.
"""

import math
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import trees
from splitjax.core import wire
from splitjax.core.fleet import allocation
from splitjax.core.methods import nets
from splitjax.core.methods.method import Method
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import Client, Tree
from splitjax.engine.resources import RATES, Devices, Profiles
from splitjax.fields import NOT_NEGATIVE, PROBABILITY
from splitjax.models import backbones, shapes
from splitjax.types import UserError


class Clusters(NamedTuple):
  """Memory of the server.

  Attributes:
    cluster: [N] int32, the cluster of each client, which has the number of its
      first client.
    rounds: [] int32, finished rounds.
  """

  cluster: Array
  rounds: Array


class Prices(NamedTuple):
  """What a client's cut sends, [] bytes: a prefix, and features of a sample."""

  prefix: Array
  features: Array


@pytree
class DFL(WholeNetwork):
  """Clients take their cheapest cut, and run FedAvg within their cluster.

  The cuts are the backbone's; `allocation.cut_costs` computes their costs on
  the clients' devices. A prefix goes down in the first round and after each
  aggregation, and up when the server forms clusters or averages networks.

  Attributes:
    alpha: weight of the time in the cost; the energy has weight 1 - alpha.
    warmup: rounds without aggregation before clients are clustered; 3 in the
      authors' code. 0: a cluster of all clients from the first round.
    eps: clients whose networks are at most this far apart (1 - CKA) are in one
      cluster, directly or through others; 0.3 in the authors' code.
    cut: the cut of every client; with warmup=0 this is SplitFed v1. None: the
      cut of the least cost.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = splitjax.methods.Optimizer(lr=0.05)
    >>> method = DFL(backbone=net, optimizer=optimizer, warmup=5)
    >>> method.whole, method.needs_server
    (True, True)
  """

  alpha: Annotated[float, PROBABILITY] = 0.5
  warmup: Annotated[int, NOT_NEGATIVE] = 3
  eps: Annotated[float, NOT_NEGATIVE] = 0.3
  cut: int | None = None

  def __post_init__(self):
    super().__post_init__()
    cuts = self.backbone.cuts
    if self.cut is not None and self.cut not in cuts:
      raise UserError(f"cut={self.cut} must be one of {cuts}, backbone.depths")

  @property
  def needs_server(self):
    return True

  def keeps(self, path):
    return True

  def cuts(self, fleet):
    count = fleet.num_clients
    if self.cut is not None:
      return np.full(count, self.cut)
    usual = Devices(Profiles(*[(1.0,) * count] * 4), RATES)
    hardware = fleet.hardware or usual
    return allocation.cheapest_cuts(hardware, self.backbone, self.alpha)

  def first_client(self, net, size):
    # Its weight in the mean of its cluster.
    return Client(net=net, memory=jnp.zeros(()))

  def first_server(self, full, held, size):
    nobody = Clusters(cluster=jnp.zeros(size, jnp.int32), rounds=jnp.int32(0))
    return super().first_server(full, held, size)._replace(memory=nobody)

  def receive(self, client, server, samples, round, key):
    # Shard.group is the place of its cut among the backbone's.
    prices = trees.take(self.prices(), samples.shard.group)
    used = (round == 0) | (round > self.warmup)
    wire.record("down/prefix", jnp.where(used, prices.prefix, 0.0))
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, prices

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    size = context.features * batch.real.sum()
    wire.record("up/features", size)
    wire.send_labels(batch.real)
    wire.record("down/feature_gradient", size)
    return super().step(client, server, context, batches, key)

  def send(self, client, server, context, samples, weight, key):
    used = server.memory.rounds + 1 >= self.warmup
    wire.record("up/prefix", jnp.where(used, context.prefix, 0.0))
    kept, shares = super().send(client, server, context, samples, weight, key)
    return kept._replace(memory=weight), shares

  def merge(self, server, shares, clients, counted):
    """Forms the clusters at the end of the warmup, then averages in each."""
    (client,), (took_part,) = clients, counted
    cluster, rounds = server.memory
    count, rounds = len(cluster), rounds + 1  # padding comes last
    real = trees.take(client.net, slice(count))
    cluster = jax.lax.cond(
      rounds == self.warmup,
      lambda: clusters(1 - similarity(real.params) <= self.eps),
      lambda: cluster,
    )

    # A client gets the mean of its cluster, also if it sat out.
    weight = jnp.where(took_part, client.memory, 0.0)[:count]
    weights = jnp.where(cluster[:, None] == cluster, weight, 0.0)
    total = weights.sum(axis=1)
    gets = (total > 0) & (rounds > self.warmup)
    weights = weights / jnp.where(total > 0, total, 1.0)[:, None]
    before = nets.select(real, self.averages)
    after = trees.where(gets, nets.combine(weights, before), before)
    after = nets.join(after, real)
    net = jax.tree.map(lambda x, y: x.at[:count].set(y), client.net, after)
    memory = Clusters(cluster=cluster, rounds=rounds)
    return server._replace(memory=memory), (client._replace(net=net),)

  def averages(self, path: str) -> bool:
    """Tells whether a leaf is sent, and averaged in a cluster."""
    return not Method.keeps(self, path)

  def prices(self) -> Prices:
    """The prices of all cuts, [K]."""
    net = nets.select(shapes.network(self.backbone), self.averages)
    prefixes = [
      backbones.prefix(self.backbone, net, cut, with_exit=False)
      for cut in self.backbone.cuts
    ]
    return Prices(
      prefix=jnp.asarray([*map(trees.num_bytes, prefixes)], float),
      features=jnp.asarray(allocation.feature_bytes(self.backbone)),
    )


def similarity(params: Tree) -> Array:
  """Computes how similar clients' networks are, by linear CKA, [N, N].

  For single centred columns x and y, linear CKA is <x, y>^2 / (|x| |y|)^2. Here
  x and y are the flattened kernels that two clients have in the same layer of
  `params` [N, ...]; the result is the mean over layers. Biases, scales, class
  token and positions are not compared.

  Raises:
    UserError: there are no kernels to compare.
  """
  leaves = jax.tree_util.tree_leaves_with_path(params)
  layers = [x for path, x in leaves if getattr(path[-1], "key", "") == "kernel"]
  if not layers:
    raise UserError("warmup must be 0: no leaf of the network is a `kernel`")
  total = jnp.zeros(())
  for kernel in layers:
    x = kernel.reshape(len(kernel), -1)
    x = x - x.mean(axis=1, keepdims=True)
    x = x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    total += jnp.square(nets.combine(x, x.T))
  return total / len(layers)


def clusters(near: Array) -> Array:
  """Puts clients into one cluster if `near` connects them, maybe via others.

  Maps near [N, N] bool to Clusters.cluster [N] int32. This is DBSCAN with a
  minimum cluster size of 1, as in the authors' code.
  """
  count = len(near)
  reach = near | jnp.eye(count, dtype=bool)
  for _ in range(max(1, math.ceil(math.log2(count)))):
    reach = jnp.matmul(reach.astype(float), reach.astype(float)) > 0
  return reach.argmax(axis=1).astype(jnp.int32)
