"""Convolutions along time for series, such as those of sensors."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.heads import network
from splitjax.models.layers import Dense, DenseBlock, normalise
from splitjax.models.options import (
  Depths,
  Dtype,
  Edge,
  How,
  Norm,
  Width,
  scaled,
)
from splitjax.types import Array, UserError

FILTERS, DENSE = (32, 64), (1024, 512)


class SeriesBlock(nn.Module):
  """Convolution along time, normalisation as configured, ReLU, max-pool of 2.

  The convolution has no padding. It is computed as one matrix product of all
  windows and the kernel, which is fast under `vmap` over clients and on every
  platform.

  Attributes:
    features: output channels.
    kernel: length of a window in steps, odd.
    how: dtype, normalisation.
  """

  features: int
  kernel: int
  how: How = How()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, c] to [B, T', features]; T' is half the number of windows."""
    steps = x.shape[1] - self.kernel + 1
    shifts = [x[:, i : i + steps] for i in range(self.kernel)]
    windows = jnp.concatenate(shifts, axis=-1)  # [B, T, kernel * c]
    x = Dense(self.features, dtype=self.how.dtype)(windows)
    x = normalise(x, train, real, self.how)
    x = x[:, : steps // 2 * 2].reshape(x.shape[0], steps // 2, 2, -1)
    return jax.nn.relu(x.max(axis=2))


def cnn1d(
  shape: tuple[int, int],
  classes: int,
  *,
  depths: Depths = (1, 2),
  width: Width = 1.0,
  kernel: Edge = 9,
  batch_norm: bool = False,
  dtype: Dtype = "float32",
  norm: Norm = "batch",
) -> Backbone:
  """Makes two convolutions along time, then dense 1024-512-C.

  The convolutions have c-32 and 32-64 channels; ReLU and a max-pool of 2 follow
  each. On series of 128 steps and nine sensors with six classes the network has
  2,253,958 parameters. HARCNN, in public code of personalised federated
  learning, has as many parameters. It treats the series as images and has 1x9
  kernels. An exit is a dense layer on the flattened features.

  Args:
    shape: (T, c) of one series.
    classes: C.
    depths: cut depths in use, 1 to 3 (convolutions, then a dense layer).
    width: factor on every layer's width.
    kernel: length of a window in steps, odd.
    batch_norm: whether blocks normalise before the ReLU.
    dtype: dtype of matrix products.
    norm: "batch" or "group", if batch_norm is set.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["cnn1d"]((128, 9), classes=6, depths=(1, 2, 3))
    >>> net.names()
    ('conv1', 'conv2', 'dense1', 'dense2')

  Raises:
    UserError: an even kernel, or series too short for two convolutions.
  """
  if kernel % 2 == 0:
    raise UserError(f"backbone.kernel={kernel} must be odd, as in 9")
  left = shape[0]
  for _ in FILTERS:
    left = (left - kernel + 1) // 2
  if left < 1:
    raise UserError(
      f"backbone.name='cnn1d': series of {shape[0]} steps are too short for"
      f" backbone.kernel={kernel}; lower it"
    )
  how = How(dtype=dtype, norm=norm if batch_norm else None)
  blocks: dict[str, Block] = {
    f"conv{i}": SeriesBlock(scaled(width, f), kernel, how)
    for i, f in enumerate(FILTERS, start=1)
  }
  for i, features in enumerate(DENSE, start=1):
    blocks[f"dense{i}"] = DenseBlock(scaled(width, features), how)
  return network("cnn1d", shape, blocks, classes, depths=depths, pool=0)
