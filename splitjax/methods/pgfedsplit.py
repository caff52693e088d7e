"""PGFedSplit: heads aggregated on a schedule, Gaussian features.

Kang and Song, Separate Aggregation of Split Network for Personalized Federated
Learning, 2026. Letters: theta_i is a client's body, phi_i its head, z = theta_i
(x) the head's input.

The file reads in the paper's order: global prototypes (eq. 4), the mixed set
(eq. 15-17), the personal head (eq. 6, 8 and 13), the schedule of the heads (eq.
9 and 10), and the method.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import losses, trees, wire
from splitjax.data.feed import Samples
from splitjax.methods import aggregations, base, optimizers, prototypes
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Aggregation,
  Array,
  Batch,
  Half,
  Ledger,
  Method,
  Segment,
  Stage,
  Tree,
)


class HeadMemory(NamedTuple):
  """A client's memory; the client sends alpha, mean and samples.

  Attributes:
    last: [] int32, the last round in which the client mixed a global head into
      its own; -1 if none.
    alpha: [] float, the client's mixing coefficient in that round.
    mean: [C, D], the client's prototypes after training.
    samples: [C] float, the number of the client's samples of each class.
    mixed: the mixed set, within a round; () between rounds.
  """

  last: Array
  alpha: Array
  mean: Array
  samples: Array
  mixed: Tree = ()


class Clock(NamedTuple):
  """The server's memory: prototypes, and when heads are aggregated.

  Attributes:
    mean: [C, D], global prototypes.
    known: [C] bool, whether a class has a global prototype.
    spread: the prototypes' dispersion over clients, see `dispersion`.
    head: parameters of the aggregated head.
    fresh: [] bool, whether the head goes to the next participants.
    tau: [] int32, the period.
    since: [] int32, s, rounds since a head was stored.
    alpha: [] float, mean of the clients' mixing coefficients when they last
      received a head; 0 at first, as in Algorithm 1.
  """

  mean: Array
  known: Array
  spread: Array
  head: Tree
  fresh: Array
  tau: Array
  since: Array
  alpha: Array


class Mixed(NamedTuple):
  """Local and synthetic features of one client in a round.

  Attributes:
    z: [M, D], the features.
    label: [M] int32.
    real: [M] bool, False on padding.
    anchor: [C, D], global prototypes.
    known: [C] bool, whether a class has a global prototype.
  """

  z: Array
  label: Array
  real: Array
  anchor: Array
  known: Array


def dispersion(
  mean: Array,
  samples: Array,
  old: Array,
  known: Array,
  old_spread: Array,
) -> tuple[Array, Array, Array]:
  """Computes global prototypes and the clients' dispersion around them.

  p_l is the unweighted mean of p_il over the clients i that hold class l (eq.
  4). Sigma_l is the diagonal of sum_i N_il / N_l (p_il - p_l) (p_il - p_l)^T;
  weighting by the class counts N_il is a choice of ours, and so is the
  diagonal, which is cheaper to send.

  Args:
    mean: [N, C, D], the clients' prototypes.
    samples: [N, C] float, their class counts; 0 for clients that took no part.
    old: [C, D], the prototypes so far. If no client holds a class, its
      prototype and dispersion stay as they are.
    known: [C] bool, whether a class has a prototype so far.
    old_spread: [C, D], the dispersion so far.

  Returns:
    p [C, D]; known [C]; and the dispersion, the square root of Sigma's
    diagonal, [C, D].
  """
  held = samples > 0
  some = held.any(axis=0)
  total = jnp.where(held[..., None], mean, 0.0).sum(axis=0)
  new = total / jnp.maximum(held.sum(axis=0), 1)[:, None]
  new = jnp.where(some[:, None], new, old)
  share = samples / jnp.maximum(samples.sum(axis=0), 1)
  rows = jnp.sqrt(share)[..., None] * jnp.where(
    held[..., None], mean - new, 0.0
  )
  diagonal = jnp.sqrt(jnp.square(rows).sum(axis=0))
  spread = jnp.where(some[:, None], diagonal, old_spread)
  return new, known | some, spread


def mixed_set(
  backbone: Backbone,
  client: Segment,
  samples: Samples,
  clock: Any,
  r: float,
  key: Array,
) -> Mixed:
  """Joins a client's features with draws from Gaussians (eq. 15-17).

  There are ceil(r / (1 - r) N_i) draws. A draw gets the label l with
  probability q_il, the fraction of the client's samples that are of class l.
  The draw itself is from N(p_l, gamma_il^2 Sigma_l). gamma_il is sqrt(q_il)
  divided by its mean over the client's classes, a choice of ours. Draws of a
  class without a global prototype are left out.

  Args:
    backbone: the network.
    client: the client's network, with the body of this round.
    samples: the client's data.
    clock: the server's memory, with mean, known and spread.
    r: share of draws in the mixed set.
    key: [] PRNG key of the draws.
  """
  # Local features.
  rows, real = samples.in_order()

  def batch_features(inputs):
    batch = samples.batch(*inputs)
    return prototypes.features(backbone, client, batch), batch.label

  z, label = jax.lax.map(batch_features, (rows, real))
  z, label, real = z.reshape(-1, z.shape[-1]), label.ravel(), real.ravel()

  # Draws from the Gaussians, as many as the largest client needs.
  ratio = r / (1 - r)
  count = math.ceil(round(ratio * samples.shard.rows.shape[0], 9))
  if count:
    label_key, noise_key = jax.random.split(key)
    held = samples.shard.counts.astype(float)
    drawn = jax.random.categorical(label_key, jnp.log(held), shape=(count,))
    root = jnp.sqrt(held)  # sqrt(q) up to a factor
    classes = jnp.maximum((held > 0).sum(), 1)
    gamma = root * classes / jnp.maximum(root.sum(), 1e-9)
    noise = deviation(clock.spread, drawn, noise_key)
    made = clock.mean[drawn] + gamma[drawn][:, None] * noise
    mine = jnp.arange(count) < jnp.ceil(ratio * samples.shard.size - 1e-6)
    z = jnp.concatenate([z, made])
    label = jnp.concatenate([label, drawn.astype(label.dtype)])
    real = jnp.concatenate([real, mine & clock.known[drawn]])
  return Mixed(z, label, real, clock.mean, clock.known)


def deviation(spread: Array, label: Array, key: Array) -> Array:
  """Draws from N(0, Sigma_label), Sigma diagonal: labels [M] -> [M, D]."""
  return spread[label] * jax.random.normal(key, (len(label), spread.shape[-1]))


def coefficient(
  backbone: Backbone, own: Tree, common: Tree, mixed: Mixed, penalty: Array
) -> Array:
  """Computes the mixing coefficient alpha, [] float.

  alpha minimises the objective of eq. 13 over [0, 1]. The objective is the mean
  over the mixed set of CE(alpha g_own + (1 - alpha) g_common, y) + penalty
  alpha^2 KL(p_own || p_common), at temperature 1. It is convex in alpha;
  `minimum_on_unit` minimises it.

  Args:
    backbone: the network; `own` and `common` are parameters of its head.
    own: the client's head, phi_i.
    common: the aggregated head.
    mixed: the mixed set.
    penalty: [] float, beta Delta_i.
  """

  def logits(head):
    segment = Segment({"head": head}, {"head": {}})
    return prototypes.logits(backbone, segment, mixed.z)

  mine, theirs = logits(own), logits(common)
  log_p, log_q = jax.nn.log_softmax(mine), jax.nn.log_softmax(theirs)
  apart = (jnp.exp(log_p) * (log_p - log_q)).sum(axis=1)
  apart = losses.masked_mean(apart, mixed.real)

  def loss(alpha):
    both = alpha * mine + (1 - alpha) * theirs
    fit = backbone.mean_loss(both, mixed.label, mixed.real)
    return fit + penalty * alpha**2 * apart

  return minimum_on_unit(loss)


def minimum_on_unit(loss: Callable[[Array], Array]) -> Array:
  """Finds the minimiser of a convex function on [0, 1], ends included.

  Each step halves the interval by the sign of the slope. A comparison of values
  would find the minimiser only to the square root of their rounding error.
  Returns [] float.
  """
  slope = jax.grad(loss)

  def step(ends, _):
    low, high = ends
    middle = (low + high) / 2
    falls = slope(middle) < 0
    return (jnp.where(falls, middle, low), jnp.where(falls, high, middle)), None

  zero, one = jnp.zeros(()), jnp.ones(())
  halvings = jnp.finfo(zero.dtype).nmant + 1  # to the last bit of alpha
  (low, high), _ = jax.lax.scan(step, (zero, one), length=halvings)
  inside = jnp.where(slope(one) <= 0, one, (low + high) / 2)
  return jnp.where(slope(zero) >= 0, zero, inside)


def receive(backbone: Backbone, alpha: float | None, beta: float, r: float):
  """Builds a `before` of `download` that makes mixed sets and mixes heads."""

  def arrive(client, server, samples: Samples, round, key):
    clock, memory = server.memory, client.memory
    mixed = mixed_set(backbone, client.segment, samples, clock, r, key)

    # Eq. 8 and 13, where a head was sent.
    gap = jnp.where(memory.last < 0, round + 1, round - memory.last)
    own = client.segment.params["head"]
    if alpha is None:
      penalty = beta * gap.astype(float)
      share = coefficient(backbone, own, clock.head, mixed, penalty)
    else:
      share = jnp.asarray(alpha)
    adapted = jax.tree.map(
      lambda a, b: share * a + (1 - share) * b, own, clock.head
    )
    head = trees.where(clock.fresh, adapted, own)
    memory = memory._replace(
      last=jnp.where(clock.fresh, round, memory.last),
      alpha=jnp.where(clock.fresh, share, memory.alpha),
      mixed=mixed,
    )
    params = {**client.segment.params, "head": head}
    client = client._replace(
      segment=client.segment._replace(params=params), memory=memory
    )
    return client, server, _sent(clock, r)

  return arrive


def _sent(clock: Clock, r: float) -> Ledger:
  """Counts the download: prototypes, Gaussians and, if fresh, the head."""
  known, d = clock.known.sum(), clock.mean.shape[1]
  head = wire.parameters("down/head", clock.head)
  return wire.merge(
    wire.price("down/prototypes", 4 * (1 + d) * known),
    wire.price("down/statistics", 4 * d * known) if r else {},
    wire.weigh(head, clock.fresh.astype(float)),
  )


def head_stage(backbone: Backbone, optimizer: Optimizer, epochs: int):
  """Builds a Stage's `once`, which trains the head on the mixed set (eq. 6)."""

  def once(client, server, samples: Samples, key):
    mixed, batch = client.memory.mixed, samples.plan.batch
    size = len(mixed.label)
    steps = -(-size // batch)

    def loss(head, z, label, real):
      segment = Segment({"head": head}, {"head": {}})
      out = prototypes.logits(backbone, segment, z)
      return backbone.mean_loss(out, label, real)

    # A step on a batch of rows; a batch of padding alone moves nothing.
    def step(client, rows):
      real = (rows >= 0) & mixed.real[rows]
      head = client.segment.params["head"]
      value, grad = jax.value_and_grad(loss)(
        head, mixed.z[rows], mixed.label[rows], real
      )
      on = real.any()
      client = optimizers.descend(
        client, {"head": grad}, {}, optimizer, {"head": on}
      )
      return client, jnp.stack([jnp.where(on, value, 0.0), on.astype(float)])

    def epoch(client, key):
      # Separate keys for local features and Gaussian draws: the padding that
      # other clients need must not change this client's order.
      local = samples.in_order()[0].size
      keys = jax.random.split(key)
      draw = jnp.concatenate(
        [
          jax.random.uniform(keys[0], (local,)),
          jax.random.uniform(keys[1], (size - local,)),
        ]
      )
      draw = jnp.where(mixed.real, draw, 2.0)
      rows = jnp.pad(
        jnp.argsort(draw), (0, steps * batch - size), constant_values=-1
      )
      return jax.lax.scan(step, client, rows.reshape(steps, batch))

    keys = jax.random.split(key, epochs)
    client, told = jax.lax.scan(epoch, client, keys)
    total, taken = told.sum(axis=(0, 1))
    return client, server, {"head": total / jnp.maximum(taken, 1)}, {}

  return once


def scheduled_heads(
  backbone: Backbone,
  *,
  tau_min: int,
  tau_max: int,
  adaptive: bool,
) -> Aggregation:
  """Builds the aggregation of bodies and heads.

  It averages bodies in every round and heads every tau rounds.
  """
  own_head = base.mean(backbone, base.own_head)

  def server(server, clients, active, sums):
    (cohort,), (on,) = clients, active  # whole networks form one cohort
    memory, clock = cohort.memory, server.memory
    mean, known, spread = dispersion(
      memory.mean,
      jnp.where(on[:, None], memory.samples, 0.0),
      clock.mean,
      clock.known,
      clock.spread,
    )

    # tau adapts (eq. 10) in rounds whose participants received a head.
    used = clock.fresh & on.any()
    mean_alpha = jnp.where(on, memory.alpha, 0.0).sum() / jnp.maximum(
      on.sum(), 1
    )
    alpha = jnp.where(used, mean_alpha, clock.alpha)
    tau = clock.tau
    if adaptive:
      turn = (mean_alpha < clock.alpha).astype(jnp.int32) - (
        mean_alpha > clock.alpha
      )
      moved = jnp.clip(tau + turn, tau_min, tau_max)
      tau = jnp.where(used, moved, tau)

    # A head is stored and sent on once tau rounds have passed (eq. 9).
    since = clock.since + 1
    since = jnp.where(on.any(), since, clock.since)  # else nobody took part
    fresh = jnp.where(on.any(), since >= tau, clock.fresh)
    heads = aggregations.mean(
      sums.client["head"][0], sums.client_weight["head"], clock.head
    )
    return server._replace(
      memory=Clock(
        mean,
        known,
        spread,
        trees.where(fresh & on.any(), heads, clock.head),
        fresh,
        tau,
        jnp.where(fresh & on.any(), 0, since),
        alpha,
      )
    )

  return Aggregation(
    own_head.contribute, server, own_head.clients, own_head.keep
  )


def pgfedsplit(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  tau: int = 5,
  tau_min: int = 1,
  tau_max: int = 20,
  adaptive: bool = True,
  alpha: float | None = None,
  beta: float = 0.1,
  r: float = 0.5,
  lam: float = 5.0,
  per_feature: bool = True,
  head_epochs: int = 5,
) -> Method:
  """PGFedSplit; the paper's ablations are options of this function.

  Bodies are averaged in every round, heads every tau rounds. A client mixes a
  head that it receives into its own (eq. 8, 13) and trains its head on local
  and Gaussian features (eq. 6, 15-17). It then trains its body for local_epochs
  on the loss CE + lam 1[y in P] |z - p_y|^2 / D (eq. 7, 14).

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    tau: the period tau in round 0; 5 in the paper, but 20 in its Table 3.
    tau_min: lower bound of tau. The paper prints no bounds; both are ours.
    tau_max: upper bound of tau.
    adaptive: whether tau adapts (APA, eq. 10); False: "w/o APA".
    alpha: one fixed mixing coefficient for all clients (Figures 1 and 2). None:
      each client computes its own by eq. 13.
    beta: weight of the adaptation gap in eq. 13, which the paper leaves open.
    r: share of Gaussian features in the mixed set; 0.5 in the paper. 0: "w/o
      GAU".
    lam: weight of the prototypes in the body's loss; 5 in the paper.
    per_feature: whether the squared distance of eq. 14 is divided by D. The
      paper prints the sum over dimensions (False); the codes of FedProto and
      FedPAC, where the term comes from, take the mean. The default is True,
      because with the sum and lam = 5 training diverges (in the small setting
      of configs/pgfedsplit_table2).
    head_epochs: epochs of the head on the mixed set. The paper has five local
      epochs in all and does not say how they are divided; here the body's
      epochs are added to these.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = pgfedsplit(net, sgd, tau=3, adaptive=False)
    >>> len(method.stages)
    2
  """
  _check(tau, tau_min, tau_max, alpha, beta, r, lam, head_epochs)
  aggregation = scheduled_heads(
    backbone,
    tau_min=tau_min,
    tau_max=tau_max,
    adaptive=adaptive,
  )
  c, d = backbone.classes, prototypes.width(backbone)
  table, none = jnp.zeros((c, d)), jnp.zeros(c)

  def clock(full, fleet):
    return Clock(
      table,
      none > 0,
      table,
      full.params["head"],
      jnp.bool_(False),
      jnp.int32(tau),
      jnp.int32(0),
      jnp.zeros(()),
    )

  def leave(client, server, samples, key):
    own = prototypes.class_stats(backbone, client.segment, samples)
    memory = client.memory._replace(
      mean=own.mean, samples=own.samples, mixed=()
    )
    held = (own.samples > 0).sum()
    head = {"head": client.segment.params["head"]}
    up = wire.merge(
      wire.parameters("up/head", head),
      wire.price("up/prototypes", 4 * (2 + d) * held),
      wire.price("up/statistics", 4.0 * server.memory.fresh),  # alpha
    )
    return client._replace(memory=memory), server, up

  def align(client: Half, z: Array, batch: Batch) -> Array:
    mixed = client.memory.mixed
    return lam * prototypes.distance_to(
      mixed.anchor, mixed.known, z, batch, per_feature=per_feature
    )

  return base.method(
    backbone,
    optimizer,
    (
      Stage(
        once=head_stage(backbone, optimizer, head_epochs), work=base.HEAD_WORK
      ),
      base.client_stage(
        backbone, optimizer, moves=base.is_body, align=align if lam else None
      ),
    ),
    aggregation,
    traits=base.FULL,
    begin=base.download(
      backbone, optimizer, aggregation, before=receive(backbone, alpha, beta, r)
    ),
    finish=base.upload(backbone, aggregation, before=leave),
    client_memory=lambda full, fleet: HeadMemory(
      jnp.int32(-1), jnp.ones(()), table, none
    ),
    server_memory=clock,
  )


def _check(tau, tau_min, tau_max, alpha, beta, r, lam, head_epochs) -> None:
  base.require("tau_min", tau_min, tau_min >= 1, "at least 1")
  base.require("tau_max", tau_max, tau_max >= tau_min, f"at least {tau_min}")
  base.require(
    "tau", tau, tau_min <= tau <= tau_max, f"in {tau_min}..{tau_max}"
  )
  base.require("alpha", alpha, alpha is None or 0 <= alpha <= 1, "in 0..1")
  base.require("beta", beta, beta >= 0, "at least 0")
  base.require("r", r, 0 <= r < 1, "in [0, 1)")
  base.require("lam", lam, lam >= 0, "at least 0")
  base.require("head_epochs", head_epochs, head_epochs >= 1, "at least 1")
