"""The linen modules of the backbones, and what their options have in common.

Normalisation layers have flax's names (BatchNorm_0, GroupNorm_0, LayerNorm_0).
A leaf belongs to a normalisation layer if and only if a key on its path
contains "Norm_".
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from splitjax.fields import Bounds
from splitjax.models import conv
from splitjax.models.network import Backbone, Block

# Beyond these bounds array sizes overflow, or tracing takes too long to count
# the parameters.
Width = Annotated[float, Bounds(above=0, at_most=100)]
Edge = Annotated[int, Bounds(at_least=1, at_most=10**6)]
Length = Annotated[int, Bounds(at_least=2, at_most=1000)]
Counts = Annotated[tuple[int, ...], Bounds(at_least=1, at_most=250)]
Depths = Annotated[tuple[int, ...], Bounds(at_least=1)]

Norm = Literal["batch", "group"]
Activation = Literal["none", "relu", "relu6"]
_Pooling = Literal["none", "max", "max 3x3", "mean", "max, mean"]

he_normal = nn.initializers.he_normal()


@dataclasses.dataclass(frozen=True)
class Style:
  """How all blocks of a network compute; a run sets it, no option of a config.

  Convolutions, dense layers and outputs of blocks have the dtype. Parameters,
  statistics and classifiers have the default float, in which normalisation,
  mean pools and bias sums are computed. The norm is that of `normalise`.
  """

  dtype: Literal["float32", "bfloat16"] = "float32"
  norm: Norm | None = None

  @property
  def array_dtype(self) -> Any:
    """Returns the dtype of arrays; "float32" is jax's default float."""
    return jnp.result_type(float) if self.dtype == "float32" else self.dtype

  def cast(self, *arrays: Array) -> list[Array]:
    """Converts the operands of a product."""
    return [x.astype(self.array_dtype) for x in arrays]


BARE = Style()
NORMED = Style(norm="batch")
"""What factories take without a run."""


