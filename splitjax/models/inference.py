"""A split network run for answers, without training."""

from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Segment


def on_device(
  backbone: Backbone, client: Segment, image: Array
) -> tuple[Array, Array | None]:
  """What a client computes of images by itself.

  Args:
    backbone: the network.
    client: its blocks, and its exit (or the head) if it has one.
    image: [B, H, W, c] float32, standardised.

  Returns:
    Features [B, ...] behind its last block, and its logits [B, C] or None.
  """
  names = backbone.names(0, bb.depth_of(backbone, client))
  z, _ = bb.run(backbone, client, image, names, train=False)
  own = bb.classifier(backbone, client)
  if own is None:
    return z, None
  logits, _ = bb.run(backbone, client, z, (own,), train=False)
  return z, logits


def behind(backbone: Backbone, server: Segment, z: Array, depth: int) -> Array:
  """What the server makes of a client's features [B, ...]: logits [B, C]."""
  names = (*backbone.names(depth), "head")
  return bb.run(backbone, server, z, names, train=False)[0]


def embedding(
  backbone: Backbone, client: Segment, server: Segment, image: Array
) -> Array:
  """What the server's head sees of a client's standardised images: [B, D]."""
  depth = bb.depth_of(backbone, client)
  own, rest = backbone.names(0, depth), backbone.names(depth)
  z, _ = bb.run(backbone, client, image, own, train=False)
  z, _ = bb.run(backbone, server, z, rest, train=False)
  return z.reshape(len(z), -1).astype(float)
