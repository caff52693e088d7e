"""FedPAC: feature alignment, and heads combined by a quadratic program.

Xu et al., Personalized Federated Learning with Feature Alignment and Classifier
Collaboration, ICLR 2023.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import aggregations, base, prototypes, simplex
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Aggregation, Array, Batch, Half, Method, Sums

SMALLEST = 1e-3
"""Head weights smaller than this are set to 0, as in the authors' code."""


class Knowledge(NamedTuple):
  """Class statistics of a client, which sends all but `anchor` and `aligned`.

  Attributes:
    anchor: [C, D], the prototypes that attract the client's features.
    aligned: [C] bool, whether a class has an anchor in this round.
    mean: [C, D], the client's own prototypes after training.
    samples: [C] float, the number of the client's samples of each class.
    h: [C, D], pi_l mu_l: the share of class l in the client's samples times the
      class's mean feature, computed with the downloaded body.
    v: [] float, the variance of the head's estimate, also computed with the
      downloaded body.
  """

  anchor: Array
  aligned: Array
  mean: Array
  samples: Array
  h: Array
  v: Array


def fedpac(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  lam: float = 1.0,
  head_epochs: int = 1,
  head_lr: float | None = None,
) -> Method:
  """FedPAC: a head epoch, then body epochs with aligned features (Algorithm 1).

  The body descends CE + lam 1/D |f(x) - c_y|^2; in the first round it descends
  CE alone. c_y is the global prototype of the class, or the client's own if the
  class has no global one. Bodies are averaged with weights |D_i|. In the
  average of a prototype, a client's weight is the number of its samples of the
  class. The next head of client i is sum_j a_ij head_j with a_i from
  `head_weights`. The statistics for a_i are computed with the downloaded body,
  which is the same for all clients.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    lam: weight of the alignment; 1 in the authors' code.
    head_epochs: epochs of the head in each round; the body's are local_epochs.
    head_lr: learning rate of the head's epochs, which follows the schedule. The
      authors' code has 0.1 for the head and 0.01 to 0.02 for the body. None:
      the config's learning rate, since papers that compare with FedPAC name one
      rate for all.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedpac(net, sgd, head_epochs=2)
    >>> len(method.stages)  # the head, then the body
    2
  """
  base.require("lam", lam, lam >= 0, "at least 0")
  base.require("head_epochs", head_epochs, head_epochs >= 1, "at least 1")
  of_head = optimizer
  if head_lr is not None:
    base.require("head_lr", head_lr, head_lr >= 0, "at least 0")
    of_head = optimizer._replace(tx=optimizer.with_lr(head_lr))
  shared = base.mean(backbone, base.own_head)
  aggregation = combined_heads(shared)
  c, d = backbone.classes, prototypes.width(backbone)

  def arrive(client, server, samples, round, key):
    own = prototypes.class_stats(backbone, client.segment, samples)
    share = own.samples / jnp.maximum(own.samples.sum(), 1)
    h = share[:, None] * own.mean
    # (sum_l pi_l E|f|^2 - |pi_l mu_l|^2) / n
    spread = (share * own.square).sum() - jnp.square(h).sum()
    v = spread / jnp.maximum(own.samples.sum(), 1)
    prototype, known = server.memory
    anchor = jnp.where(known[:, None], prototype, own.mean)
    aligned = (known | (own.samples > 0)) & (round > 0)
    memory = Knowledge(anchor, aligned, own.mean, own.samples, h, v)
    sent = wire.price("down/prototypes", 4 * (1 + d) * known.sum())
    return client._replace(memory=memory), server, sent

  def leave(client, server, samples, key):
    own = prototypes.class_stats(backbone, client.segment, samples)
    client = client._replace(memory=client.memory._replace(mean=own.mean))
    held = (own.samples > 0).sum()
    table = wire.price("up/prototypes", 4 * (2 + d) * held)
    rest = wire.price("up/statistics", 4 * (d * held + 1))
    return client, server, wire.merge(table, rest)

  def align(client: Half, z: Array, batch: Batch) -> Array:
    memory = client.memory
    return lam * prototypes.distance_to(
      memory.anchor, memory.aligned, z, batch, per_feature=True
    )

  def knowledge(full, fleet):
    del full, fleet
    table, none = jnp.zeros((c, d)), jnp.zeros(c)
    return Knowledge(table, none > 0, table, none, table, jnp.zeros(()))

  return base.method(
    backbone,
    optimizer,
    base.head_then_body(
      backbone, optimizer, head_epochs, of_head, align=align if lam else None
    ),
    aggregation,
    traits=base.FULL,
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
    finish=base.upload(backbone, aggregation, before=leave),
    client_memory=knowledge,
    server_memory=lambda full, fleet: (jnp.zeros((c, d)), jnp.zeros(c, bool)),
  )


def combined_heads(shared: Aggregation) -> Aggregation:
  """Extends `shared` to combine heads and to average prototypes."""

  def contribute(client, server, weight):
    memory, on = client.memory, weight > 0
    count = jnp.where(on, memory.samples, 0.0)
    extra = {
      "prototype": aggregations.weighted(count[:, None], memory.mean),
      "count": count,
    }
    return shared.contribute(client, server, weight)._replace(extra=extra)

  def server(server, clients, active, sums: Sums):
    del clients, active
    old, known = server.memory
    count = sums.extra["count"]
    new = sums.extra["prototype"] / jnp.maximum(count, 1)[:, None]
    held = count > 0
    return server._replace(
      memory=(jnp.where(held[:, None], new, old), known | held)
    )

  def clients(half, active, sums, server):
    trained = half.segment.params["head"]
    half = shared.clients(half, active, sums, server)
    weights = head_weights(half.memory.h, half.memory.v, active)
    mixed = aggregations.combine(weights, trained)
    params = {
      **half.segment.params,
      "head": trees.where(active, mixed, trained),
    }
    return half._replace(segment=half.segment._replace(params=params))

  # Heads travel too, although no mean of them is kept.
  return Aggregation(contribute, server, clients)


def head_weights(h: Array, v: Array, active: Array) -> Array:
  """Computes the weights by which each client combines heads (eq. 10-11).

  a_i = argmin over the simplex of a^T (diag(V) + D_i) a with D_i[j, l] =
  <h_i - h_j, h_i - h_l>. Weights below SMALLEST become 0. If the quadratic
  program of a client has no finite solution, the client keeps its own head.

  Args:
    h: [N, C, D], pi_l mu_l of each client, see `Knowledge`.
    v: [N] float, variances.
    active: [N] bool, the participants; other clients keep their own heads.

  Returns:
    [N, N] float, row i is a_i; rows sum to 1.
  """
  flat = h.reshape(len(h), -1)
  finite = active & jnp.isfinite(v) & jnp.isfinite(flat).all(axis=1)
  flat = jnp.where(finite[:, None], flat, 0.0)
  v = jnp.where(finite, v, 0.0)

  def one(i):
    gaps = flat[i] - flat
    d = jnp.matmul(gaps, gaps.T, precision=jax.lax.Precision.HIGHEST)
    a = simplex.minimise(jnp.diag(v) + d, finite)
    a = jnp.where(a < SMALLEST, 0.0, a)
    a = a / a.sum()
    own = jnp.arange(len(v)) == i
    return jnp.where(jnp.isfinite(a).all() & finite[i], a, own)

  return jax.lax.map(one, jnp.arange(len(v)))
