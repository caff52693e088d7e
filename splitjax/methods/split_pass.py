"""One forward and one backward across the cut, message by message.

Each side is a `jax.vjp` of its own, so the code is the protocol: what lies
between the two is the wire, and quantisation there is straight-through.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import losses as loss_functions
from splitjax import wire
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Batch, Ledger, Segment, Tree


class Front(NamedTuple):
  """The client's forward pass on one batch.

  Attributes:
    features: [B, ...], z = phi(x).
    loss: [] float32, l_C = CE(h(phi(x)), y); 0 where there is no exit.
    stats: block name -> new running statistics.
    pull: (dz, dl_C) -> block name -> gradient of phi and h.
  """

  features: Array
  loss: Array
  stats: dict[str, Tree]
  pull: Callable[[Array, Array], dict[str, Tree]]


class Pass(NamedTuple):
  """The result of one batch across the cut.

  Attributes:
    client: block name -> gradient of phi and h.
    server: block name -> gradient of theta, only of blocks passed.
    client_stats: block name -> new running statistics.
    server_stats: likewise.
    losses: "client" and "server" -> [] float32, nats.
    ledger: the messages of the batch.
  """

  client: dict[str, Tree]
  server: dict[str, Tree]
  client_stats: dict[str, Tree]
  server_stats: dict[str, Tree]
  losses: dict[str, Array]
  ledger: Ledger


def exit_loss(
  backbone: Backbone, client: Segment, z: Array, batch: Batch, train: bool
) -> Array:
  """l_C = CE(h(z), y) of a client's own classifier; 0 if it has none.

  Args:
    backbone: the network.
    client: holds h.
    z: [B, ...] features at the client's cut.
    batch: labels [B] and mask [B].
    train: as in `backbone.run`.
  """
  name = bb.classifier(backbone, client)
  if name is None:
    return jnp.zeros(())
  logits, _ = bb.run(backbone, client, z, (name,), train=train, real=batch.real)
  return loss_functions.cross_entropy(logits, batch.label, batch.real)


def front(backbone: Backbone, client: Segment, batch: Batch) -> Front:
  """Runs phi and h on a batch (SplitGP eq. 3, HARMONY eq. 1)."""
  names = backbone.names(0, bb.depth_of(backbone, client))

  def forward(params):
    segment = client._replace(params=params)
    z, stats = bb.run(
      backbone, segment, batch.image, names, train=True, real=batch.real
    )
    return (z, exit_loss(backbone, segment, z, batch, True)), stats

  (z, loss), pull, stats = jax.vjp(forward, client.params, has_aux=True)
  return Front(z, loss, stats, lambda dz, dl: pull((dz, dl))[0])


def local_loss(
  backbone: Backbone, params: dict[str, Tree], stats: dict, batch: Batch
) -> Array:
  """CE((h o phi)(x), y) of a client alone; running statistics not written.

  Args:
    backbone: the network.
    params: block name -> parameters of phi and h.
    stats: block name -> running statistics.
    batch: one batch.

  Returns:
    [] float32, nats.
  """
  client = Segment(params, stats)
  names = backbone.names(0, bb.depth_of(backbone, client))
  z, _ = bb.run(
    backbone, client, batch.image, names, train=True, real=batch.real
  )
  return exit_loss(backbone, client, z, batch, True)


def split_pass(
  backbone: Backbone,
  client: Segment,
  server: Segment,
  batch: Batch,
  *,
  gamma: float,
  wire_dtype: str = "float32",
) -> Pass:
  """The gradient of gamma l_C + (1 - gamma) l_S, across the cut.

  client x -> z | features, labels up | server z -> l_S, dz | dz down | client
  dz -> its gradient (SplitGP eq. 3-8, HARMONY eq. 1 and 8).

  Args:
    backbone: the network.
    client: phi and, where gamma > 0, h.
    server: theta from the shallowest cut on; entered at the client's depth.
    batch: one batch.
    gamma: weight of the client's loss; 1 - gamma is the server's.
    wire_dtype: width of the features on the wire.
  """
  depth = bb.depth_of(backbone, client)
  names = (*backbone.names(depth), "head")
  fore = front(backbone, client, batch)
  z, up = wire.send("up/features", fore.features, batch.real, wire_dtype)

  def back(params, z):
    segment = server._replace(params=params)
    logits, stats = bb.run(
      backbone, segment, z, names, train=True, real=batch.real
    )
    return loss_functions.cross_entropy(logits, batch.label, batch.real), stats

  loss, pull, server_stats = jax.vjp(
    back, {name: server.params[name] for name in names}, z, has_aux=True
  )
  theta, dz = pull(jnp.asarray(1 - gamma, float))
  dz, down = wire.send("down/feature_gradient", dz, batch.real)
  return Pass(
    client=fore.pull(dz, jnp.asarray(gamma, float)),
    server=theta,
    client_stats=fore.stats,
    server_stats=server_stats,
    losses={"client": fore.loss, "server": loss},
    ledger=wire.merge(up, wire.labels(batch.real), down),
  )
