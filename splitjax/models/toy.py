"""A toy network that compiles in a second: dense blocks of equal width."""

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import DenseBlock
from splitjax.models.options import Depths, Dtype, Edge, How, Length, Norm


def toy(
  shape: tuple[int, int, int],
  classes: int,
  *,
  depths: Depths = (1, 2, 3),
  width: Edge = 8,
  length: Length = 4,
  batch_norm: bool = False,
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """Dense blocks of equal width, an exit after each depth in use.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    depths: cut depths in use, 1 to length - 1.
    width: units of every block.
    length: L, the number of blocks.
    batch_norm: whether blocks normalise.
    dtype: dtype of matrix products.
    norm: "batch" or "group", if batch_norm is set.
  """
  how = How(dtype=dtype, norm=norm if batch_norm else None)
  blocks: dict[str, Block] = {
    f"block{i}": DenseBlock(width, how) for i in range(1, length + 1)
  }
  return network("toy", shape, blocks, classes, depths=depths, pool=0)
