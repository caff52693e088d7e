"""Plain CNNs: 8 layers (SplitGP, HARMONY), 4 layers (McMahan et al.)."""

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import ConvBlock, DenseBlock
from splitjax.models.options import (
  Depths,
  Dtype,
  How,
  Width,
  check_size,
  scaled,
)


def cnn8(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (2, 3, 4),
  width: Width = 1.0,
  dtype: Dtype = "float32",
) -> Backbone:
  """Five 3x3 convolutions, then dense 2304-1024-512-C.

  The convolutions have c-32, 32-64, 64-128, 128-256 and 256-256 channels. A
  max-pool follows the first, second and fourth, so that 28 pixels shrink to 14,
  7 and 3; the papers do not say where the pools are. Exit: mean pool to 3x3
  (its kind is our choice), flatten, dense. At width 1 on 28x28x1 with 10
  classes the network has 3,868,170 parameters without its exits, as in HARMONY
  Table 1.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 to 6 (convolutions, then dense layers).
    width: factor on every layer's width.
    dtype: dtype of the computation, see `options.How`.

  References:
    Han et al., SplitGP, INFOCOM 2023, section V; HARMONY Table 1.
  """
  check_size("cnn8", shape, 8)
  how = How(dtype)
  filters = [scaled(width, f) for f in (32, 64, 128, 256, 256)]
  blocks: dict[str, Block] = {
    f"conv{i}": ConvBlock(f, pool="max" if i in (1, 2, 4) else "none", how=how)
    for i, f in enumerate(filters, start=1)
  }
  for i, features in enumerate((1024, 512), start=1):
    blocks[f"dense{i}"] = DenseBlock(scaled(width, features), how)
  return network(
    "cnn8",
    shape,
    blocks,
    classes,
    depths=depths,
    pool=3,
  )


def cnn4(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (1, 2),
  width: Width = 1.0,
  dtype: Dtype = "float32",
) -> Backbone:
  """Two 5x5 convolutions (32, 64 channels) with max-pools, then dense 512-C.

  At width 1 on 28x28x1 with 10 classes it has McMahan's 1,663,370 parameters.
  No paper cuts this network, so its exits are
  ours, made like those of `cnn8`.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 or 2 (after a convolution).
    width: as in `cnn8`.
    dtype: as in `cnn8`.

  References:
    McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, AISTATS 2017, section 3; PGFedSplit.
  """
  check_size("cnn4", shape, 4)
  how = How(dtype)
  blocks: dict[str, Block] = {
    f"conv{i}": ConvBlock(scaled(width, f), kernel=5, pool="max", how=how)
    for i, f in enumerate((32, 64), start=1)
  }
  blocks["dense1"] = DenseBlock(scaled(width, 512), how)
  return network(
    "cnn4",
    shape,
    blocks,
    classes,
    depths=depths,
    pool=3,
  )
