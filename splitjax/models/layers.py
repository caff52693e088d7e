"""The linen modules of the backbones; other packages use only `Block`.

Normalisation layers have flax's names (BatchNorm_0, GroupNorm_0, LayerNorm_0).
A leaf belongs to a normalisation layer if and only if a key on its path
contains "Norm_".
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn

from splitjax.models import conv, pooling
from splitjax.models.conv import Padding
from splitjax.models.options import Dtype, How, array_dtype
from splitjax.types import Array

Activation = Literal["none", "relu", "relu6"]
Pooling = Literal["none", "max", "max 3x3", "mean", "max, mean"]

he_normal = nn.initializers.he_normal()


class Conv(nn.Module):
  """Convolution by `conv.conv2d`, with He's initialisation.

  Attributes:
    features: output channels.
    kernel: edge length, odd.
    stride: the step of the windows.
    padding: "same" or "valid", see `conv.conv2d`.
    bias: whether a bias is added.
    how: dtype.
  """

  features: int
  kernel: int = 3
  stride: int = 1
  padding: Padding = "same"
  bias: bool = True
  how: How = How()

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features]."""
    shape = (self.kernel, self.kernel, x.shape[-1], self.features)
    kernel = self.param("kernel", he_normal, shape)
    dtype = array_dtype(self.how.dtype)
    x, kernel = x.astype(dtype), kernel.astype(dtype)
    out = conv.conv2d(x, kernel, stride=self.stride, padding=self.padding)
    if self.bias:
      bias = self.param("bias", nn.initializers.zeros, (self.features,))
      out = biased(out, bias)
    return out


