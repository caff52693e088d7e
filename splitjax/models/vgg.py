"""VGG-11 with normalisation, for small images (SplitGP, HARMONY)."""

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import ConvBlock, Pooling
from splitjax.models.options import (
  Depths,
  Dtype,
  How,
  Norm,
  Width,
  check_size,
  scaled,
)

FILTERS = (64, 128, 256, 256, 512, 512, 512, 512)
POOLS: dict[int, Pooling] = {
  1: "max",
  2: "max",
  4: "max",
  6: "max",
  8: "max, mean",
}
"""Convolution -> the pool that follows it."""


def vgg11(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (2, 3, 4),
  width: Width = 1.0,
  dtype: Dtype = "float32",
  norm: Norm = "batch",
  pad: bool = False,
) -> Backbone:
  """Eight 3x3 convolutions with bias and normalisation, then dense 512-C.

  Output channels and max-pools (M): 64 M 128 M 256 256 M 512 512 M 512 512 M. A
  max-pool is part of the block before it. On 32x32 images the last map is 1x1;
  a larger one is averaged to 1x1. Exit: mean pool to 2x2, flatten, dense.
  On 32x32x3 with 10 classes the network has 9,231,114 parameters, as in HARMONY
  Table 1.

  Args:
    shape: (H, W, c) of one image, at least 32x32 unless `pad` is set.
    classes: C.
    depths: cut depths in use, 1 to 7.
    width: factor on every layer's width.
    dtype: dtype of the computation, see `options.How`.
    norm: "batch" or "group", see `layers.normalise`.
    pad: put smaller images, such as Fashion-MNIST's 28x28, in the middle of
      32x32 zeros.

  References:
    Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015,
    configuration A; the classifier is that of SplitGP, section V-C.
  """
  remedy = "set backbone.pad=True or "
  check_size("vgg11", shape, 1 if pad else 32, remedy)
  how = How(dtype, norm)
  blocks: dict[str, Block] = {}
  for i, filters in enumerate(FILTERS, start=1):
    pool = POOLS.get(i, "none")
    edge = 32 if pad and i == 1 else 0
    blocks[f"conv{i}"] = ConvBlock(
      scaled(width, filters), pool=pool, edge=edge, how=how
    )
  return network(
    "vgg11",
    shape,
    blocks,
    classes,
    depths=depths,
    pool=2,
  )
