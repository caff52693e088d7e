"""DFL: the cheapest cut for each client, and clusters of similar networks.

Samikwa, Di Maio and Braun, IEEE Transactions on Machine Learning in
Communications and Networking, 2024. Every client has its own copy of the
server's part, so that training across a cut equals training the whole network
(SplitFed v1 equals FedAvg). A client therefore trains the whole network here,
and its cut decides messages, time and energy alone.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import trees, wire
from splitjax.fields import Natural, NotNegative, Probability
from splitjax.fleet import allocation
from splitjax.fleet.resources import RESOURCES, Devices
from splitjax.methods import nets
from splitjax.methods.fedavg import Unaveraged
from splitjax.models import network, sizes
from splitjax.parameters import pytree
from splitjax.types import Client, Tree, UserError


class Clusters(NamedTuple):
  """The server's memory: a client's cluster has the number of its first."""

  cluster: Array  #: [N] int32
  rounds: Array  #: [] int32, finished


@pytree
class DFL(Unaveraged):
  """Clients take their cheapest cut, and run FedAvg within their cluster.

  `allocation.cut_costs` computes the cuts' costs on the clients' devices. A
  prefix goes down in the first round and after each aggregation, and up when
  the server forms clusters or averages networks.
  """

  alpha: Probability = 0.5  #: of time; energy: 1 - alpha
  #: rounds without aggregation before clients are clustered, 3 in the authors'
  #: code; 0: one cluster
  warmup: Natural = 3
  #: the largest distance (1 - CKA) within a cluster; 0.3 in the authors' code
  eps: NotNegative = 0.3
  #: of every client; with warmup=0 this is SplitFed v1. None: the cheapest.
  cut: int | None = None

  def __post_init__(self):
    super().__post_init__()
    cuts = self.backbone.cuts
    if self.cut not in (None, *cuts):
      raise UserError(f"cut={self.cut} must be one of {cuts}, backbone.depths")
    if self.channels != wire.Wire():  # it would price what nobody rounds
      raise UserError(
        "only counts the bytes of features and gradients, because its clients"
        " train the whole network: set wire and privacy back"
      )

  @property
  def needs_server(self):
    return True

  def cuts(self, fleet):
    count = fleet.num_clients
    if self.cut is not None:
      return np.full(count, self.cut)
    alike = Devices(**dict.fromkeys(RESOURCES, (1.0,) * count))
    devices = fleet.hardware or alike
    cost = allocation.cut_costs(devices, self.backbone, self.alpha)
    return np.array(self.backbone.cuts)[cost.argmin(axis=1)]

  def first_client(self, net, size):
    return Client(net=net, memory=jnp.zeros(()))  # its weight in the mean

  def first_server(self, full, part, size):
    nobody = Clusters(cluster=jnp.zeros(size, jnp.int32), rounds=jnp.int32(0))
    return super().first_server(full, part, size)._replace(memory=nobody)

  def receive(self, client, server, samples, round, key):
    cut = samples.shard.group  # its row among the backbone's cuts
    prefix = self.prefix_bytes()[cut]
    features = jnp.asarray(allocation.feature_bytes(self.backbone))[cut]
    used = (round == 0) | (round > self.warmup)
    wire.record("down/prefix", jnp.where(used, prefix, 0.0))
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, (prefix, features)

  def exchange(self, direction, net):
    """Records nothing: the cut decides what travels, and when."""

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    _, features = context
    size = features * batch.real.sum()
    wire.record("up/features", size)
    wire.send_labels(batch.real)
    wire.record("down/feature_gradient", size)
    return super().step(half, copy, (), batches, key)

  def send(self, half, copy, context, samples, weight, key):
    prefix, _ = context
    used = copy.memory.rounds + 1 >= self.warmup
    wire.record("up/prefix", jnp.where(used, prefix, 0.0))
    client, shares = super().send(half, copy, context, samples, weight, key)
    return client._replace(memory=weight), shares

  def merge(self, server, shares, clients, counted):
    """Forms the clusters at the end of the warmup, then averages in each."""
    (client,) = clients
    (took_part,) = counted
    cluster = server.memory.cluster
    rounds = server.memory.rounds + 1
    count = len(cluster)  # padding comes last
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
    weights /= jnp.where(total > 0, total, 1.0)[:, None]
    gets = (total > 0) & (rounds > self.warmup)
    sent = nets.select(real, self.sends)
    means = trees.where(gets, nets.combine(weights, sent), sent)
    net = trees.put(client.net, slice(count), nets.join(means, real))
    memory = Clusters(cluster=cluster, rounds=rounds)
    return server._replace(memory=memory), (client._replace(net=net),)

  def prefix_bytes(self):
    """Counts the bytes [K] of what is sent of the blocks before each cut."""
    net = nets.select(sizes.shapes(self.backbone), self.sends)
    names = self.backbone.names()
    prefixes = [network.select(net, names[:k]) for k in self.backbone.cuts]
    return jnp.asarray([*map(trees.num_bytes, prefixes)], float)


def similarity(params: Tree) -> Array:
  """Computes how similar clients' networks are, by linear CKA, [N, N].

  For single centred columns x and y it is <x, y>^2 / (|x| |y|)^2. Here x and y
  are two clients' flattened kernels of a layer of `params` [N, ...]; the result
  is the mean over layers. Other leaves are not compared.
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


def clusters(close: Array) -> Array:
  """Numbers clients by cluster, [N]: `close` [N, N] bool, also via others.

  This is DBSCAN with a minimum cluster size of 1, as in the authors' code.
  """
  count = len(close)
  reach = close | jnp.eye(count, dtype=bool)
  for _ in range(max(1, math.ceil(math.log2(count)))):
    reach = jnp.matmul(reach.astype(float), reach.astype(float)) > 0
  return reach.argmax(axis=1).astype(jnp.int32)