class Conv(nn.Module):
  """Convolution by `conv.conv2d` with a kernel of an odd edge, drawn by He."""

  features: int
  kernel: int = 3
  stride: int = 1
  bias: bool = True
  style: Style = Style()

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features]."""
    shape = (self.kernel, self.kernel, x.shape[-1], self.features)
    kernel = self.param("kernel", he_normal, shape)
    out = conv.conv2d(*self.style.cast(x, kernel), stride=self.stride)
    if self.bias:
      bias = self.param("bias", nn.initializers.zeros, (self.features,))
      out = _biased(out, bias)
    return out


class Dense(nn.Module):
  """A matrix product over the last `axes` axes, and a bias.

  `features` is the size of the last output axis, or sizes of several.
  """

  features: int | tuple[int, ...]
  axes: int = 1
  style: Style = Style()
  kernel_init: Callable = he_normal

  @nn.compact
  def __call__(self, x: Array) -> Array:
    """Maps [B, ..., c] to [B, ..., features]."""
    sizes = self.features
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    shape = x.shape[-self.axes :] + sizes
    kernel = self.param("kernel", self.kernel_init, shape)
    bias = self.param("bias", nn.initializers.zeros, sizes)
    x, kernel = self.style.cast(x, kernel)
    return _biased(jnp.tensordot(x, kernel, self.axes), bias)


def _biased(x: Array, bias: Array) -> Array:
  """Adds a bias in the default float; the result has x's dtype.

  The bias's gradient sums over samples and pixels. That is too many terms for
  bfloat16, in which a sum of ones would stop at 256.
  """
  return (x.astype(float) + bias).astype(x.dtype)


class ConvBlock(nn.Module):
  """Convolution, then normalisation, activation and pool as configured.

  Pools that end with a mean return [B, features]. Images smaller than `edge`
  are first put in the middle of edge x edge zeros.
  """

  features: int
  kernel: int = 3
  stride: int = 1
  bias: bool = True
  act: Activation = "relu"
  pool: _Pooling = "none"
  edge: int = 0
  style: Style = Style()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', features] or [B, features]."""
    if self.edge > min(x.shape[1:3]):
      lack = [max(self.edge - n, 0) for n in x.shape[1:3]]
      x = jnp.pad(x, ((0, 0), *((n // 2, n - n // 2) for n in lack), (0, 0)))
    layer = Conv(self.features, self.kernel, self.stride, self.bias, self.style)
    x = normalise(layer(x), train, real, self.style)
    pool = _POOLS[self.pool]
    act = ACTIVATIONS[self.act]
    # A monotone activation commutes with a maximum, and so does its gradient;
    # after the pool it is computed of a quarter of the values.
    return act(pool(x)) if self.pool in _MAXIMA else pool(act(x))


class Pool(nn.Module):
  """A pool as a block, which cut depths count."""

  kind: _Pooling

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, H', W', c], or to [B, c] if it takes a mean."""
    del train, real
    return _POOLS[self.kind](x)


class Chain(nn.Module):
  """One block that runs several blocks in a row, without cuts between them."""

  parts: tuple[Any, ...]

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, ...]."""
    for part in self.parts:
      x = part(x, train, real)
    return x


class DenseBlock(nn.Module):
  """Dense layer on the flattened input, normalisation as configured, ReLU."""

  features: int
  style: Style = Style()

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to [B, features]."""
    layer = Dense(self.features, style=self.style)
    return nn.relu(normalise(layer(flatten(x)), train, real, self.style))


def normalise(x: Array, train: bool, real: Array, style: Style) -> Array:
  """Normalises as `style.norm` says, with a scale and a shift for each channel.

  Call it inside a module. Statistics are computed in the default float,
  whatever the dtype.

  "batch" is batch norm (Ioffe and Szegedy 2015), eps 1e-5. In training it uses
  each channel's mean and biased variance over the batch's real samples, and
  moves the running statistics, which it uses at inference, by a tenth. A batch
  with fewer than two values per channel (real samples times pixels) has no
  variance and moves nothing; PyTorch raises an error there. PyTorch's running
  variance is unbiased, n / (n - 1) times as large.

  "group" is group norm (Wu and He 2018), eps 1e-5, of each sample by itself,
  without statistics. The number of groups is the largest divisor of the number
  of channels up to 32; up to 32 channels each is a group, so a 1x1 map becomes
  0: do not use group norm for narrow networks on small images.

  x is [B, ..., c]; `train` and `real` are as for a Block. None changes nothing.
  """
  if style.norm is None:
    return x
  dtypes = {"dtype": style.array_dtype, "param_dtype": float}
  if style.norm == "group":
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


class Classifier(nn.Module):
  """A mean pool to pool x pool (0: none), a flatten and a dense layer."""

  classes: int
  pool: int = 0

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to logits [B, C], in the default float."""
    del train, real
    x = x.astype(float)
    if self.pool and x.ndim == 4:
      x = conv.adaptive_mean_pool(x, self.pool)
    return Dense(self.classes)(flatten(x))


def with_exits(
  name: str, shape: tuple[int, ...], blocks: dict[str, Block], classes: int, *,
  depths: tuple[int, ...], pool: int,
) -> Backbone:  # fmt: skip
  """Makes a network from blocks; its head and exits are of type `Classifier`.

  An exit pools images to pool x pool. The head does not pool: the last block
  returns the embedding [B, D], which methods send and align.
  """
  exits = {depth: Classifier(classes, pool) for depth in depths}
  return Backbone(
    name=name, shape=shape, classes=classes,
    blocks=blocks, exits=exits, head=Classifier(classes),
  )  # fmt: skip


def mean_pool(x: Array) -> Array:
  """Averages over the image: [B, H, W, c] -> [B, c]."""
  return flatten(conv.adaptive_mean_pool(x, 1))


def flatten(x: Array) -> Array:
  """Flattens every sample: [B, ...] -> [B, D]."""
  return jnp.reshape(x, (x.shape[0], -1))


ACTIVATIONS = {"none": lambda x: x, "relu": nn.relu, "relu6": nn.relu6}
_MAXIMA = ("max", "max 3x3")
"""The keys of POOLS whose output is the maximum of each window."""

_POOLS = {
  "none": lambda x: x,
  "max": conv.max_pool,
  "max 3x3": conv.max_pool_3x3,
  "mean": mean_pool,
  "max, mean": lambda x: mean_pool(conv.max_pool(x)),
}
