"""A toy network that compiles in a second: dense blocks of equal width."""

import dataclasses

from splitjax.models.backbones import Backbone
from splitjax.models.mlp import mlp
from splitjax.models.options import Depths, Dtype, Edge, Length, Norm


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
  """Makes a narrow `mlp`; by default all blocks but the last have an exit.

  The options are those of `mlp` except `dropout`.
  """
  net = mlp(
    shape,
    classes,
    depths=depths,
    width=width,
    length=length,
    batch_norm=batch_norm,
    dtype=dtype,
    norm=norm,
  )
  return dataclasses.replace(net, name="toy")
