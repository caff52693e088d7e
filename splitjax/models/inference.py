"""Inference with a split network."""

from jax import Array

from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Net


def client_logits(
  backbone: Backbone, client: Net, image: Array
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
  exit = backbones.classifier(backbone, client)
  if exit is None:
    return z, None
  logits, _ = backbones.run(backbone, client, z, (exit,), train=False)
  return z, logits


def server_logits(
  backbone: Backbone, server: Net, z: Array, depth: int
) -> Array:
  """Computes the server's logits [B, C] from features [B, ...] at a depth."""
  names = (*backbone.names(depth), "head")
  return backbones.run(backbone, server, z, names, train=False)[0]


def embedding(
  backbone: Backbone, client: Net, server: Net, image: Array
) -> Array:
  """Computes the input [B, D] of the head, without clipping the features."""
  depth = backbones.depth_of(backbone, client)
  near, far = backbone.names(0, depth), backbone.names(depth)
  z, _ = backbones.run(backbone, client, image, near, train=False)
  z, _ = backbones.run(backbone, server, z, far, train=False)
  return z.reshape(len(z), -1).astype(float)
