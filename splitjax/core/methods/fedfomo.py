"""FedFomo: every client weighs the others' networks on its validation samples.

Zhang et al., Personalized Federated Learning with First Order Model
Optimization, ICLR 2021.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core.methods import nets, prototypes
from splitjax.core.methods.whole import Unaveraged
from splitjax.core.pytree import pytree
from splitjax.core.records import Net
from splitjax.data.feed import Samples
from splitjax.fields import NOT_NEGATIVE, PROBABILITY, Bounds
from splitjax.types import UserError

NEVER = 1e-12
"""Networks that are closer to theta_i than this get no weight."""


class Memory(NamedTuple):
  """Memory of a client between rounds.

  Attributes:
    affinity: [N], p_i: for each other client the sum of the weights that this
      client has given to it.
    start: the network that this client's last local training began with.
  """

  affinity: Array
  start: Net


@pytree
class FedFomo(Unaveraged):
  """A client mixes networks of others by first-order weights (eq. 6-8).

  The weight of network n is w_n = max(0, (L_i(theta_i) - L_i(theta_n)) /
  |theta_n - theta_i|), with losses on the client's validation samples. The
  weights are then divided by their sum (eq. 6-7). The client takes theta_i <-
  theta_i + sum_n w_n (theta_n - theta_i) (eq. 8) and trains it by local SGD. If
  no weight is positive, it goes back to theta_i, as in the authors' code.
  theta_i is the network with which the client began its last local training;
  the network that resulted is one of the theta_n (baseline_model=first_model in
  the authors' commands).

  A client thus downloads M - 1 of the M networks, see `choose`. The server
  stores N networks. A client in training stores M + 1 networks beside its own.
  system.clients_per_chunk=1 needs the least memory.

  Attributes:
    models: M, the number of networks that a client weighs; one of them is its
      own trained network.
    epsilon: epsilon of the first round, as in the authors' code.
    decay: what is subtracted from epsilon in every round, as in their code.
    validation: share of its training samples that a client sets aside to weigh
      networks on, at least one sample; 0.2 as in the authors' code.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = splitjax.methods.Optimizer(lr=0.05)
    >>> method = FedFomo(backbone=net, optimizer=optimizer, validation=0.1)
    >>> method.validates
    0.1
  """

  models: Annotated[int, Bounds(at_least=2)] = 5
  epsilon: Annotated[float, PROBABILITY] = 0.3
  decay: Annotated[float, NOT_NEGATIVE] = 0.05
  validation: Annotated[float, Bounds(above=0, below=1)] = 0.2

  @property
  def validates(self):
    return self.validation

  def first_clients(self, net, places, size):
    memory = Memory(affinity=jnp.zeros(size), start=net)
    client = self.first_client(net)._replace(memory=memory)
    return trees.repeat(client, places)

  def first_server(self, full, held, size):
    if size < 2:
      raise UserError(f"models={self.models}: there are no other clients")
    server = super().first_server(full, held, size)
    stock = nets.select(trees.repeat(held, size), self.sends)
    return server._replace(memory=stock)

  def receive(self, client, server, samples, round, key):
    trained, (affinity, start) = client.net, client.memory
    count = min(self.models, len(affinity)) - 1
    # The candidates: the client's trained network, and those of others.
    epsilon = jnp.maximum(self.epsilon - self.decay * round, 0.0)
    chosen = choose(affinity, samples.shard.number, count, epsilon, key)
    others = nets.join(
      trees.take(server.memory, chosen), trees.repeat(trained, count)
    )
    candidates = jax.tree.map(
      lambda x, others: jnp.concatenate([x[None], others]), trained, others
    )
    # Their weights against the network before the last training (eq. 6-8).
    weights = self.first_order(start, candidates, samples)
    gaps = jax.tree.map(lambda x, theta: x - theta, candidates, start)
    net = trees.add(start, nets.combine(weights, gaps))
    # Local normalisation is the client's, as it was trained.
    net = nets.join(nets.select(net, self.sends), trained)
    affinity = affinity.at[chosen].add(weights[1:])
    for _ in range(count):
      self.exchange("down", net)
    memory = Memory(affinity=affinity, start=net)
    return (
      self.optimizer.start(net, memory),
      self.optimizer.at_server.start(server.net, (), copied=True),
      (),
    )

  def merge(self, server, shares, clients, counted):
    # Whole networks form one cohort, in the order of numbers, padding last.
    (cohort,) = clients
    size = cohort.memory.affinity.shape[1]
    stock = trees.window(nets.select(cohort.net, self.sends), 0, size)
    return server._replace(memory=stock), clients

  def first_order(self, start: Net, others: Net, samples: Samples) -> Array:
    """Computes the weights [M] of networks [M, ...] (eq. 6-7).

    Losses and distances are measured from `start`, which is theta_i. The
    weights add up to 1, or all are 0.
    """
    before = self.validation_loss(start, samples)

    def weight(other):
      gain = before - self.validation_loss(other, samples)
      squares = jax.tree.map(
        lambda a, b: jnp.square(a - b).sum(), other.params, start.params
      )
      apart = jnp.sqrt(sum(jax.tree.leaves(squares)))
      some = apart > NEVER
      return jnp.where(
        some, jnp.maximum(gain, 0) / jnp.where(some, apart, 1), 0.0
      )

    weights = jax.lax.map(weight, others)
    total = weights.sum()
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), 0.0)

  def validation_loss(self, net: Net, samples: Samples) -> Array:
    """Computes the mean task loss on the held-out samples, [] float."""

    def add(total, drawn):
      batch = samples.batch(*drawn)
      z = prototypes.features(self.backbone, net, batch)
      logits = prototypes.logits(self.backbone, net, z)
      losses = self.backbone.loss(logits, batch.label)
      part = jnp.where(batch.real, losses, 0.0).sum(), batch.real.sum() * 1.0
      return trees.add(total, part), None

    zeros = jnp.zeros(()), jnp.zeros(())
    rows = samples.in_order(held=True)
    (total, count), _ = jax.lax.scan(add, zeros, rows)
    return total / jnp.maximum(count, 1)


def choose(
  affinity: Array, number: Array, count: int, epsilon: Array, key: Array
) -> Array:
  """Chooses the clients whose networks a client downloads, [count] int32.

  `number` [] is the index of the downloading client. It first takes the other
  clients for which its `affinity` [N] is highest; ties are broken at random.
  Then it drops each of these with probability epsilon. In their place it draws
  clients uniformly from all but itself and those it kept.
  """
  tie_key, swap_key, pick_key = jax.random.split(key, 3)
  clients = affinity.shape[0]
  ties = jax.random.uniform(tie_key, (clients,))
  itself = jnp.arange(clients) == number
  order = jnp.lexsort((ties, -affinity, itself))  # itself comes last
  best = order[:count]
  swap = jax.random.bernoulli(swap_key, epsilon, (count,))
  # Each replaced client gives way to the next of the rest, in random order.
  rest = jax.random.uniform(pick_key, (clients,))
  taken = jnp.zeros(clients, bool).at[best].set(~swap) | itself
  drawn = jnp.argsort(jnp.where(taken, 2.0, rest))
  turn = jnp.maximum(jnp.cumsum(swap) - 1, 0)
  return jnp.where(swap, drawn[turn], best).astype(jnp.int32)
