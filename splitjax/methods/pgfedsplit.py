"""PGFedSplit: heads averaged on an adaptive schedule, Gaussian features.

Kang and Song, Separate Aggregation of Split Network for Personalized Federated
Learning, 2026. Letters: theta_i is a client's body, phi_i its head, z = theta_i
(x) the head's input; p_l is the global prototype of class l.
"""

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses, trees, wire
from splitjax.data.feed import Samples
from splitjax.fields import BelowOne, Count, NotNegative, Probability
from splitjax.methods import prototypes
from splitjax.methods.fedavg import HEAD_PASSES, WholeNetwork
from splitjax.methods.method import is_body, is_head, share
from splitjax.parameters import STATIC, pytree
from splitjax.types import Client, Net, Stage, Tree, UserError


class Gaussians(NamedTuple):
  """N(p_l, Sigma_l) of every class l."""

  mean: Array  #: [C, D], the global prototypes p
  present: Array  #: [C] bool, whether a class is in P: has a prototype
  spread: Array  #: [C, D], the square root of Sigma's diagonal


class Clock(NamedTuple):
  """The server's memory: Gaussians of features, and when heads are averaged."""

  gaussians: Gaussians
  head: Tree  #: parameters of the stored mean of heads
  fresh: Array  #: [] bool, whether this head goes to the next participants
  tau: Array  #: [] int32, the period
  since: Array  #: [] int32, s, rounds since a head was stored
  #: [] float, mean alpha_i when a head was last sent; 0 before, as Algorithm 1
  #: starts, so that the first change of tau is -1 unless all alpha_i are 0
  alpha: Array


class HeadMemory(NamedTuple):
  """A client's memory; it sends alpha, prototypes and counts."""

  received: Array  #: [] int32, the latest round in which it got a head; or -1
  alpha: Array  #: [] float, alpha_i of that round
  prototypes: Array  #: [C, D], after training
  counts: Array  #: [C] float, its samples of each class


class Mixed(NamedTuple):
  """Local features and draws from the Gaussians, on which a head trains."""

  z: Array  #: [M, D], the features
  label: Array  #: [M] int32
  real: Array  #: [M] bool, False on padding
  gaussians: Gaussians  #: as the client received them


