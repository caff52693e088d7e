"""The networks of the papers but for transformers, block by block.

A factory takes the shape of an input and the number of classes, and:

  depths  cut depths in use.
  width   a factor on every layer's channels (of `mlp` its number of units).
  style   dtype and kind of normalisation, see `layers.Style`.

Sources: McMahan et al., AISTATS 2017, section 3 (cnn4, mlp with length=2); Han
et al., SplitGP, INFOCOM 2023, section V (cnn8, the classifier of vgg11);
Simonyan and Zisserman, ICLR 2015, configuration A (vgg11); He et al., Deep
Residual Learning, CVPR 2016, table 1; Howard et al., MobileNets,
arXiv:1704.04861, table 1; Sandler et al., MobileNetV2, CVPR 2018, tables 1 and
2. Cuts are those of HARMONY, Table 1, and Hydra. Exits of resnets and
mobilenets average over the image.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from splitjax.models import conv
from splitjax.models.layers import (
  ACTIVATIONS,
  BARE,
  NORMED,
  Activation,
  Chain,
  ConvBlock,
  Counts,
  Dense,
  DenseBlock,
  Depths,
  Edge,
  Length,
  Pool,
  Style,
  Width,
  he_normal,
  normalise,
  with_exits,
)
from splitjax.models.network import Backbone, Block
from splitjax.types import UserError


def scaled(width: float, channels: int) -> int:
  """Returns width * channels, rounded, and at least 1."""
  return max(1, round(width * channels))


def _check_counts(name: str, counts: tuple[int, ...], length: int) -> None:
  """Raises a UserError if there is another number of counts."""
  if len(counts) != length:
    raise UserError(f"backbone.{name}={counts} must be {length} numbers")


def _check_size(
  name: str, shape: tuple[int, ...], least: int, remedy: str = ""
) -> None:
  """Raises a UserError if images are too small for a network's pools."""
  if min(shape[:2]) < least:
    raise UserError(
      f"backbone.name={name!r}: needs images of at least {least}x{least},"
      f" these are {shape[0]}x{shape[1]}; {remedy}choose another backbone"
    )


