"""FedProto: clients share the mean features of their classes, and no network.

Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients,
AAAI 2022, Algorithm 1.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.methods import aggregations, base, prototypes
from splitjax.methods.optimizers import Optimizer
from splitjax.models import inference
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Aggregation,
  Array,
  Batch,
  Half,
  Logits,
  Method,
  Sums,
)

FAR = 1e6
"""The squared distance of a class that has no prototype."""


class Prototypes(NamedTuple):
  """Mean features of each class, either of one client or at the server.

  Attributes:
    mean: [C, D] float; 0 for a class without samples.
    samples: [C] float, number of samples of each class. At the server this is
      the participants' total in the last round in which one of them had the
      class.
  """

  mean: Array
  samples: Array


def fedproto(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  lam: float = 1.0,
  mean: Literal["size", "uniform"] = "size",
  predicts: Literal["prototypes", "head"] = "prototypes",
) -> Method:
  """FedProto: clients keep their networks and share the prototypes of classes.

  A client trains by local SGD on CE + lam 1/D |f(x) - c_y|^2. After training,
  it computes its mean features of each class j on its own samples. The
  prototype c_j is the mean of the participants' mean features (eq. 6); if no
  participant has the class, c_j does not change. Eq. 6 also divides by |N_j|,
  the number of clients with the class, and then c_j is no longer a mean. The
  authors' code and this one do not divide by |N_j|. A class without a
  prototype adds nothing to the loss; in the first round no class has a
  prototype. Features are the input of the head. The distance is divided by D,
  as in the authors' code. The authors collect features during a client's last
  epoch; here the client computes them in a pass after its last epoch.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    lam: lambda; 1 is the default of the authors' code.
    mean: weight of a client in c_j. "size": |D_ij|, the number of its samples
      of the class, as in the paper; "uniform": 1, as in the authors' code.
    predicts: what classifies test samples. "prototypes": the nearest c_j, as in
      the paper; "head": the client's own head. The authors' code prints both.
      In that code a client chooses only among the prototypes of its own
      classes. Here it chooses among all prototypes, since test samples may be
      of other classes.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> fedproto(net, sgd, predicts="head").traits.depth
    'full'
  """
  base.require("lam", lam, lam >= 0, "at least 0")
  aggregation = of_prototypes(uniform=mean == "uniform")
  width = prototypes.width(backbone)

  def arrive(client, server, samples, round, key):
    known = (server.memory.samples > 0).sum()
    sent = wire.price("down/prototypes", 4 * (1 + width) * known)
    return client._replace(memory=server.memory), server, sent

  def align(client: Half, z: Array, batch: Batch) -> Array:
    anchor, count = client.memory
    return lam * prototypes.distance_to(
      anchor, count > 0, z, batch, per_feature=True
    )

  def leave(client, server, samples, key):
    own = prototypes.class_stats(backbone, client.segment, samples)
    server = server._replace(memory=Prototypes(own.mean, own.samples))
    held = (own.samples > 0).sum()
    sent = wire.price("up/prototypes", 4 * (2 + width) * held)
    return client._replace(memory=()), server, sent

  def nothing(full, fleet):
    c = backbone.classes
    return Prototypes(jnp.zeros((c, width)), jnp.zeros(c))

  made = base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer, align=align),),
    aggregation,
    traits=base.FULL,
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
    finish=base.upload(backbone, aggregation, before=leave),
    server_memory=nothing,
  )
  if predicts == "head":
    return made
  return made._replace(
    predict=lambda client, server, image: nearest(
      backbone, client, server.memory, image
    )
  )


def of_prototypes(*, uniform: bool) -> Aggregation:
  """Builds an aggregation that averages prototypes, and no networks.

  It finds the prototypes in the clients' copies of the server's memory. In a
  class, a client's weight is the number of its samples of the class; with
  `uniform`, all clients that have samples of the class weigh the same.
  """

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    own, count = server.memory
    count = jnp.where(weight > 0, count, 0.0)
    share = (count > 0).astype(float) if uniform else count
    total = aggregations.weighted(share[:, None], own)
    extra = {"prototype": total, "share": share, "count": count}
    return aggregations.no_sums(client, server, weight)._replace(extra=extra)

  def server(server, clients, active, sums):
    old, share = server.memory, sums.extra["share"][:, None]
    mean = aggregations.mean(sums.extra["prototype"], share, old.mean)
    count = sums.extra["count"]
    return server._replace(
      memory=Prototypes(mean, jnp.where(count > 0, count, old.samples))
    )

  same = aggregations.same_clients
  return Aggregation(contribute, server, same, keep=1.0)


def nearest(
  backbone: Backbone, client: Half, known: Prototypes, image: Array
) -> Logits:
  """Computes a client's logits [B, C], which are -1/D |f(x) - c_j|^2."""
  z, _ = inference.client_logits(backbone, client.segment, image)
  z = z.reshape(z.shape[0], known.mean.shape[1]).astype(float)
  square = jax.vmap(lambda p: jnp.square(z - p).mean(axis=1), out_axes=1)(
    known.mean
  )
  scores = -jnp.where(known.samples > 0, square, FAR)
  return Logits(scores, scores)