@pytree
class PGFedSplit(WholeNetwork):
  """PGFedSplit; the paper's ablations are fields."""

  tau: Count = 5  #: in round 0: the paper's; 20 in its Table 3
  tau_min: Count = 1  #: bounds are ours; the paper has none
  tau_max: Count = 20
  adaptive: bool = True  #: whether tau adapts (APA, eq. 10); False: "w/o APA"
  #: a fixed mixing coefficient (Figures 1 and 2); None: that of eq. 13.
  alpha: Probability | None = None
  beta: NotNegative = 0.1  #: of the gap in eq. 13; ours
  r: Annotated[BelowOne, STATIC] = 0.5  #: in eq. 15; 0: "w/o GAU"
  lam: NotNegative | None = 5.0  #: in eq. 14; None: CE alone
  #: whether the squared distance of eq. 14 is divided by D, as in FedPAC; with
  #: the sum, as the paper prints it, training diverged
  per_feature: bool = True
  #: besides the body's; the paper has five epochs and does not divide them
  head_epochs: Count = 5

  def __post_init__(self):
    super().__post_init__()
    if not self.tau_min <= self.tau <= self.tau_max:
      bounds = f"tau_min..tau_max={self.tau_min}..{self.tau_max}"
      raise UserError(f"tau={self.tau} must be in {bounds}")

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def first_client(self, net, size):
    no_class = prototypes.none(self.backbone).mean
    memory = HeadMemory(
      received=jnp.int32(-1),
      alpha=jnp.ones(()),
      prototypes=no_class,
      counts=no_class[:, 0],
    )
    return super().first_client(net, size)._replace(memory=memory)

  def first_server(self, full, part, size):
    nobody = prototypes.none(self.backbone)
    memory = Clock(
      gaussians=Gaussians(nobody.mean, nobody.present, spread=nobody.mean),
      head=full.params["head"],
      fresh=jnp.bool_(False),
      tau=jnp.int32(self.tau),
      since=jnp.int32(0),
      alpha=jnp.zeros(()),
    )
    return super().first_server(full, part, size)._replace(memory=memory)

  # The client (Algorithm 2).

  def receive(self, client, server, samples, round, key):
    clock: Clock = server.memory
    memory: HeadMemory = client.memory
    width = clock.gaussians.mean.shape[1]
    classes = clock.gaussians.present.sum()
    wire.record("down/head", clock.fresh * float(trees.num_bytes(clock.head)))
    wire.record("down/prototypes", 4 * (1 + width) * classes)
    if self.r:
      wire.record("down/statistics", 4 * width * classes)
    net = self.model(client, server)
    mixed = self.mixed_set(net, samples, clock.gaussians, key)

    # The server's head, if it comes, is mixed in (eq. 8, 11 and 13).
    head = net.params["head"]
    gap = round - memory.received  # round + 1 if there was none
    alpha = self.coefficient(head, clock.head, mixed, self.beta * gap)
    mix = trees.add(
      trees.scale(alpha, head), trees.scale(1 - alpha, clock.head)
    )
    mixed_in = mix, memory._replace(received=round, alpha=alpha)
    head, memory = trees.where(clock.fresh, mixed_in, (head, memory))
    net = client.net._replace(params=client.net.params | {"head": head})
    client = Client(net=net, memory=memory)
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, mixed

  def stages(self):
    head = Stage(step=self.train_head, once=True, passes=HEAD_PASSES)
    return head, *super().stages()

  def train_head(self, half, copy, mixed, samples, key):
    """Trains the head on the mixed set, theta frozen (eq. 6)."""
    size = len(mixed.label)
    local = samples.in_order()[0].size

    def step(half, rows):
      real = (rows >= 0) & mixed.real[rows]

      def loss(head):
        logits = self.logits(head, mixed.z[rows])
        return self.backbone.mean_loss(logits, mixed.label[rows], real)

      value, grad = jax.value_and_grad(loss)(half.net.params["head"])
      taken = real.any()  # a batch of padding alone moves nothing
      half = self.optimizer.step(half, {"head": grad}, {}, {"head": taken})
      return half, (jnp.where(taken, value, 0.0), taken)

    def epoch(half, key):
      # Separate keys for local features and Gaussian draws: the padding that
      # other clients need must not change this client's order.
      local_key, drawn_key = jax.random.split(key)
      drawn = jax.random.uniform(drawn_key, (size - local,))
      draws = jnp.append(jax.random.uniform(local_key, (local,)), drawn)
      order = jnp.argsort(jnp.where(mixed.real, draws, 2.0))
      batch = samples.plan.batch
      rows = jnp.pad(order, (0, -size % batch), constant_values=-1)
      return jax.lax.scan(step, half, rows.reshape(-1, batch))

    keys = jax.random.split(key, self.head_epochs)
    half, (values, taken) = jax.lax.scan(epoch, half, keys)
    mean = values.sum() / jnp.maximum(taken.sum(), 1)
    return half, copy, {"head": mean}

  def step(self, half, copy, context, batches, key):
    return self.step_in(is_body, half, copy, context, batches, key)

  def loss(self, params, half, context, batch):
    """CE + lam 1[y in P] |z - p_y|^2, phi frozen (eq. 7 and 14)."""
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    fit = self.exit_loss(net, z, batch)
    if self.lam is None:
      return fit, ({"client": fit}, stats)
    p, present, _ = context.gaussians
    align = self.lam * prototypes.distance_to(
      p, present, z, batch, per_feature=self.per_feature
    )
    return fit + align, ({"client": fit, "align": align}, stats)

  def send(self, half, copy, context, samples, weight, key):
    stats = prototypes.class_stats(self.backbone, half.net, samples)  # eq. 2
    memory = half.memory._replace(prototypes=stats.mean, counts=stats.samples)
    head = half.net.params["head"]
    width = stats.mean.shape[1]
    wire.send_tree("up/head", head)
    wire.record("up/prototypes", 4 * (2 + width) * (stats.samples > 0).sum())
    wire.record("up/statistics", 4.0 * copy.memory.fresh)  # alpha
    half = half._replace(memory=memory)
    client, shares = super().send(half, copy, context, samples, weight, key)
    return client, shares | {"head": share(head, weight)}

  # The server (Algorithm 1).

  def merge(self, server, shares, clients, counted):
    (cohort,) = clients  # whole networks form one
    (took_part,) = counted
    reported: HeadMemory = cohort.memory
    old: Clock = server.memory
    some = took_part.any()  # otherwise the clock stands still

    # tau adapts (eq. 9 and 10) in rounds whose participants received a head.
    received = old.fresh & some
    alpha = losses.masked_mean(reported.alpha, took_part)
    turn = jnp.where(received & self.adaptive, jnp.sign(old.alpha - alpha), 0)
    tau = old.tau + turn.astype(old.tau.dtype)
    tau = jnp.clip(tau, self.tau_min, self.tau_max)

    # A head is stored, and sent on, once tau rounds have passed.
    since = old.since + some
    stores = some & (since >= tau)
    head = shares["head"].mean(old.head)
    counts = jnp.where(took_part[:, None], reported.counts, 0.0)
    clock = Clock(
      gaussians=gaussians_of(reported.prototypes, counts, old.gaussians),
      head=trees.where(stores, head, old.head),
      fresh=jnp.where(some, stores, old.fresh),
      tau=tau,
      since=jnp.where(stores, 0, since),
      alpha=jnp.where(received, alpha, old.alpha),
    )
    return server._replace(memory=clock), clients

  def coefficient(
    self, head: Tree, stored: Tree, mixed: Mixed, penalty: Array
  ) -> Array:
    """Computes alpha_i, the minimiser over [0, 1] of eq. 13, which is convex.

    The mean over the mixed set of CE(alpha g + (1 - alpha) g_stored, y) + beta
    Delta_i alpha^2 KL(p || p_stored), where g and p are of the client's `head`.
    """
    if self.alpha is not None:
      return jnp.asarray(self.alpha)
    g = self.logits(head, mixed.z)
    g_stored = self.logits(stored, mixed.z)
    log_p, log_q = map(jax.nn.log_softmax, (g, g_stored))
    kl = (jnp.exp(log_p) * (log_p - log_q)).sum(axis=1)
    divergence = losses.masked_mean(kl, mixed.real)

    def loss(alpha):
      logits = alpha * g + (1 - alpha) * g_stored
      fit = self.backbone.mean_loss(logits, mixed.label, mixed.real)
      return fit + penalty * alpha**2 * divergence

    return minimum_on_unit(loss)

  def logits(self, head: Tree, z: Array) -> Array:
    """Computes a head's logits [B, C] for z [B, D]."""
    net = Net(params={"head": head}, stats={"head": {}})
    return prototypes.logits(self.backbone, net, z)

  def mixed_set(
    self, net: Net, samples: Samples, gaussians: Gaussians, key: Array
  ) -> Mixed:
    """Joins a client's features with draws from the Gaussians (eq. 15-17).

    ceil(r / (1 - r) N_i) draws get the label l with probability q_il, the share
    of the client's samples of class l, and are from N(p_l, gamma_il^2 Sigma_l).
    gamma_il is sqrt(q_il) over its mean, a choice of ours. Draws of a class
    without a prototype are left out.
    """

    def features_of(drawn):
      batch = samples.batch(*drawn)
      z = prototypes.features(self.backbone, net, batch)
      return z, batch.label, batch.real

    local = jax.lax.map(features_of, samples.in_order())
    z, label, real = (x.reshape(-1, *x.shape[2:]) for x in local)

    # As many draws as the largest client needs; none if r = 0.
    ratio = self.r / (1 - self.r)
    count = math.ceil(round(ratio * len(samples.shard.rows), 9))
    label_key, noise_key = jax.random.split(key)
    counts = samples.shard.counts.astype(float)
    drawn = jax.random.categorical(label_key, jnp.log(counts), shape=(count,))
    root = jnp.sqrt(counts)  # sqrt(q) up to a factor
    gamma = root / jnp.maximum(losses.masked_mean(root, counts > 0), 1e-9)
    noise = jax.random.normal(noise_key, (count, z.shape[-1]))
    noise *= gamma[drawn][:, None] * gaussians.spread[drawn]
    needed = jnp.ceil(ratio * samples.shard.size - 1e-6)
    counted = (jnp.arange(count) < needed) & gaussians.present[drawn]
    return Mixed(
      z=jnp.append(z, gaussians.mean[drawn] + noise, axis=0),
      label=jnp.append(label, drawn.astype(label.dtype)),
      real=jnp.append(real, counted),
      gaussians=gaussians,
    )


