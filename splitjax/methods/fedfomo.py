"""FedFomo: First Order Model Optimization (Zhang et al., ICLR 2021)."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.fields import NOT_NEGATIVE, PROBABILITY, Bounds
from splitjax.losses import masked_mean
from splitjax.methods import nets, prototypes
from splitjax.methods.fedavg import Unaveraged, squared_distance
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Half, Net, UserError

NEVER = 1e-12
"""Networks that are closer to theta_i than this get no weight."""

LEAST = 1e-9
"""The least sum that slopes are divided by; also in the authors' code."""


class Memory(NamedTuple):
  """Memory of a client."""

  affinity: Array  #: [N], p_i, sums of the slopes of others' networks
  start: Net  #: theta_i, with which its last local training began


@pytree
class FedFomo(Unaveraged):
  """A client mixes networks of others by first-order weights (eq. 6-8).

  theta_i <- theta_i + sum_n w_n (theta_n - theta_i) (eq. 8), then local SGD.
  w_n is max(0, s_n) divided by the sum of all, where the slope s_n is
  (L_i(theta_i) - L_i(theta_n)) / |theta_n - theta_i|, with losses on the
  client's validation samples (eq. 6-7). If none is positive, the client goes
  back to theta_i, as in the authors' code. As there, p_i adds the slopes
  themselves, divided by |sum_n s_n|: a client whose network hurt ranks below
  one that was never tried. theta_i is the network that its last local training
  began with; the network that resulted is one of the theta_n (first_model as
  the baseline in the authors' commands). The M - 1 others are downloaded, see
  `choose`.

  The server stores N networks. A client in training stores M + 1 networks
  beside its own; system.clients_per_chunk=1 needs the least memory.
  """

  #: M, the number of networks that a client weighs, with its own
  models: Annotated[int, Bounds(at_least=2)] = 5
  #: epsilon of the first round, as in the authors' code
  epsilon: Annotated[float, PROBABILITY] = 0.3
  #: what is subtracted from epsilon in every round, as in their code
  decay: Annotated[float, NOT_NEGATIVE] = 0.05
  #: share of its training samples that a client holds back to weigh networks
  #: on, at least one sample; 0.2 as in the authors' code
  validation: Annotated[float, Bounds(above=0, below=1)] = 0.2

  @property
  def validates(self):
    return self.validation

  def first_client(self, net, size):
    memory = Memory(affinity=jnp.zeros(size), start=net)
    return super().first_client(net, size)._replace(memory=memory)

  def first_server(self, full, part, size):
    if size < 2:
      raise UserError(f"models={self.models}: there are no other clients")
    stock = nets.select(trees.repeat(part, size), self.sends)
    return super().first_server(full, part, size)._replace(memory=stock)

  def receive(self, client, server, samples, round, key):
    trained, (affinity, start) = client.net, client.memory
    count = min(self.models, len(affinity)) - 1
    # The candidates: the client's trained network, and those of others.
    epsilon = jnp.maximum(self.epsilon - self.decay * round, 0.0)
    chosen = choose(affinity, samples.shard.number, count, epsilon, key)
    others = trees.take(server.memory, chosen)
    others = nets.join(others, trees.repeat(trained, count))
    candidates = jax.tree.map(
      lambda x, others: jnp.concatenate([x[None], others]), trained, others
    )
    # Their weights against the network before the last training.
    slopes = self.slopes(start, candidates, samples)
    gains = jnp.maximum(slopes, 0)
    total = gains.sum()
    weights = gains / jnp.where(total > 0, total, 1.0)
    gaps = jax.tree.map(jnp.subtract, candidates, start)
    net = trees.add(start, nets.combine(weights, gaps))
    # Local normalisation is the client's, as it was trained.
    net = nets.join(nets.select(net, self.sends), trained)
    for _ in range(count):
      self.exchange("down", net)
    scale = jnp.maximum(jnp.abs(slopes.sum()), LEAST)
    affinity = affinity.at[chosen].add(slopes[1:] / scale)
    memory = Memory(affinity=affinity, start=net)
    return self.optimizer.start(net, memory), Half(net=NO_BLOCKS, slots={}), ()

  def merge(self, server, shares, clients, counted):
    # Whole networks form one cohort, in the order of numbers, padding last.
    (cohort,) = clients
    size = cohort.memory.affinity.shape[1]
    stock = trees.take(nets.select(cohort.net, self.sends), slice(size))
    return server._replace(memory=stock), clients

  def slopes(self, start: Net, networks: Net, samples: Samples) -> Array:
    """Computes the slopes [M] of networks [M, ...] from theta_i (eq. 6)."""
    before = self.validation_loss(start, samples)

    def slope(net):
      gain = before - self.validation_loss(net, samples)
      apart = jnp.sqrt(squared_distance(net.params, start.params))
      return jnp.where(apart > NEVER, gain / jnp.maximum(apart, NEVER), 0.0)

    return jax.lax.map(slope, networks)

  def validation_loss(self, net: Net, samples: Samples) -> Array:
    """Computes the mean task loss on the held-back samples, [] float."""
    rows, real = samples.in_order(validation=True)

    def losses(drawn):
      batch = samples.batch(*drawn)
      z = prototypes.features(self.backbone, net, batch)
      logits = prototypes.logits(self.backbone, net, z)
      return self.backbone.loss(logits, batch.label)

    return masked_mean(jax.lax.map(losses, (rows, real)), real)


def choose(
  affinity: Array, number: Array, count: int, epsilon: Array, key: Array
) -> Array:
  """Chooses the clients whose networks client `number` downloads, [count].

  It first takes the other clients for which its `affinity` [N] is highest; ties
  are broken at random. Then it drops each of these with probability epsilon. In
  their place it draws clients uniformly from all but itself and those it kept.
  """
  tie_key, swap_key, pick_key = jax.random.split(key, 3)
  ties = jax.random.uniform(tie_key, affinity.shape)
  itself = jnp.arange(len(affinity)) == number
  best = jnp.lexsort((ties, -affinity, itself))[:count]  # itself comes last
  swap = jax.random.bernoulli(swap_key, epsilon, (count,))
  # Each replaced client gives way to the next of the rest, in random order.
  taken = itself.at[best].set(~swap)
  rest = jax.random.uniform(pick_key, affinity.shape)
  drawn = jnp.argsort(jnp.where(taken, 2.0, rest))
  turn = jnp.maximum(jnp.cumsum(swap) - 1, 0)
  return jnp.where(swap, drawn[turn], best).astype(jnp.int32)
