"""Convolutions along time for series, such as those of sensors."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from splitjax.models.layers import (
  BARE,
  Dense,
  DenseBlock,
  Depths,
  Edge,
  How,
  Width,
  with_exits,
)
from splitjax.models.nets import scaled
from splitjax.models.network import Backbone, Block
from splitjax.types import Array, UserError

FILTERS, DENSE = (32, 64), (1024, 512)


def windows(x: Array, length: int) -> Array:
  """Lists the windows of a series: [B, T, c] -> [B, T', length * c].

  T' is T - length + 1. A dense layer on windows is a convolution along time
  that is fast under `vmap` over clients and on every platform.
  """
  steps = x.shape[1] - length + 1
  return jnp.concatenate([x[:, i : i + steps] for i in range(length)], axis=-1)


class SeriesBlock(nn.Module):
  """Convolution along time without padding, ReLU, max-pool of 2.

  Attributes:
    features: output channels.
    kernel: length of a window in steps, odd.
    how: dtype.
  """

  features: int
  kernel: int
  how: How = How()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, c] to [B, T', features]; T' is half the number of windows."""
    del train, real
    x = Dense(self.features, how=self.how)(windows(x, self.kernel))
    pairs = x.shape[1] // 2
    x = x[:, : 2 * pairs].reshape(x.shape[0], pairs, 2, -1)
    return jax.nn.relu(x.max(axis=2))


def cnn1d(
  shape: tuple[int, int],
  classes: int,
  *,
  depths: Depths = (1, 2),
  width: Width = 1.0,
  kernel: Edge = 9,
  how: How = BARE,
) -> Backbone:
  """Makes two convolutions along time, then dense 1024-512-C.

  The convolutions have c-32 and 32-64 channels. On series of 128 steps and nine
  sensors with six classes the network has 2,253,958 parameters, as many as
  HARCNN in public code of personalised federated learning, which treats the
  series as images and has 1x9 kernels. An exit is a dense layer on the
  flattened features.

  Args:
    shape: (T, c) of one series.
    classes: C.
    depths: cut depths in use, 1 to 3 (convolutions, then a dense layer).
    width: factor on every layer's width.
    kernel: length of a window in steps, odd.
    how: dtype of matrix products; nothing is normalised.

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
  how = How(how.dtype)
  blocks: dict[str, Block] = {
    f"conv{i}": SeriesBlock(scaled(width, f), kernel, how)
    for i, f in enumerate(FILTERS, start=1)
  }
  for i, features in enumerate(DENSE, start=1):
    blocks[f"dense{i}"] = DenseBlock(scaled(width, features), how)
  return with_exits("cnn1d", shape, blocks, classes, depths=depths, pool=0)
