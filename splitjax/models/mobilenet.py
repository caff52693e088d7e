"""MobileNetV1 with Hydra's cuts, and MobileNetV2 with HARMONY's."""

import functools

from flax import linen as nn

from splitjax.models import conv
from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import (
  ACTIVATIONS,
  Activation,
  Chain,
  ConvBlock,
  he_normal,
  normalise,
)
from splitjax.models.options import (
  Counts,
  Depths,
  Dtype,
  How,
  Norm,
  Width,
  array_dtype,
  check_counts,
  scaled,
)
from splitjax.types import Array

SEPARABLE = ((64, 1), (128, 2), (256, 2), (512, 2), (1024, 2))
"""MobileNetV1: channels and stride of each group of blocks."""

INVERTED = (
  (1, 16, 1),
  (6, 24, 2),
  (6, 32, 2),
  (6, 64, 2),
  (6, 96, 1),
  (6, 160, 2),
  (6, 320, 1),
)
"""MobileNetV2: expansion t, channels c and stride s of each group of blocks."""


class DepthwiseBlock(nn.Module):
  """Depthwise convolution without bias, normalisation, activation.

  Attributes:
    stride: stride of the convolution.
    act: "relu" or "relu6".
    how: dtype, normalisation.
    kernel: edge length, odd.
  """

  stride: int
  act: Activation
  how: How
  kernel: int = 3

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', c]."""
    shape = (self.kernel, self.kernel, 1, x.shape[-1])
    kernel = self.param("kernel", he_normal, shape)
    dtype = array_dtype(self.how.dtype)
    x, kernel = x.astype(dtype), kernel.astype(dtype)
    x = conv.depthwise(x, kernel, stride=self.stride)
    return ACTIVATIONS[self.act](normalise(x, train, real, self.how))


class Inverted(nn.Module):
  """MobileNetV2's inverted residual, with a linear bottleneck.

  If t > 1, a 1x1 convolution expands the input to t times its channels. A
  depthwise 3x3 convolution follows. Then a 1x1 convolution computes the
  output's channels. Each convolution is normalised; a ReLU6 follows all but the
  last. The input is added if the stride is 1 and the channels match.

  Attributes:
    features: output channels.
    expansion: t.
    stride: stride of the depthwise convolution.
    how: dtype, normalisation.

  References:
    Sandler et al., MobileNetV2, CVPR 2018, table 1.
  """

  features: int
  expansion: int
  stride: int
  how: How

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features]."""
    unit = functools.partial(ConvBlock, kernel=1, bias=False, how=self.how)
    y, inner = x, self.expansion * x.shape[-1]
    if self.expansion > 1:
      y = unit(inner, act="relu6", name="expand")(y, train, real)
    depthwise = DepthwiseBlock(self.stride, "relu6", self.how, name="depthwise")
    y = depthwise(y, train, real)
    y = unit(self.features, act="none", name="project")(y, train, real)
    if self.stride == 1 and x.shape[-1] == self.features:
      y = y + x.astype(y.dtype)
    return y


def is_small(shape: tuple[int, int, int]) -> bool:
  """Tells whether images are so small that networks halve them less often."""
  return max(shape[:2]) <= 32


def mobilenet_v1(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (4, 15, 23),
  width: Width = 1.0,
  repeats: Counts = (1, 2, 2, 6, 2),
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """MobileNetV1, divided into 26 layers as in Hydra.

  The stem comes first, then the depthwise and pointwise convolutions of
  MobileNet's blocks 1 to 12 (dw1, pw1, dw2, ...), then its block 13 with the
  mean pool. Hydra's layer 26 is block 13 together with the classifier. Exit:
  mean over the image, dense. For images of up to 32x32 the stem has stride 1
  instead of 2, so that 32x32 ends as 2x2. With 10 classes the network has
  3,217,226 parameters.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 to 25.
    width: factor on every layer's channels.
    repeats: numbers of blocks with 64, 128, 256, 512 and 1024 channels.
    dtype: dtype of the computation, see `options.How`.
    norm: "batch" or "group", see `layers.normalise`.

  References:
    Howard et al., MobileNets, arXiv:1704.04861, table 1; Hydra, 26 layers and
    cuts 4, 15, 23.
  """
  check_counts("repeats", repeats, (1, 2, 2, 6, 2))
  how = How(dtype, norm)
  unit = functools.partial(ConvBlock, bias=False, how=how)
  start = 1 if is_small(shape) else 2
  blocks: dict[str, Block] = {"stem": unit(scaled(width, 32), stride=start)}
  total, i = sum(repeats), 0
  for (filters, stride), count in zip(SEPARABLE, repeats, strict=True):
    for j in range(count):
      i += 1
      deep = DepthwiseBlock(stride if j == 0 else 1, "relu", how)
      point = functools.partial(unit, scaled(width, filters), kernel=1)
      if i < total:
        blocks |= {f"dw{i}": deep, f"pw{i}": point()}
      else:
        blocks[f"block{i}"] = Chain((deep, point(pool="mean")))
  return network("mobilenet_v1", shape, blocks, classes, depths=depths, pool=1)


def mobilenet_v2(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (1, 6, 11),
  width: Width = 1.0,
  repeats: Counts = (1, 2, 3, 4, 3, 3, 1),
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """MobileNetV2: the stem, 17 inverted residuals, the last 1x1 convolution.

  The mean pool belongs to the last block. Exit: mean over the image, dense.
  With 100 classes the network has 2,351,972 parameters, as in HARMONY Table 1.
  The public checkpoints round the scaled numbers of channels to multiples of 8
  and do not narrow the last 1x1 convolution for a width below 1. Here channels
  are not rounded to such multiples, and `width` scales every layer.

  The arguments are those of `mobilenet_v1`, but for two. Depths are in
  1..18 (the stem is block 1). `repeats` has the numbers of blocks of seven
  groups (column n of the paper's table 2). For images of up to 32x32 the stem
  and the second group have stride 1, where the paper has stride 2, so that
  32x32 ends as 4x4.

  References:
    Sandler et al., MobileNetV2, CVPR 2018, table 2; HARMONY Table 1, split
    points.
  """
  check_counts("repeats", repeats, (1, 2, 3, 4, 3, 3, 1))
  how = How(dtype, norm)
  unit = functools.partial(ConvBlock, bias=False, act="relu6", how=how)
  small = is_small(shape)
  residuals: list[Block] = []
  for i, (t, filters, stride) in enumerate(INVERTED):
    if small and i == 1:
      stride = 1
    for j in range(repeats[i]):
      step = stride if j == 0 else 1
      residuals.append(Inverted(scaled(width, filters), t, step, how))
  blocks: dict[str, Block] = {
    "stem": unit(scaled(width, 32), stride=1 if small else 2),
    **{f"block{i}": block for i, block in enumerate(residuals, start=1)},
    "last": unit(scaled(width, 1280), kernel=1, pool="mean"),
  }
  return network("mobilenet_v2", shape, blocks, classes, depths=depths, pool=1)
