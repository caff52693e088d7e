"""DFL: a cut for each client and round, and clusters of similar networks.

Samikwa, Di Maio and Braun, DFL: Dynamic Federated Split Learning in
Heterogeneous IoT, IEEE Transactions on Machine Learning in Communications and
Networking, 2024. Every client has its own copy of the server's part, so that
training across a cut equals training the whole network, wherever the cut is
(SplitFed v1 equals FedAvg). The cut of a round is therefore data: it changes
messages, time and energy, and one compiled program serves all cuts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.engine.resources import RATES, Devices, Profiles
from splitjax.methods import base, optimizers
from splitjax.methods.allocation import cut_costs, cut_table
from splitjax.methods.clusters import Clusters, in_clusters, kernels
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones, shapes
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Array,
  Half,
  Method,
  Opt,
  ServerOpt,
  Stage,
  State,
  Tree,
  UserError,
)


class CutMemory(NamedTuple):
  """A client's memory.

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
  """DFL: in each round a client takes its cheapest cut; clusters run FedAvg.

  The cuts are those of `backbone.depths`, and `allocation.cut_costs` computes
  their costs. A client's network, with its copy of the server's part, is
  averaged only within the client's cluster.

  The ledger counts a prefix on its way down in the first round and in each
  round after an aggregation. It counts a prefix on its way up in the rounds in
  which the server forms clusters or averages networks. When the cut moves
  during the warmup, the ledger does not count the blocks that change sides.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves. Blocks behind the cut of a round take
      the server's learning rate, and `clip` limits the norm of each part. Slots
      that are kept between rounds stay with the client, even those of the
      server's part.
    alpha: weight of the time in the cost; the energy has weight 1 - alpha.
    jitter: standard deviation of the logarithm of a round's bandwidth; 0:
      always the mean bandwidth. DFL measures the throughput; here a bandwidth
      is drawn, and its jitter is ours.
    warmup: rounds without aggregation before clients are clustered; 3 in the
      authors' code. 0: one cluster of all clients from the first round.
    eps: clients whose networks are at most this far apart (1 - CKA) are in one
      cluster, directly or through other clients; 0.3 in the authors' code.
    cut: the cut of every client in every round; with warmup=0 this is SplitFed
      v1. None: the cut of the least cost.

  Raises:
    UserError: an option is out of range, `cut` is no cut of the network, the
      network has no kernels to compare, or the server's optimiser has other
      slots than the clients'.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.optimizers.make("sgd", lr=0.05)
    >>> method = dfl(net, sgd, warmup=5)
    >>> method.traits.depth, method.cut is not None
    ('full', True)
  """
  base.require("alpha", alpha, 0 <= alpha <= 1, "in 0..1")
  base.require("jitter", jitter, jitter >= 0, "at least 0")
  base.require("warmup", warmup, warmup >= 0, "at least 0")
  base.require("eps", eps, eps >= 0, "at least 0")
  known = f"one of {backbone.cuts} (backbone.depths)"
  base.require("cut", cut, cut is None or cut in backbone.cuts, known)
  full = shapes.network(backbone)
  found = bool(kernels(full.params)) or not warmup
  base.require(
    "warmup", warmup, found, "0: no leaf of the network is a `kernel`"
  )
  _check_slots(optimizer, full.params["head"])
  aggregation = in_clusters(backbone, warmup, eps)
  table, cuts = cut_table(backbone), jnp.array(backbone.cuts)
  prefix = jnp.array(
    [
      wire.total(
        base.traffic(
          backbone,
          "up",
          backbones.prefix(backbone, full, cut, with_exit=False),
          0.0,
        )
      )
      for cut in backbone.cuts
    ]
  )

  def place(client: Half) -> Array:
    return jnp.searchsorted(cuts, client.memory.cut)

  # The download: the cut of the round, at a drawn bandwidth; then the prefix,
  # in the first round and after each aggregation.
  def arrive(client, server, samples, round, key):
    own, rates = client.memory, server.memory.rates
    drawn = jnp.exp(jitter * jax.random.normal(key))
    cost = cut_costs(table, own.compute, own.bandwidth * drawn, rates, alpha)
    own = own._replace(
      cut=cuts[cost.argmin()].astype(jnp.int32) if cut is None else own.cut,
      samples=samples.shard.size.astype(float),
    )
    client = client._replace(memory=own)
    used = (round == 0) | (round > warmup)
    size = jnp.where(used, prefix[place(client)], 0.0)
    return client, server, wire.price("down/prefix", size)

  def leave(client, server, samples, key):
    used = server.memory.rounds + 1 >= warmup
    size = jnp.where(used, prefix[place(client)], 0.0)
    return client, server, wire.price("up/prefix", size)

  train = base.client_step(
    backbone, optimizer, descend=_by_cut(backbone, optimizer)
  )

  # Trains the whole network, and counts the messages of the cut.
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

  parts = backbone, optimizer, aggregation
  made = base.method(
    backbone,
    optimizer,
    (Stage(step),),
    aggregation,
    traits=base.FULL,
    begin=base.download(*parts, before=arrive, sent=False),
    finish=base.upload(*parts, before=leave, sent=False),
  )
  return made._replace(
    init=_initializer(backbone, optimizer, cut),
    cut=lambda half: half.memory.cut,
  )


def _initializer(backbone: Backbone, optimizer: Optimizer, cut: int | None):
  """Builds `init`: clients start from one network and know their resources."""
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
    own = CutMemory(compute, bandwidth, first, jnp.zeros(len(places)))
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


def _by_cut(backbone: Backbone, optimizer: Optimizer) -> Callable:
  """Builds `optimizers.descend` for a whole network, with a rule per part.

  Blocks before the client's cut take the client's rule, others the server's.
  """
  if optimizer.server_tx is None and optimizer.clip is None:
    return optimizers.descend

  def descend(client, grads, stats, optimizer):
    place = {name: i for i, name in enumerate([*backbone.names(), "head"])}
    near = {name: place[name] < client.memory.cut for name in grads}
    far = {name: ~on for name, on in near.items()}
    client = optimizers.descend(client, grads, stats, optimizer, near)
    client = client._replace(opt=ServerOpt(*client.opt))
    client = optimizers.descend(client, grads, {}, optimizer, far)
    return client._replace(opt=Opt(*client.opt))

  return descend


def _check_slots(optimizer: Optimizer, params: Tree) -> None:
  """Raises a UserError if the two optimisers differ in slots or schedule."""
  if optimizer.server_rate is not optimizer.rate:
    raise UserError(
      "optimizer.server_schedule: DFL's cut moves blocks between client and"
      " server, which have one schedule; leave it None, or use splitfed_v1 for"
      " one fixed cut"
    )
  rules = optimizer.rule(server=False), optimizer.rule(server=True)
  one, other = (
    jax.tree.structure(jax.eval_shape(x.init, params)) for x in rules
  )
  if str(one) != str(other):
    raise UserError(
      "optimizer.server_name: DFL's cut moves blocks between client and server,"
      " and the two optimisers keep different slots; leave it None, or use"
      " splitfed_v1 for one fixed cut"
    )
