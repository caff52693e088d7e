"""PGFedSplit: heads aggregated on a schedule, Gaussian features.

Kang and Song, Separate Aggregation of Split Network for Personalized Federated
Learning, 2026. Letters: theta_i is a client's body, phi_i its head, z = theta_i
(x) the head's input.
"""

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.methods import base, prototypes
from splitjax.methods.head_schedule import (
  Clock,
  HeadMemory,
  ScheduleOptions,
  scheduled_heads,
)
from splitjax.methods.mixed_set import Sigma, mixed_set
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.personal_head import coefficient, head_stage
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Array,
  Batch,
  Half,
  Ledger,
  Method,
  Stage,
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
  sigma: Sigma = "diagonal",
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
    sigma: the covariance in eq. 16, "diagonal" or "full", which the paper
      leaves open; the diagonal is cheaper to send.
    head_epochs: epochs of the head on the mixed set. The paper has five local
      epochs in all and does not say how they are divided; here the body's
      epochs are added to these.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.optimizers.make("sgd", lr=0.05)
    >>> method = pgfedsplit(net, sgd, tau=3, adaptive=False)
    >>> len(method.stages)
    2
  """
  _check(tau, tau_min, tau_max, alpha, beta, r, lam, head_epochs)
  options = ScheduleOptions(
    tau, tau_min, tau_max, adaptive, alpha, beta, r, sigma
  )
  aggregation = scheduled_heads(backbone, optimizer, options)
  parts = backbone, optimizer, aggregation
  c, d = backbone.classes, prototypes.width(backbone)
  table, none = jnp.zeros((c, d)), jnp.zeros(c)

  def clock(full, fleet):
    shape = (c, d) if sigma == "diagonal" else (fleet.num_clients, c, d)
    return Clock(
      table,
      none > 0,
      jnp.zeros(shape),
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
    begin=base.download(*parts, before=receive(backbone, options)),
    finish=base.upload(*parts, before=leave),
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


def receive(backbone: Backbone, options: ScheduleOptions):
  """Builds a `before` of `download` that makes mixed sets and mixes heads."""

  def arrive(client, server, samples: Samples, round, key):
    clock, memory = server.memory, client.memory
    mixed = mixed_set(
      backbone, client.segment, samples, clock, options.r, options.sigma, key
    )

    # Eq. 8 and 13, where a head was sent.
    gap = jnp.where(memory.last < 0, round + 1, round - memory.last)
    own = client.segment.params["head"]
    alpha = jnp.asarray(1.0 if options.alpha is None else options.alpha)
    if options.alpha is None:
      penalty = options.beta * gap.astype(float)
      alpha = coefficient(backbone, own, clock.head, mixed, penalty)
    adapted = jax.tree.map(
      lambda a, b: alpha * a + (1 - alpha) * b, own, clock.head
    )
    head = trees.where(clock.fresh, adapted, own)
    memory = memory._replace(
      last=jnp.where(clock.fresh, round, memory.last),
      alpha=jnp.where(clock.fresh, alpha, memory.alpha),
      mixed=mixed,
    )
    params = {**client.segment.params, "head": head}
    client = client._replace(
      segment=client.segment._replace(params=params), memory=memory
    )
    return client, server, _sent(clock, options)

  return arrive


def _sent(clock: Clock, options: ScheduleOptions) -> Ledger:
  """Counts the download: prototypes, Gaussians and, if fresh, the head."""
  known, d = clock.known.sum(), clock.mean.shape[1]
  of_class = trees.size(clock.spread) // len(clock.known)
  head = wire.parameters("down/head", clock.head)
  return wire.merge(
    wire.price("down/prototypes", 4 * (1 + d) * known),
    wire.price("down/statistics", 4 * of_class * known) if options.r else {},
    wire.weigh(head, clock.fresh.astype(float)),
  )