def gaussians_of(prototypes: Array, counts: Array, old: Gaussians) -> Gaussians:
  """Computes global prototypes, and the clients' dispersion around them.

  p_l is the unweighted mean of p_il over the clients i that hold class l (eq.
  4). Sigma_l is the diagonal of sum_i N_il / N_l (p_il - p_l) (p_il - p_l)^T;
  weights N_il and the diagonal are choices of ours. A class that no client
  holds stays `old`. `prototypes` are [N, C, D]; `counts` [N, C] of absent
  clients are 0.
  """
  holds = (counts > 0)[..., None]
  some = holds.any(axis=0)
  total = jnp.where(holds, prototypes, 0.0).sum(axis=0)
  mean = total / jnp.maximum(holds.sum(axis=0), 1)
  share = (counts / jnp.maximum(counts.sum(axis=0), 1))[..., None]
  apart = jnp.where(holds, prototypes - mean, 0.0)
  spread = jnp.sqrt((share * jnp.square(apart)).sum(axis=0))
  return Gaussians(
    mean=jnp.where(some, mean, old.mean),
    present=some[:, 0] | old.present,
    spread=jnp.where(some, spread, old.spread),
  )


def minimum_on_unit(loss: Callable[[Array], Array]) -> Array:
  """Finds the minimiser of a convex function on [0, 1], ends included.

  By the sign of the slope: values differ too little near the minimum.
  """

  def halve(_, ends):
    low, high = ends
    middle = (low + high) / 2
    falls = jax.grad(loss)(middle) < 0
    return jnp.where(falls, middle, low), jnp.where(falls, high, middle)

  zero = jnp.zeros(())
  halvings = jnp.finfo(zero.dtype).nmant + 1  # to the last bit of alpha
  low, high = jax.lax.fori_loop(0, halvings, halve, (zero, zero + 1))
  return jnp.where(high == 1, high, low)
