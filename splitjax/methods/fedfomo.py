"""FedFomo: every client weighs the others' networks on its validation samples.

Zhang et al., Personalized Federated Learning with First Order Model
Optimization, ICLR 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.methods import aggregations, base, prototypes
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Method, Segment

NEVER = 1e-12
"""Networks that are closer to theta_i than this get no weight."""


class Memory(NamedTuple):
  """Memory of a client between rounds.

  Attributes:
    affinity: [N], for each other client the sum of the weights that this client
      has given to it.
    start: the network that this client's last local training began with.
  """

  affinity: Array
  start: Segment


def fedfomo(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  models: int = 5,
  epsilon: float = 0.3,
  decay: float = 0.05,
  validation: float = 0.2,
) -> Method:
  """FedFomo: a client mixes networks of others by first-order weights.

  The weight of network n is w_n = max(0, (L_i(theta_i) - L_i(theta_n)) /
  |theta_n - theta_i|), with losses on the client's validation samples. The
  weights are then divided by their sum (eq. 6-7). The client takes theta_i <-
  theta_i + sum_n w_n (theta_n - theta_i) (eq. 8) and trains it by local SGD. If
  no weight is positive, it goes back to theta_i, as in the authors' code.
  theta_i is the network with which the client began its last local training;
  the network that resulted is one of the theta_n (baseline_model=first_model in
  the authors' commands).

  A client thus downloads M - 1 of the M networks. They are those with the
  highest affinity p_i, which is the sum of the weights that the client gave
  them over the rounds. Each of them is dropped with probability epsilon. In
  their place the client draws networks of other clients, uniformly from all
  that it did not keep. The server stores N networks. A client in training
  stores M + 1 networks beside its own. system.clients_per_chunk=1 needs the
  least memory.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    models: M, the number of networks that a client weighs; one of them is its
      own trained network.
    epsilon: epsilon of the first round, as in the authors' code.
    decay: what is subtracted from epsilon in every round, as in their code.
    validation: share of its training samples that a client sets aside to weigh
      networks on, at least one sample; 0.2 as in the authors' code.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedfomo(net, sgd, validation=0.1)
    >>> method.traits.validates
    0.1
  """
  base.require("models", models, models >= 2, "at least 2, its own among them")
  base.require("epsilon", epsilon, 0 <= epsilon <= 1, "in 0..1")
  base.require("validation", validation, 0 < validation < 1, "in (0, 1)")
  base.require("decay", decay, decay >= 0, "at least 0")

  def begin(client, server, samples, round, key):
    trained, (affinity, start) = client.segment, client.memory
    m = min(models, len(affinity)) - 1
    # The candidates: the client's trained network, and m of other clients.
    chosen = choose(
      affinity,
      samples.shard.number,
      m,
      jnp.maximum(epsilon - decay * round, 0.0),
      key,
    )
    candidates = jax.tree.map(
      lambda own, others: jnp.concatenate([own[None], others]),
      trained,
      trees.take(server.memory, chosen),
    )
    # Their weights against the network before the last training.
    weights = first_order(backbone, start, candidates, samples)
    segment = toward(start, candidates, weights)
    segment = own_norm(backbone.local_norm, segment, trained)
    affinity = affinity.at[chosen].add(weights[1:])
    client = client._replace(segment=segment, memory=Memory(affinity, segment))
    client, server, down = receive(client, server, samples, round, key)
    return client, server, wire.weigh(down, jnp.asarray(m, float))

  aggregation = Aggregation(
    aggregations.no_sums, collect, aggregations.same_clients
  )
  receive = base.download(backbone, optimizer, aggregation)

  def memory(full, fleet):
    count = fleet.num_clients
    base.require("models", models, count > 1, "of other clients; there is one")
    return Memory(jnp.zeros(count), base.whole_network(backbone, full))

  def stock(full, fleet):
    return trees.repeat(base.whole_network(backbone, full), fleet.num_clients)

  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    aggregation,
    traits=base.FULL._replace(validates=validation),
    begin=begin,
    client_memory=memory,
    server_memory=stock,
  )


def collect(server: Half, clients, active, sums) -> Half:
  """Stores all clients' networks at the server, in order of their numbers."""
  del active, sums
  count = jax.tree.leaves(server.memory)[0].shape[0]
  (cohort,) = clients  # whole networks form one cohort, padding last
  return server._replace(memory=trees.window(cohort.segment, 0, count))


def choose(
  affinity: Array, number: Array, m: int, epsilon: Array, key: Array
) -> Array:
  """Chooses the m clients whose networks a client downloads, [m] int32.

  `number` [] is the index of the downloading client. It first takes the m other
  clients for which its `affinity` [N] is highest; ties are broken at random.
  Then it drops each of these with probability epsilon. In their place it draws
  clients uniformly from all but itself and those it kept.
  """
  tie_key, swap_key, pick_key = jax.random.split(key, 3)
  count = affinity.shape[0]
  draw = jax.random.uniform(tie_key, (count,))
  itself = jnp.arange(count) == number
  order = jnp.lexsort((draw, -affinity, itself))  # itself comes last
  swap = jax.random.bernoulli(swap_key, epsilon, (m,))
  # Each replaced client gives way to the next of the rest, in random order.
  rest = jax.random.uniform(pick_key, (count,))
  taken = jnp.zeros(count, bool).at[order[:m]].set(~swap) | itself
  drawn = jnp.argsort(jnp.where(taken, 2.0, rest))
  place = jnp.cumsum(swap) - 1
  return jnp.where(swap, drawn[jnp.maximum(place, 0)], order[:m]).astype(
    jnp.int32
  )


def first_order(
  backbone: Backbone, start: Segment, others: Segment, samples: Samples
) -> Array:
  """Computes the weights [M] of other networks (eq. 6-7).

  `others` holds M networks as arrays [M, ...]. Losses and distances are
  measured from `start`, which is theta_i. The weights add up to 1, or all are
  0.
  """
  here = validation_loss(backbone, start, samples)

  def one(other):
    gap = here - validation_loss(backbone, other, samples)
    squares = jax.tree.map(
      lambda a, b: jnp.square(a - b).sum(), other.params, start.params
    )
    apart = jnp.sqrt(sum(jax.tree.leaves(squares)))
    some = apart > NEVER
    return jnp.where(some, jnp.maximum(gap, 0) / jnp.where(some, apart, 1), 0.0)

  weights = jax.lax.map(one, others)
  total = weights.sum()
  return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), 0.0)


def validation_loss(
  backbone: Backbone, client: Segment, samples: Samples
) -> Array:
  """Computes the mean task loss on a client's held-out samples, [] float."""

  def add(total, inputs):
    batch = samples.batch(*inputs)
    z = prototypes.features(backbone, client, batch)
    each = backbone.loss(prototypes.logits(backbone, client, z), batch.label)
    part = jnp.where(batch.real, each, 0.0).sum(), batch.real.sum() * 1.0
    return trees.add(total, part), None

  start = jnp.zeros(()), jnp.zeros(())
  rows = samples.in_order(held=True)
  (total, count), _ = jax.lax.scan(add, start, rows)
  return total / jnp.maximum(count, 1)


def toward(start: Segment, others: Segment, weights: Array) -> Segment:
  """Adds sum_n w_n (theta_n - start) to start's parameters and statistics."""
  gaps = jax.tree.map(lambda a, b: b - a, start, others)
  return trees.add(start, aggregations.combine(weights, gaps))
