"""ResNet-18 and -101 with Hydra's cuts, and ResNet-50 with HARMONY's cuts."""

import functools

from flax import linen as nn

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import Chain, ConvBlock, Pool
from splitjax.models.options import (
  Counts,
  Depths,
  Dtype,
  How,
  Norm,
  Width,
  check_counts,
  scaled,
)
from splitjax.types import Array

FILTERS = (64, 128, 256, 512)


class Residual(nn.Module):
  """A residual block, ReLU(branch + shortcut); convolutions without bias.

  Basic branch: 3x3, 3x3. Bottleneck: 1x1, 3x3, 1x1. In both, the first 3x3 has
  the stride, as in the usual implementations. In He et al. a bottleneck has the
  stride in its first 1x1, with the same number of parameters. Each convolution
  is normalised; all but the last have a ReLU. The shortcut is the input or, if
  the stride is not 1 or the channels differ, a normalised 1x1 convolution with
  the stride.

  Attributes:
    inner: channels of the branch.
    outer: output channels.
    stride: stride of the block.
    bottleneck: whether the branch is a bottleneck.
    how: dtype, normalisation.

  References:
    He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
  """

  inner: int
  outer: int
  stride: int
  bottleneck: bool
  how: How

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', outer], H' = ceil(H / stride)."""
    unit = functools.partial(ConvBlock, bias=False, how=self.how)
    if self.bottleneck:
      y = unit(self.inner, kernel=1, name="branch1")(x, train, real)
      y = unit(self.inner, stride=self.stride, name="branch2")(y, train, real)
      last = unit(self.outer, kernel=1, act="none", name="branch3")
    else:
      y = unit(self.inner, stride=self.stride, name="branch1")(x, train, real)
      last = unit(self.outer, act="none", name="branch2")
    y = last(y, train, real)
    if self.stride > 1 or x.shape[-1] != self.outer:
      shortcut = unit(self.outer, 1, self.stride, act="none", name="shortcut")
      x = shortcut(x, train, real)
    return nn.relu(y + x.astype(y.dtype))


def begin(width: float, how: How) -> tuple[Block, Block]:
  """Makes the 7x7 stem and the 3x3 max-pool behind it, both of stride 2."""
  stem = ConvBlock(scaled(width, 64), kernel=7, stride=2, bias=False, how=how)
  return stem, Pool("max 3x3")


def residuals(
  stages: tuple[int, ...], width: float, bottleneck: bool, how: How
) -> dict[str, Block]:
  """Makes the residual blocks by name; stages 2 to 4 begin with stride 2.

  `stages` are the numbers of blocks of the four stages, `width` is a factor on
  the channels. The output of a bottleneck is four times as wide as its branch.
  """
  out: list[Block] = []
  for i, (count, filters) in enumerate(zip(stages, FILTERS, strict=True)):
    outer = scaled(width, 4 * filters if bottleneck else filters)
    for j in range(count):
      stride = 2 if i > 0 and j == 0 else 1
      inner = scaled(width, filters)
      out.append(Residual(inner, outer, stride, bottleneck, how))
  return {f"block{i}": block for i, block in enumerate(out, start=1)}


def counted(
  stages: tuple[int, ...], width: float, bottleneck: bool, how: How
) -> dict[str, Block]:
  """Makes a block for each layer that Hydra counts, stem and pools included."""
  stem, pool = begin(width, how)
  blocks = residuals(stages, width, bottleneck, how)
  return {"stem": stem, "pool": pool, **blocks, "mean": Pool("mean")}


def resnet18(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (2, 6, 10),
  width: Width = 1.0,
  stages: Counts = (2, 2, 2, 2),
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """ResNet-18, divided into 12 layers as in Hydra: 11 blocks and the head.

  The blocks are the stem, the max-pool, 8 residual blocks and the mean pool, so
  a cut of depth K follows Hydra's layer K. Exit: mean over the image, dense.
  With 200 classes the network has 11,279,112 parameters.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 to 10.
    width: factor on every layer's channels.
    stages: number of residual blocks in each of the four stages.
    dtype: dtype of the computation, see `options.How`.
    norm: "batch" or "group", see `layers.normalise`.

  References:
    He et al., Deep Residual Learning for Image Recognition, CVPR 2016, table 1;
    Hydra, its 12 layers and cuts 2, 6, 10.
  """
  check_counts("stages", stages, (2, 2, 2, 2))
  blocks = counted(stages, width, False, How(dtype, norm))
  return network("resnet18", shape, blocks, classes, depths=depths, pool=1)


def resnet101(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (2, 10, 33),
  width: Width = 1.0,
  stages: Counts = (3, 4, 23, 3),
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """ResNet-101, divided into 37 layers as in Hydra: 36 blocks and the head.

  Unlike `resnet18` it has 33 residual blocks, and they are bottlenecks. With
  1000 classes the network has 44,549,160 parameters. The arguments are those of
  `resnet18`, except that depths are in 1..35.

  References:
    He et al., table 1; Hydra, appendix: 37 layers, cuts 2, 10, 33.
  """
  check_counts("stages", stages, (3, 4, 23, 3))
  blocks = counted(stages, width, True, How(dtype, norm))
  return network("resnet101", shape, blocks, classes, depths=depths, pool=1)


def resnet50(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (1, 3, 5),
  width: Width = 1.0,
  stages: Counts = (3, 4, 6, 3),
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """ResNet-50: 16 bottlenecks, a mean pool and the head, cut after bottlenecks.

  The stem and its max-pool belong to the first block, so a cut of depth K
  follows bottleneck K. Exit: mean over the image, dense. With 200 classes the
  network has 23,917,832 parameters, as in HARMONY Table 1. The arguments are
  those of `resnet18`, except that depths are in 1..16.

  References:
    He et al., table 1; HARMONY Table 1, split points.
  """
  check_counts("stages", stages, (3, 4, 6, 3))
  how = How(dtype, norm)
  blocks = residuals(stages, width, True, how)
  blocks["block1"] = Chain((*begin(width, how), blocks["block1"]))
  blocks["mean"] = Pool("mean")
  return network("resnet50", shape, blocks, classes, depths=depths, pool=1)
