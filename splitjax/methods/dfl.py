"""DFL: a cut for each client and round, clusters of similar networks.

Samikwa et al., Dynamic Federated split Learning, 2024. Every client has a copy
of the server's part of its own, so that training across a cut equals training
the whole network, wherever the cut is (SplitFed v1 equals FedAvg). The cut of a
round is therefore data: it prices messages, time and energy, and no program
depends on it.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.resources import RATES, Devices, Profiles, Rates
from splitjax.methods import aggregation as aggregations
from splitjax.methods import base
from splitjax.methods.allocation import cut_costs, cut_table
from splitjax.methods.optimizer import Optimizer
from splitjax.models import backbone as bb
from splitjax.models import shapes
from splitjax.models.backbone import Backbone
from splitjax.types import Aggregation, Array, Half, Method, Stage, State, Tree


class Own(NamedTuple):
  """What a client knows.

  Attributes:
    compute: [] float, GFLOP/s of its device.
    bandwidth: [] float, Mbit/s, the mean over rounds.
    cut: [] int32, its split depth in this round.
    samples: [] float, |D_n|.
  """

  compute: Array
  bandwidth: Array
  cut: Array
  samples: Array


class Clusters(NamedTuple):
  """What the server knows.

  Attributes:
    cluster: [N] int32, the smallest number of a client in each one's cluster.
    rounds: [] int32, that are finished.
    rates: of the server and of power, a float each.
  """

  cluster: Array
  rounds: Array
  rates: Rates


def dfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  alpha: float = 0.5,
  jitter: float = 0.25,
  warmup: int = 3,
  eps: float = 0.3,
  cut: int | None = None,
) -> Method:
  """DFL: in each round the cut of the least cost; FedAvg inside clusters.

  Cuts are those of `backbone.depths`, their cost that of
  `allocation.cut_costs`. The server's part of a client is never averaged with
  that of another cluster.

  Args:
    backbone: the network.
    optimizer: of both halves.
    alpha: weight of time in the cost, 1 - alpha that of energy.
    jitter: standard deviation of the logarithm of a round's bandwidth, in place
      of measured throughput; ours. 0: always the mean.
    warmup: rounds without aggregation before clients are clustered, the 3 of
      the authors' code; 0: one cluster of all clients from the first round.
    eps: clients whose networks are at most this far apart are in one cluster,
      and so are their neighbours (`clusters`); 0.3 in the authors' code.
    cut: of every client in every round, as in SplitFed, which this is with
      warmup=0; None: the cut of the least cost.

  Raises:
    UserError: an option is out of range, or `cut` is none of the network's.
  """
  base.check("alpha", alpha, 0 <= alpha <= 1, "in 0..1")
  base.check("jitter", jitter, jitter >= 0, "at least 0")
  base.check("warmup", warmup, warmup >= 0, "at least 0")
  base.check("eps", eps, eps >= 0, "at least 0")
  known = f"one of {backbone.cuts} (backbone.depths)"
  base.check("cut", cut, cut is None or cut in backbone.cuts, known)
  aggregation = in_clusters(backbone, warmup, eps)
  receive = base.download(backbone, optimizer, aggregation, sent=False)
  send = base.upload(backbone, optimizer, aggregation, sent=False)
  table, cuts = cut_table(backbone), jnp.array(backbone.cuts)
  full = shapes.network(backbone)
  prefix = jnp.array(
    [
      wire.total(
        base.traffic(
          backbone, "up", bb.prefix(backbone, full, cut, with_exit=False), 0.0
        )
      )
      for cut in backbone.cuts
    ]
  )

  def place(client: Half) -> Array:
    return jnp.searchsorted(cuts, client.memory.cut)

  def begin(client, server, samples, round, key):
    own, rates = client.memory, server.memory.rates
    drawn = jnp.exp(jitter * jax.random.normal(key))
    cost = cut_costs(table, own.compute, own.bandwidth * drawn, rates, alpha)
    own = own._replace(
      cut=cuts[cost.argmin()].astype(jnp.int32) if cut is None else own.cut,
      samples=samples.shard.size.astype(float),
    )
    client, server, down = receive(
      client._replace(memory=own), server, samples, round, key
    )
    sent = wire.price("down/prefix", prefix[place(client)])
    return client, server, wire.merge(down, sent)

  def finish(client, server, samples, key):
    client, server, up = send(client, server, samples, key)
    sent = wire.price("up/prefix", prefix[place(client)])
    return client, server, wire.merge(up, sent)

  train = base.client_step(backbone, optimizer)

  def step(client, server, batches, key):
    (batch, *_) = batches
    size = jnp.asarray(table.size)[place(client)] * batch.real.sum()
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
    begin=begin,
    finish=finish,
  )
  return made._replace(
    init=_initializer(backbone, optimizer, cut),
    cut=lambda half: half.memory.cut,
  )


def _initializer(backbone: Backbone, optimizer: Optimizer, cut: int | None):
  """All clients start from one network, each on its own device."""
  plain = base.initializer(backbone, optimizer, whole=True)

  def init(key, fleet, full) -> State:
    state, count = plain(key, fleet, full), fleet.num_clients
    (cohort,) = fleet.cohorts
    usual = Devices(Profiles(*[(1.0,) * count] * 4), RATES)
    profiles, rates = fleet.hardware or usual
    places = list(cohort.places)
    compute, bandwidth = (
      jnp.array([values[n] for n in places], float)
      for values in (profiles.compute, profiles.bandwidth)
    )
    first = jnp.full(len(places), cut or backbone.cuts[0], jnp.int32)
    own = Own(compute, bandwidth, first, jnp.zeros(len(places)))
    (clients,) = state.clients
    known = Clusters(
      jnp.zeros(count, jnp.int32),
      jnp.int32(0),
      jax.tree.map(lambda x: jnp.asarray(x, float), rates),
    )
    return state._replace(
      clients=(clients._replace(memory=own),),
      server=state.server._replace(memory=known),
    )

  return init


def similarity(params: Tree) -> Array:
  """Mean over layers of the linear CKA of flattened kernels, [N, N].

  Of single columns x and y, centred, linear CKA is <x, y>^2 / (|x| |y|)^2.

  Args:
    params: leaves [N, ...]; those with one axis besides N, such as biases, do
      not count.
  """
  kernels = [x for x in jax.tree.leaves(params) if x.ndim > 2]
  total = jnp.zeros(())
  for kernel in kernels:
    x = kernel.reshape(len(kernel), -1)
    x = x - x.mean(axis=1, keepdims=True)
    x = x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    exact = jax.lax.Precision.HIGHEST
    total += jnp.square(jnp.matmul(x, x.T, precision=exact))
  return total / len(kernels)


def clusters(near: Array) -> Array:
  """Connected clients: [N, N] bool to the smallest number in each cluster.

  DBSCAN with one sample as the smallest cluster, as in the authors' code.
  """
  count = len(near)
  reach = near | jnp.eye(count, dtype=bool)
  for _ in range(max(1, math.ceil(math.log2(count)))):
    reach = jnp.matmul(reach.astype(float), reach.astype(float)) > 0
  return reach.argmax(axis=1).astype(jnp.int32)


def in_clusters(backbone: Backbone, warmup: int, eps: float) -> Aggregation:
  """Weighted means inside clusters, from the end of the warmup on."""

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
    return half._replace(segment=base.own_norm(backbone, new, half.segment))

  return Aggregation(
    aggregations.no_sums,
    server,
    clients,
    alike=warmup == 0 and not backbone.local_norm,
  )