class Dense(nn.Module):
  """A matrix product and a bias.

  Attributes:
    features: size of the last output axis, or sizes of several last axes.
    axes: the number of last input axes to sum over.
    dtype: dtype of the product; the bias is added in the default float.
    kernel_init: initialiser of the kernel.
  """

  features: int | tuple[int, ...]
  axes: int = 1
  dtype: Dtype = "float32"
  kernel_init: Callable = he_normal

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps [B, ..., c] to [B, ..., features]."""
    out = (
      self.features if isinstance(self.features, tuple) else (self.features,)
    )
    kernel = self.param("kernel", self.kernel_init, x.shape[-self.axes :] + out)
    bias = self.param("bias", nn.initializers.zeros, out)
    dtype = array_dtype(self.dtype)
    x, kernel = x.astype(dtype), kernel.astype(dtype)
    return biased(jnp.tensordot(x, kernel, self.axes), bias)


def biased(x: Array, bias: Array) -> Array:
  """Adds a bias in the default float; the result has x's dtype.

  The bias's gradient sums over samples and pixels. That is too many terms for
  bfloat16, in which a sum of ones would stop at 256.
  """
  return (x.astype(float) + bias).astype(x.dtype)


class ConvBlock(nn.Module):
  """Convolution, then normalisation, activation and pool as configured.

  Attributes:
    features: output channels.
    kernel: edge length, odd.
    stride: stride of the convolution.
    bias: whether the convolution has a bias.
    act: "relu", "relu6" (at most 6) or "none".
    pool: a key of POOLS; "mean" and "max, mean" return [B, features].
    edge: smaller images are first put in the middle of edge x edge zeros.
    how: dtype, normalisation.
  """

  features: int
  kernel: int = 3
  stride: int = 1
  bias: bool = True
  act: Activation = "relu"
  pool: Pooling = "none"
  edge: int = 0
  how: How = How()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features] or [B, features]."""
    if self.edge > min(x.shape[1:3]):
      lack = [max(self.edge - n, 0) for n in x.shape[1:3]]
      x = jnp.pad(x, ((0, 0), *((n // 2, n - n // 2) for n in lack), (0, 0)))
    layer = Conv(
      self.features, self.kernel, self.stride, bias=self.bias, how=self.how
    )
    x = normalise(layer(x), train, real, self.how)
    pool, act = POOLS[self.pool], ACTIVATIONS[self.act]
    # A monotone activation commutes with a maximum, and so does its gradient;
    # after the pool it is computed of a quarter of the values.
    return act(pool(x)) if self.pool in MAXIMA else pool(act(x))


class Pool(nn.Module):
  """A pool as a block of its own; cut depths count it like any other block.

  Attributes:
    kind: a key of POOLS; "none" returns its input.
  """

  kind: Pooling

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', c], or to [B, c] if it takes a mean."""
    del train, real
    return POOLS[self.kind](x)


class Chain(nn.Module):
  """One block that runs several blocks in a row, without cuts between them.

  Attributes:
    parts: the blocks, in order, each a linen module.
  """

  parts: tuple[Any, ...]

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, ...]."""
    for part in self.parts:
      x = part(x, train, real)
    return x


class DenseBlock(nn.Module):
  """Dense layer on the flattened input, normalisation as configured, ReLU.

  Attributes:
    features: output width.
    how: dtype, normalisation.
  """

  features: int
  how: How = How()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, features]."""
    layer = Dense(self.features, dtype=self.how.dtype)
    return nn.relu(normalise(layer(flatten(x)), train, real, self.how))


def normalise(x: Array, train: bool, real: Array, how: How) -> Array:
  """Normalises as `how.norm` says, with a scale and a shift for each channel.

  Call it inside a module. Statistics are computed in the default float,
  whatever the dtype.

  "batch" is batch norm (Ioffe and Szegedy 2015), eps 1e-5. In training it uses
  each channel's mean and biased variance over the batch's real samples, at
  inference the running mean and variance. A training pass moves the running
  statistics a tenth of the way towards the batch's. A batch with fewer than two
  values per channel (real samples times pixels) has no variance and leaves the
  running statistics unchanged; PyTorch raises an error there. PyTorch's running
  variance is unbiased, n / (n - 1) times as large.

  "group" is group norm (Wu and He 2018), eps 1e-5. It normalises each sample by
  itself. The number of groups is the largest divisor of the number of channels
  that is at most 32. Group norm has the same parameters as batch norm and no
  running statistics. With up to 32 channels every channel is a group, so a 1x1
  map is normalised to 0 and only the bias is left: do not use group norm for
  narrow networks on small images.

  Args:
    x: [B, ..., c].
    train: as for a Block.
    real: [B] bool.
    how: dtype of the result, and kind of norm; without one x is unchanged.
  """
  if how.norm is None:
    return x
  dtypes = {"dtype": array_dtype(how.dtype), "param_dtype": float}
  if how.norm == "group":
    groups = max(n for n in range(1, 33) if x.shape[-1] % n == 0)
    return nn.GroupNorm(groups, epsilon=1e-5, **dtypes)(x)
  values = real.sum() * math.prod(x.shape[1:-1])
  momentum: Any = jnp.where(values < 2, 1.0, 0.9)  # flax is typed for a float
  norm = nn.BatchNorm(
    use_running_average=not train, momentum=momentum, epsilon=1e-5, **dtypes
  )
  # A batch of padding alone counts all its samples: the mean of no sample is
  # NaN, and masking the step afterwards would not remove it.
  counts = (real | ~real.any()).reshape(-1, *[1] * (x.ndim - 1))
  return norm(x, mask=counts if train else None)


def mean_pool(x: Array) -> Array:
  """Averages over the image: [B, H, W, c] -> [B, c]."""
  return flatten(pooling.adaptive_mean_pool(x, 1))


def flatten(x: Array) -> Array:
  """Flattens every sample: [B, ...] -> [B, D]."""
  return jnp.reshape(x, (x.shape[0], -1))


ACTIVATIONS = {"none": lambda x: x, "relu": nn.relu, "relu6": nn.relu6}
MAXIMA = ("max", "max 3x3")
"""The keys of POOLS whose output is the maximum of each window."""

POOLS = {
  "none": lambda x: x,
  "max": pooling.max_pool,
  "max 3x3": pooling.max_pool_3x3,
  "mean": mean_pool,
  "max, mean": lambda x: mean_pool(pooling.max_pool(x)),
}
