"""Clients that mix others' networks into theirs: FedAMP, FedFomo, FedALA.

FedAMP: Personalized Cross-Silo FL (Huang et al., AAAI 2021). FedFomo: First
Order Model Optimization (Zhang et al., ICLR 2021). FedALA: Adaptive Local
Aggregation (Zhang et al., AAAI 2023).
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.fields import (
  Bounds,
  Count,
  Natural,
  NotNegative,
  Positive,
  Probability,
)
from splitjax.losses import masked_mean
from splitjax.methods import nets, prototypes
from splitjax.methods.fedavg import Unaveraged, WholeNetwork, squared_distance
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Client, Half, Net, Row, Tree, UserError


@pytree
class FedAMP(Unaveraged):
  """A client descends F_i(w) + lam / (2 alpha_k) |w - u_i|^2 from u_i (eq. 7).

  Its cloud model is u_i = (1 - sum_{j != i} a_ij) w_i + sum_{j != i} a_ij w_j
  with a_ij = alpha_k A'(|w_i - w_j|^2), A(x) = 1 - e^(-x / sigma), so A'(x) =
  e^(-x / sigma) / sigma (eq. 4-6). j runs over the participants of the round.
  u_i, the client's memory, must be a convex combination: if the a_ij of a
  client add up to more than 1, they are divided by their sum. The paper tunes
  all three options. Our defaults follow the squared distance between networks,
  which differs by orders of magnitude.
  """

  #: scale of A; None: the mean squared distance between two participants. A far
  #: larger sigma gives all others the same weight, a far smaller one none.
  sigma: Positive | None = None
  #: the step size; None: sigma divided by the number of participants. alpha_k /
  #: sigma is the largest weight that another participant can have.
  alpha_k: Positive | None = None
  #: weight of the proximal term; None: alpha_k / 10. lam / alpha_k should be
  #: well below 1, or the pull undoes the training.
  lam: NotNegative | None = None

  def __post_init__(self):
    super().__post_init__()
    if self.lam is not None and self.alpha_k is None:
      raise UserError(f"lam={self.lam} must be None where alpha_k is None")

  def first_client(self, net, size):
    memory = nets.select(net, self.sends)
    return super().first_client(net, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    cloud = client.memory
    client = client._replace(net=nets.join(cloud, client.net))
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, cloud.params

  def loss(self, params, half, context, batch):
    loss, reported = super().loss(params, half, context, batch)
    pull = 0.1
    if self.lam is not None and self.alpha_k is not None:
      pull = self.lam / self.alpha_k
    sent = nets.select(Net(params=params, stats={}), self.sends).params
    return loss + pull / 2 * squared_distance(sent, context), reported

  def merge(self, server, shares, clients, counted):
    (cohort,) = clients
    (on,) = counted
    sent = nets.select(cohort.net, self.sends)
    a = self.attention(sent.params, on)
    clouds = nets.combine(a + jnp.diag(1 - a.sum(axis=1)), sent)
    memory = trees.where(on, clouds, cohort.memory)
    return server, (cohort._replace(memory=memory),)

  def attention(self, params: Tree, on: Array) -> Array:
    """The a_ij [N, N] of eq. 4-6: 0 on the diagonal, and unless `on` [N].

    They are 0, too, where |w_i - w_j|^2 is not below nets.LARGEST.
    """
    pairs = on[:, None] & on & ~jnp.eye(len(on), dtype=bool)
    squares = jax.vmap(squared_distance, in_axes=(0, None))
    # A loop over clients: the gaps [N, N, parameters] do not fit.
    apart = jax.lax.map(lambda w: squares(params, w), params)
    # One network too far away to be squared must not undo everybody's clouds.
    pairs &= apart < nets.LARGEST
    mean = jnp.where(pairs, apart, 0.0).sum() / jnp.maximum(pairs.sum(), 1)
    mean = jnp.where(mean > 0, mean, 1.0)  # 0 if all networks are equal
    scale = mean if self.sigma is None else self.sigma
    share = 1 / jnp.maximum(on.sum(), 1)
    most = share if self.alpha_k is None else self.alpha_k / scale
    a = jnp.where(pairs, most * jnp.exp(-apart / scale), 0.0)
    return a / jnp.maximum(a.sum(axis=1, keepdims=True), 1.0)


_NEVER = 1e-12
"""Networks that are closer to theta_i than this get no weight."""

_LEAST = 1e-9
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

  The server stores N networks, a client in training M + 1 beside its own.
  """

  #: M, the number of networks that a client weighs, with its own
  models: Annotated[int, Bounds(at_least=2)] = 5
  #: epsilon of the first round, as in the authors' code
  epsilon: Probability = 0.3
  #: what is subtracted from epsilon in every round, as in their code
  decay: NotNegative = 0.05
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
      raise UserError(
        f"num_clients={size}: a client of FedFomo weighs networks of others;"
        " take 2 clients or more"
      )
    stock = nets.select(trees.repeat(part, size), self.sends)
    return super().first_server(full, part, size)._replace(memory=stock)

  def receive(self, client, server, samples, round, key):
    trained = client.net
    affinity, start = client.memory
    count = min(self.models, len(affinity)) - 1
    # The candidates: the client's trained network, and those of others.
    epsilon = jnp.maximum(self.epsilon - self.decay * round, 0.0)
    chosen = choose(affinity, samples.shard.number, count, epsilon, key)
    stock = trees.take(server.memory, chosen)
    stock = nets.join(stock, trees.repeat(trained, count))
    candidates = jax.tree.map(
      lambda x, rows: jnp.concatenate([x[None], rows]), trained, stock
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
    scale = jnp.maximum(jnp.abs(slopes.sum()), _LEAST)
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
    start_loss = self.validation_loss(start, samples)

    def slope(net):
      gain = start_loss - self.validation_loss(net, samples)
      apart = trees.norm(jax.tree.map(jnp.subtract, net.params, start.params))
      return jnp.where(apart > _NEVER, gain / jnp.maximum(apart, _NEVER), 0.0)

    return jax.lax.map(slope, networks)

  def validation_loss(self, net: Net, samples: Samples) -> Array:
    """Computes the mean task loss on the held-back samples, [] float."""
    rows, real = samples.in_order(validation=True)

    def losses(drawn):
      batch = samples.batch(*drawn)
      z = prototypes.features(self.backbone, net, batch)
      logits = prototypes.logits(self.backbone, net, z)
      return self.backbone.loss(logits, batch.label)

    loss = masked_mean(jax.lax.map(losses, (rows, real)), real)
    # That of a network too large to be computed ranks it last, and is a number.
    return jnp.where(loss < nets.LARGEST, loss, nets.LARGEST)


def choose(
  affinity: Array, number: Array, count: int, epsilon: Array, key: Array
) -> Array:
  """Chooses the clients whose networks client `number` downloads, [count].

  It takes those of highest `affinity` [N], ties in random order. Each of these
  gives way, with probability epsilon, to a client that is drawn uniformly from
  all but itself and those that stay.
  """
  tie_key, swap_key, pick_key = jax.random.split(key, 3)
  ties = jax.random.uniform(tie_key, affinity.shape)
  itself = jnp.arange(len(affinity)) == number
  best = jnp.lexsort((ties, -affinity, itself))[:count]  # itself comes last
  swap = jax.random.bernoulli(swap_key, epsilon, (count,))
  # Each replaced client gives way to the next of the rest, in random order.
  taken = itself.at[best].set(~swap)
  draws = jax.random.uniform(pick_key, affinity.shape)
  drawn = jnp.argsort(jnp.where(taken, 2.0, draws))
  turn = jnp.maximum(jnp.cumsum(swap) - 1, 0)
  return jnp.where(swap, drawn[turn], best).astype(jnp.int32)


_WINDOW = 10
"""Epochs over which the loss must be steady to end the first learning of W."""


class Mixing(NamedTuple):
  """Memory of a client."""

  weights: dict[str, Tree]  #: W by block
  learned: Array  #: [] bool, whether it has learned W before


@pytree
class FedALA(WholeNetwork):
  """A client starts at own + (global - own) * W in its last blocks (eq. 4).

  W starts at 1. A client learns it by W <- clip(W - eta grad_w L * (global -
  own), 0, 1) on a share of its samples (eq. 5): after round 0 for the first
  time until the loss settles, then for an epoch in every round. As in the
  authors' code, what answers is the network with which a round would begin.
  """

  #: learning rate of W; with 0 this is FedAvg
  eta: NotNegative = 1.0
  #: s, the percentage of its samples, drawn anew whenever it learns W
  share: Annotated[float, Bounds(above=0, at_most=100)] = 80.0
  #: p, how many of the last parts are mixed: 1, the head; 0, none (FedAvg)
  mixed_blocks: Natural = 1
  #: the loss, the mean of an epoch, has settled if its standard deviation over
  #: the last WINDOW epochs is below this: 0.01 in the paper; 0.1, of an epoch's
  #: last batch, in the authors' code.
  threshold: float = 0.01
  most_epochs: Count = 100  #: of the first learning; ours

  def __post_init__(self):
    super().__post_init__()
    parts = len(self.backbone.names()) + 1
    if self.mixed_blocks > parts:
      raise UserError(f"mixed_blocks={self.mixed_blocks} must be in 0..{parts}")

  @property
  def rows(self):
    return (Row("", personal=True),)

  def keeps(self, path):
    return True

  def sends(self, path):
    return not super().keeps(path)

  def first_client(self, net, size):
    parts = (*self.backbone.names(), "head")
    mixed = parts[len(parts) - self.mixed_blocks :]
    ones = {n: jax.tree.map(jnp.ones_like, net.params[n]) for n in mixed}
    return Client(net=net, memory=Mixing(ones, learned=jnp.bool_(False)))

  def receive(self, client, server, samples, round, key):
    # In the first round all hold the same network: nothing can be learned.
    client = self.learned(client, server, samples, round > 0, key)
    return super().receive(client, server, samples, round, key)

  def model(self, client, server):
    trained = client.net.params
    mean = nets.join(server.common, client.net)

    def mix(w, a, b):
      return a + (b - a) * w

    blocks = {
      name: jax.tree.map(mix, w, trained[name], mean.params[name])
      for name, w in client.memory.weights.items()
    }
    return mean._replace(params=mean.params | blocks)

  def personalise(self, client, server, samples, key):
    client = self.learned(client, server, samples, jnp.bool_(True), key)
    return self.model(client, server)

  def learned(self, client, server, samples, learns, key):
    """The client with the W that it learned, if it `learns` ([] bool)."""
    weights, learned = client.memory
    if not weights:
      return client
    # A share of the client's samples: the first of them in a random order.
    rows, real = samples.epoch(key)
    count = jnp.floor(samples.shard.size * self.share / 100 + 1e-6)
    real &= jnp.arange(real.size).reshape(real.shape) < jnp.maximum(count, 1)

    def loss(weights, batch):  # its gradient is grad_w L * (global - own)
      net = self.model(client._replace(memory=Mixing(weights, learned)), server)
      return self.local_loss(net.params, net, batch)

    def clipped_step(w, grad):
      return jnp.clip(w - self.eta * grad, 0.0, 1.0)

    def step(weights, drawn):
      batch = samples.for_draws(*drawn, key)
      value, grads = jax.value_and_grad(loss)(weights, batch)
      weights = jax.tree.map(clipped_step, weights, grads)
      return weights, (value, batch.real.any())

    def epoch(carry):
      weights, recent, t = carry
      weights, batch_losses = jax.lax.scan(step, weights, (rows, real))
      mean = masked_mean(*batch_losses)
      return weights, jnp.roll(recent, 1).at[0].set(mean), t + 1

    epochs = jnp.where(learned, 1, self.most_epochs) * learns

    def unsettled(carry):
      _, recent, t = carry
      settled = (t > _WINDOW) & (recent.std() < self.threshold)
      return (t < epochs) & ~settled

    start = weights, jnp.zeros(_WINDOW), jnp.int32(0)
    weights = jax.lax.while_loop(unsettled, epoch, start)[0]
    return client._replace(memory=Mixing(weights, learned | learns))