def cnn8(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (2, 3, 4),
  width: Width = 1.0, style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """Five 3x3 convolutions, then dense 2304-1024-512-C, without normalisation.

  A max-pool follows convolutions 1, 2 and 4, so that 28 pixels shrink to 14, 7
  and 3; the papers do not say where. Exit: mean pool to 3x3 (our choice),
  dense. On 28x28x1 with 10 classes 3,868,170 parameters, as in HARMONY Table 1.
  """
  _check_size("cnn8", shape, 8)
  style = Style(style.dtype)
  blocks: dict[str, Block] = {
    f"conv{i}": ConvBlock(
      scaled(width, filters),
      pool="max" if i in (1, 2, 4) else "none",
      style=style,
    )
    for i, filters in enumerate((32, 64, 128, 256, 256), start=1)
  }
  for i, features in enumerate((1024, 512), start=1):
    blocks[f"dense{i}"] = DenseBlock(scaled(width, features), style)
  return with_exits("cnn8", shape, blocks, classes, depths=depths, pool=3)


def cnn4(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (1, 2),
  width: Width = 1.0, style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """Two 5x5 convolutions with max-pools, then dense 512-C, not normalised.

  On 28x28x1 with 10 classes it has McMahan's 1,663,370 parameters. No paper
  cuts this network, so its exits are ours, made like those of `cnn8`.
  """
  _check_size("cnn4", shape, 4)
  style = Style(style.dtype)
  blocks: dict[str, Block] = {
    f"conv{i}": ConvBlock(scaled(width, f), kernel=5, pool="max", style=style)
    for i, f in enumerate((32, 64), start=1)
  }
  blocks["dense1"] = DenseBlock(scaled(width, 512), style)
  return with_exits("cnn4", shape, blocks, classes, depths=depths, pool=3)


def vgg11(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (2, 3, 4),
  width: Width = 1.0, pad: bool = False, style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """Eight 3x3 convolutions with bias and normalisation, then dense 512-C.

  On 32x32 images the last map is 1x1; a larger one is averaged to 1x1. Exit:
  mean pool to 2x2, dense. On 32x32x3 with 10 classes it has 9,231,114
  parameters, as in HARMONY Table 1. `pad` puts smaller images, such as
  Fashion-MNIST's 28x28, in the middle of 32x32 zeros.
  """
  remedy = "set backbone.pad=True or "
  _check_size("vgg11", shape, 1 if pad else 32, remedy)
  pools: dict[int, Any] = {**dict.fromkeys((1, 2, 4, 6), "max"), 8: "max, mean"}
  blocks: dict[str, Block] = {
    f"conv{i}": ConvBlock(
      scaled(width, filters),
      pool=pools.get(i, "none"),
      edge=32 if pad and i == 1 else 0,
      style=style,
    )
    for i, filters in enumerate((64, 128, 256, 256, 512, 512, 512, 512), 1)
  }
  return with_exits("vgg11", shape, blocks, classes, depths=depths, pool=2)


def mlp(
  shape: tuple[int, ...], classes: int, *, depths: Depths = (1, 2),
  width: Edge = 200, length: Length = 3, batch_norm: bool = False,
  style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """Dense blocks of `width` units with ReLU, on flattened inputs of any shape.

  length=2 with depths=(1,) gives McMahan's 2NN: on 28x28x1 with 10 classes
  199,210 parameters without the exit. `batch_norm`: blocks normalise before the
  ReLU.
  """
  block = DenseBlock(width, style if batch_norm else Style(style.dtype))
  blocks: dict[str, Block] = {f"block{i + 1}": block for i in range(length)}
  return with_exits("mlp", shape, blocks, classes, depths=depths, pool=0)


def toy(
  shape: tuple[int, ...], classes: int, *, depths: Depths = (1, 2, 3),
  width: Edge = 8, length: Length = 4, batch_norm: bool = False,
  style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """Makes a narrow `mlp`, which compiles in a second, with its options."""
  net = mlp(
    shape, classes, depths=depths, width=width, length=length,
    batch_norm=batch_norm, style=style,
  )  # fmt: skip
  return dataclasses.replace(net, name="toy")


def windows(x: Array, length: int) -> Array:
  """Lists the windows of a series: [B, T, c] -> [B, T', length * c].

  T' is T - length + 1. A dense layer on windows is a convolution along time
  that is fast under `vmap` over clients and on every platform.
  """
  steps = x.shape[1] - length + 1
  return jnp.concatenate([x[:, i : i + steps] for i in range(length)], axis=-1)


class SeriesBlock(nn.Module):
  """Convolution of 9 steps along time without padding, ReLU, max-pool of 2."""

  features: int
  style: Style = Style()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, c] to [B, T', features]; T' is half the number of windows."""
    del train, real
    x = Dense(self.features, style=self.style)(windows(x, 9))
    pairs = x.shape[1] // 2
    x = x[:, : 2 * pairs].reshape(x.shape[0], pairs, 2, -1)
    return jax.nn.relu(x.max(axis=2))


def cnn1d(
  shape: tuple[int, int], classes: int, *, depths: Depths = (1, 2),
  width: Width = 1.0, style: Style = BARE,
) -> Backbone:  # fmt: skip
  """Makes two convolutions along time, then dense 1024-512-C.

  The convolutions have 32 and 64 channels and windows of 9 steps, as HARCNN in
  public code of personalised federated learning. On series of 128 steps and
  nine sensors with six classes it has 2,253,958 parameters. Exit: dense on the
  flattened features. Nothing is normalised.
  """
  if shape[0] < 28:
    raise UserError(
      f"backbone.name='cnn1d': series have at least 28 steps, not {shape[0]};"
      " choose mlp"
    )
  style = Style(style.dtype)
  blocks: dict[str, Block] = {
    f"conv{i}": SeriesBlock(scaled(width, f), style)
    for i, f in enumerate((32, 64), start=1)
  }
  for i, features in enumerate((1024, 512), start=1):
    blocks[f"dense{i}"] = DenseBlock(scaled(width, features), style)
  return with_exits("cnn1d", shape, blocks, classes, depths=depths, pool=0)


class Residual(nn.Module):
  """A residual block, ReLU(branch + shortcut); convolutions without bias.

  Basic branch: 3x3, 3x3. Bottleneck: 1x1, 3x3, 1x1. The first 3x3 has the
  stride, as in the usual implementations (in He et al. a bottleneck's first
  1x1). Each convolution is normalised; all but the last have a ReLU. The
  shortcut is the input or, if the form changes, a normalised 1x1 convolution.
  `inner` are the channels of the branch, `outer` those returned.
  """

  inner: int
  outer: int
  stride: int
  bottleneck: bool
  style: Style

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', outer], H' = ceil(H / stride)."""
    unit = functools.partial(ConvBlock, bias=False, style=self.style)
    if self.bottleneck:
      y = unit(self.inner, kernel=1, name="branch1")(x, train, real)
      y = unit(self.inner, stride=self.stride, name="branch2")(y, train, real)
      closing = unit(self.outer, kernel=1, act="none", name="branch3")
    else:
      y = unit(self.inner, stride=self.stride, name="branch1")(x, train, real)
      closing = unit(self.outer, act="none", name="branch2")
    y = closing(y, train, real)
    if self.stride > 1 or x.shape[-1] != self.outer:
      shortcut = unit(self.outer, 1, self.stride, act="none", name="shortcut")
      x = shortcut(x, train, real)
    return nn.relu(y + x.astype(y.dtype))


def _resnet(
  name: str, shape: tuple[int, ...], classes: int, depths: tuple[int, ...], *,
  stages: tuple[int, ...], width: float, style: Style, bottleneck: bool,
  joined: bool = False,
) -> Backbone:  # fmt: skip
  """Stem, 3x3 max-pool, residual blocks of four stages, mean pool.

  Stages 2 to 4 begin with stride 2; the output of a bottleneck is four times as
  wide as its branch. `joined`: stem and pool are a part of the first block.
  """
  _check_counts("stages", stages, 4)
  stem = ConvBlock(
    scaled(width, 64), kernel=7, stride=2, bias=False, style=style
  )
  pool = Pool("max 3x3")
  blocks: dict[str, Block] = {} if joined else {"stem": stem, "pool": pool}
  number = 0
  for stage, count in enumerate(stages):
    filters = 64 * 2**stage
    outer = scaled(width, 4 * filters if bottleneck else filters)
    for i in range(count):
      number += 1
      stride = 2 if stage > 0 and i == 0 else 1
      inner = scaled(width, filters)
      blocks[f"block{number}"] = Residual(
        inner, outer, stride, bottleneck, style
      )
  if joined:
    blocks["block1"] = Chain((stem, pool, blocks["block1"]))
  blocks["mean"] = Pool("mean")
  return with_exits(name, shape, blocks, classes, depths=depths, pool=1)


def resnet18(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (2, 6, 10),
  width: Width = 1.0, stages: Counts = (2, 2, 2, 2), style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """ResNet-18, divided into 12 layers as in Hydra: 11 blocks and the head.

  The blocks are the stem, the max-pool, 8 residual blocks (their numbers in
  `stages`) and the mean pool, so a cut of depth K follows Hydra's layer K. With
  200 classes it has 11,279,112 parameters.
  """
  return _resnet(
    "resnet18", shape, classes, depths,
    stages=stages, width=width, style=style, bottleneck=False,
  )  # fmt: skip


def resnet101(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (2, 10, 33),
  width: Width = 1.0, stages: Counts = (3, 4, 23, 3), style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """ResNet-101, divided into 37 layers as in Hydra: 36 blocks and the head.

  Unlike `resnet18` it has 33 residual blocks, and they are bottlenecks. With
  1000 classes it has 44,549,160 parameters.
  """
  return _resnet(
    "resnet101", shape, classes, depths,
    stages=stages, width=width, style=style, bottleneck=True,
  )  # fmt: skip


def resnet50(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (1, 3, 5),
  width: Width = 1.0, stages: Counts = (3, 4, 6, 3), style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """ResNet-50: 16 bottlenecks, a mean pool and the head, cut after bottlenecks.

  A cut of depth K follows bottleneck K: the stem and its max-pool belong to the
  first. With 200 classes it has 23,917,832 parameters (HARMONY Table 1).
  """
  return _resnet(
    "resnet50", shape, classes, depths,
    stages=stages, width=width, style=style, bottleneck=True, joined=True,
  )  # fmt: skip


class DepthwiseBlock(nn.Module):
  """Depthwise 3x3 convolution without bias, normalisation, activation."""

  stride: int
  act: Activation
  style: Style

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', c]."""
    kernel = self.param("kernel", he_normal, (3, 3, 1, x.shape[-1]))
    x = conv.depthwise(*self.style.cast(x, kernel), stride=self.stride)
    return ACTIVATIONS[self.act](normalise(x, train, real, self.style))


class Inverted(nn.Module):
  """MobileNetV2's inverted residual, with a linear bottleneck.

  A 1x1 convolution to `expansion` times the channels, if that is above 1; a
  depthwise 3x3 with the stride; a 1x1 to the output's channels. Each is
  normalised; a ReLU6 follows all but the last. The input is added if it fits.
  """

  features: int
  expansion: int
  stride: int
  style: Style

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features]."""
    unit = functools.partial(ConvBlock, kernel=1, bias=False, style=self.style)
    y = x
    if self.expansion > 1:
      inner = self.expansion * x.shape[-1]
      y = unit(inner, act="relu6", name="expand")(y, train, real)
    depthwise = DepthwiseBlock(
      self.stride, "relu6", self.style, name="depthwise"
    )
    y = depthwise(y, train, real)
    y = unit(self.features, act="none", name="project")(y, train, real)
    if self.stride == 1 and x.shape[-1] == self.features:
      y = y + x.astype(y.dtype)
    return y


def mobilenet_v1(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (4, 15, 23),
  width: Width = 1.0, repeats: Counts = (1, 2, 2, 6, 2), style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """MobileNetV1, divided into 26 layers as in Hydra.

  They are the stem, the depthwise and pointwise convolutions of MobileNet's
  blocks 1 to 12 (dw1, pw1, dw2, ...), its block 13 with the mean pool, and the
  classifier. For images of up to 32x32 the stem has stride 1 instead of 2. With
  10 classes it has 3,217,226 parameters. `repeats`: blocks with 64, 128, 256,
  512 and 1024 channels.
  """
  _check_counts("repeats", repeats, 5)
  unit = functools.partial(ConvBlock, bias=False, style=style)
  early = 1 if max(shape[:2]) <= 32 else 2
  blocks: dict[str, Block] = {"stem": unit(scaled(width, 32), stride=early)}
  number = 0
  for group, count in enumerate(repeats):
    point = functools.partial(unit, scaled(width, 64 * 2**group), kernel=1)
    for i in range(count):
      number += 1
      deep = DepthwiseBlock(2 if group > 0 and i == 0 else 1, "relu", style)
      if number < sum(repeats):
        blocks |= {f"dw{number}": deep, f"pw{number}": point()}
      else:
        blocks[f"block{number}"] = Chain((deep, point(pool="mean")))
  return with_exits(
    "mobilenet_v1", shape, blocks, classes, depths=depths, pool=1
  )


def mobilenet_v2(
  shape: tuple[int, int, int], classes: int, *, depths: Depths = (1, 6, 11),
  width: Width = 1.0, repeats: Counts = (1, 2, 3, 4, 3, 3, 1),
  style: Style = NORMED,
) -> Backbone:  # fmt: skip
  """MobileNetV2: the stem, 17 inverted residuals, the last 1x1 convolution.

  The mean pool belongs to the last block. With 100 classes it has 2,351,972
  parameters, as in HARMONY Table 1. Channels are rounded to whole numbers, not
  to multiples of 8. For images of up to 32x32 the stem and the second group
  have stride 1 instead of 2. `repeats`: column n of the paper's table 2.
  """
  _check_counts("repeats", repeats, 7)
  unit = functools.partial(ConvBlock, bias=False, act="relu6", style=style)
  early = 1 if max(shape[:2]) <= 32 else 2
  groups = (  # expansion, channels, stride
    (1, 16, 1), (6, 24, early), (6, 32, 2), (6, 64, 2), (6, 96, 1), (6, 160, 2),
    (6, 320, 1),
  )  # fmt: skip
  blocks: dict[str, Block] = {"stem": unit(scaled(width, 32), stride=early)}
  for (expansion, filters, stride), count in zip(groups, repeats, strict=True):
    for i in range(count):
      step = stride if i == 0 else 1
      block = Inverted(scaled(width, filters), expansion, step, style)
      blocks[f"block{len(blocks)}"] = block
  blocks["last"] = unit(scaled(width, 1280), kernel=1, pool="mean")
  return with_exits(
    "mobilenet_v2", shape, blocks, classes, depths=depths, pool=1
  )
