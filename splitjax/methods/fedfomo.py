"""FedFomo: every client weighs the others' networks on its validation samples.

Zhang et al., Personalized Federated Learning with First Order Model
Optimization, ICLR 2021.
"""

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.losses import each_cross_entropy
from splitjax.methods import aggregation as aggregations
from splitjax.methods import base, prototypes
from splitjax.methods.adaptive import same_clients
from splitjax.methods.optimizer import Optimizer
from splitjax.models.backbone import Backbone
from splitjax.types import Aggregation, Array, Half, Method, Segment

NEVER = 1e-12
"""A smaller distance between two networks counts as none."""


def fedfomo(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  models: int = 5,
  epsilon: float = 0.3,
  decay: float = 0.05,
  validation: float = 0.2,
) -> Method:
  """FedFomo: first-order weights of other clients' networks.

  w_n = max(0, (L_i(theta_i) - L_i(theta_n)) / |theta_n - theta_i|) with losses
  on the client's validation samples, divided by their sum (eq. 6-7); theta_i <-
  theta_i + sum_n w_n (theta_n - theta_i) (eq. 8), then local SGD. If no weight
  is positive the client keeps its own.

  A client downloads M networks: those of highest affinity p_i, to which the
  weights of every round are added, each replaced with probability epsilon by
  one drawn uniformly. The server holds N networks, and a
  client that is computed M more: where memory is short, set
  system.clients_per_chunk=1.

  Args:
    backbone: the network.
    optimizer: of the client.
    models: M.
    epsilon: of the first round.
    decay: what is taken off epsilon in every round; both as in the authors'
      code.
    validation: share of its training samples that a client does not train on,
      but weighs networks on, at least one; 0.2 as in the authors' code.

  Raises:
    UserError: an option is out of range.
  """
  base.check("models", models, models >= 1, "at least 1")
  base.check("epsilon", epsilon, 0 <= epsilon <= 1, "in 0..1")
  base.check("validation", validation, 0 < validation < 1, "in (0, 1)")
  base.check("decay", decay, decay >= 0, "at least 0")

  def begin(client, server, samples, round, key):
    count = client.memory.shape[0]
    m = min(models, count - 1)
    chosen = choose(
      client.memory,
      samples.shard.number,
      m,
      jnp.maximum(epsilon - decay * round, 0.0),
      key,
    )
    others = trees.take(server.memory, chosen)
    weights = first_order(backbone, client.segment, others, samples)
    segment = toward(client.segment, others, weights)
    segment = base.own_norm(backbone, segment, client.segment)
    client = client._replace(
      segment=segment, memory=client.memory.at[chosen].add(weights)
    )
    client, server, down = receive(client, server, samples, round, key)
    return client, server, wire.weigh(down, jnp.asarray(m, float))

  aggregation = Aggregation(aggregations.no_sums, collect, same_clients)
  receive = base.download(backbone, optimizer, aggregation)

  def memory(full, fleet):
    count = fleet.num_clients
    base.check("models", models, count > 1, "of other clients; there is one")
    return jnp.zeros(count)

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
  """The server keeps the networks of all clients, in order of their numbers."""
  del active, sums
  count = jax.tree.leaves(server.memory)[0].shape[0]
  (cohort,) = clients  # whole networks form one cohort, padding last
  return server._replace(memory=trees.window(cohort.segment, 0, count))


def choose(
  affinity: Array, number: Array, m: int, epsilon: Array, key: Array
) -> Array:
  """The m clients [m] int32 whose networks client `number` downloads.

  Those of highest affinity [N], ties drawn; each place is replaced with
  probability epsilon by one drawn from the rest.
  """
  tie_key, swap_key, pick_key = jax.random.split(key, 3)
  count = affinity.shape[0]
  draw = jax.random.uniform(tie_key, (count,))
  itself = jnp.arange(count) == number
  order = jnp.lexsort((draw, -affinity, itself))  # itself comes last
  swap = jax.random.bernoulli(swap_key, epsilon, (m,))
  # A swapped place takes the next of the others in a random order.
  rest = jax.random.uniform(pick_key, (count,))
  taken = jnp.zeros(count, bool).at[order[:m]].set(~swap) | itself
  drawn = jnp.argsort(jnp.where(taken, 2.0, rest))
  place = jnp.cumsum(swap) - 1
  return jnp.where(swap, drawn[jnp.maximum(place, 0)], order[:m]).astype(
    jnp.int32
  )


def first_order(
  backbone: Backbone, own: Segment, others: Segment, samples: Samples
) -> Array:
  """The weights [M] of other networks, leaves [M, ...]; they sum to 1 or 0."""
  here = validation_loss(backbone, own, samples)

  def one(other):
    gap = here - validation_loss(backbone, other, samples)
    squares = jax.tree.map(
      lambda a, b: jnp.square(a - b).sum(), other.params, own.params
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
  """Mean cross-entropy on a client's held-out samples, [] float."""

  def add(total, inputs):
    batch = samples.batch(*inputs)
    z = prototypes.features(backbone, client, batch)
    each = each_cross_entropy(
      prototypes.logits(backbone, client, z), batch.label
    )
    part = jnp.where(batch.real, each, 0.0).sum(), batch.real.sum() * 1.0
    return trees.add(total, part), None

  start = jnp.zeros(()), jnp.zeros(())
  rows = samples.in_order(held=True)
  (total, count), _ = jax.lax.scan(add, start, rows)
  return total / jnp.maximum(count, 1)


def toward(own: Segment, others: Segment, weights: Array) -> Segment:
  """Own + sum_n w_n (theta_n - own), parameters and statistics alike."""
  gaps = jax.tree.map(lambda a, b: b - a, own, others)
  return trees.add(own, aggregations.combine(weights, gaps))
