"""Linen modules that the backbones are made of; the engine sees Block alone."""

import jax.numpy as jnp
from flax import linen as nn

from splitjax import ops
from splitjax.types import Array

he_normal = nn.initializers.he_normal()


class Conv(nn.Module):
  """Convolution with bias and stride 1, through `ops.conv2d`.

  Attributes:
    features: output channels.
    kernel: edge length, odd.
    conv: formulation, see `ops.conv2d`.
  """

  features: int
  kernel: int = 3
  conv: ops.Conv = "auto"

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps [B, H, W, c] to [B, H, W, features]."""
    shape = (self.kernel, self.kernel, x.shape[-1], self.features)
    kernel = self.param("kernel", he_normal, shape)
    bias = self.param("bias", nn.initializers.zeros, (self.features,))
    return ops.conv2d(x, kernel, conv=self.conv) + bias


class ConvBlock(nn.Module):
  """Convolution, ReLU and, where asked, a 2 x 2 max-pool.

  Attributes:
    features: output channels.
    pool: whether a max-pool follows.
    conv: formulation, see `ops.conv2d`.
  """

  features: int
  pool: bool = False
  conv: ops.Conv = "auto"

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features]."""
    del train, real
    x = nn.relu(Conv(self.features, conv=self.conv)(x))
    return ops.max_pool(x) if self.pool else x


class DenseBlock(nn.Module):
  """Dense layer on the flattened input, batch norm where asked, ReLU.

  Attributes:
    features: output width.
    batch_norm: normalise before the ReLU, over the real samples of the batch.
  """

  features: int
  batch_norm: bool = False

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, features]."""
    x = nn.Dense(self.features, kernel_init=he_normal)(flatten(x))
    if self.batch_norm:
      norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
      x = norm(x, mask=real[:, None] if train else None)
    return nn.relu(x)


class Classifier(nn.Module):
  """Logits: an optional adaptive mean pool, flatten, one dense layer.

  Attributes:
    classes: C.
    pool: edge length of the pooled image; 0 for no pool.
  """

  classes: int
  pool: int = 0

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, C]."""
    del train, real
    if self.pool:
      x = ops.adaptive_mean_pool(x, self.pool)
    return nn.Dense(self.classes, kernel_init=he_normal)(flatten(x))


def flatten(x: Array) -> Array:
  """Lays every sample flat: [B, ...] -> [B, D]."""
  return jnp.reshape(x, (x.shape[0], -1))
