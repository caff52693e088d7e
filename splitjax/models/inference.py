"""Inference with a split network."""

from splitjax import wire
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Segment


def client_logits(
  backbone: Backbone, client: Segment, image: Array
) -> tuple[Array, Array | None]:
  """Runs the client's part on inputs.

  Args:
    backbone: the network.
    client: the client's blocks, and its exit (or the head) if it has one.
    image: [B, ...] as a network gets it (Batch.image).

  Returns:
    Features [B, ...] after the client's last block, and the client's logits
    [B, C], which are None if it has no classifier.
  """
  names = backbone.names(0, backbones.depth_of(backbone, client))
  z, _ = backbones.run(backbone, client, image, names, train=False)
  own = backbones.classifier(backbone, client)
  if own is None:
    return z, None
  logits, _ = backbones.run(backbone, client, z, (own,), train=False)
  return z, logits


def server_logits(
  backbone: Backbone, server: Segment, z: Array, depth: int
) -> Array:
  """Computes the server's logits [B, C] from features [B, ...] at a depth.

  Features are clipped as in training, but no noise is added.
  """
  z = wire.clipped(backbone.wire.features, z)
  names = (*backbone.names(depth), "head")
  return backbones.run(backbone, server, z, names, train=False)[0]


def embedding(
  backbone: Backbone, client: Segment, server: Segment, image: Array
) -> Array:
  """Computes the input [B, D] of the head, without clipping the features."""
  depth = backbones.depth_of(backbone, client)
  own, rest = backbone.names(0, depth), backbone.names(depth)
  z, _ = backbones.run(backbone, client, image, own, train=False)
  z, _ = backbones.run(backbone, server, z, rest, train=False)
  return z.reshape(len(z), -1).astype(float)
