"""A multilayer perceptron: dense blocks of equal width on flattened inputs."""

import dataclasses

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import DenseBlock
from splitjax.models.options import (
  Depths,
  Dtype,
  Edge,
  How,
  Length,
  Norm,
)


def mlp(
  shape: tuple[int, ...],
  classes: int,
  *,
  depths: Depths = (1, 2),
  width: Edge = 200,
  length: Length = 3,
  batch_norm: bool = False,
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """Makes a network of dense blocks with ReLU; an exit is a dense layer.

  Inputs [B, ...] of any shape are flattened; every block returns [B, width].
  length=2 with depths=(1,) gives McMahan's 2NN. On 28x28x1 with 10 classes it
  has 199,210 parameters without the exit.

  Args:
    shape: shape of one input: (F,) of a table, (T, c) of a series.
    classes: C.
    depths: cut depths in use, 1 to length - 1.
    width: units of every block.
    length: L, the number of blocks.
    batch_norm: whether blocks normalise before the ReLU.
    dtype: dtype of matrix products.
    norm: "batch" or "group", if batch_norm is set.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["mlp"]((14,), classes=3, width=32)
    >>> net.names(), net.cuts
    (('block1', 'block2', 'block3'), (1, 2))

  References:
    McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, AISTATS 2017, section 3.
  """
  how = How(dtype=dtype, norm=norm if batch_norm else None)
  blocks: dict[str, Block] = {
    f"block{i}": DenseBlock(width, how) for i in range(1, length + 1)
  }
  return network("mlp", shape, blocks, classes, depths=depths, pool=0)


def toy(
  shape: tuple[int, ...],
  classes: int,
  *,
  depths: Depths = (1, 2, 3),
  width: Edge = 8,
  length: Length = 4,
  batch_norm: bool = False,
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """Makes a narrow `mlp`, which compiles in a second, with its options.

  By default all blocks but the last have an exit.
  """
  net = mlp(
    shape, classes, depths=depths, width=width, length=length,
    batch_norm=batch_norm, dtype=dtype, norm=norm,
  )  # fmt: skip
  return dataclasses.replace(net, name="toy")
