"""Windows of images, and XLA's convolution with a faster kernel gradient.

jax writes the gradient of a kernel as a convolution whose window is the whole
image. If clients have their own kernels, this gradient becomes a grouped
convolution with such large windows. In this way cuDNN would compute the
gradient of a dense kernel on an H100, and XLA the gradient of a depthwise
kernel on a TPU. In these two cases `native` computes the gradient by products
instead.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from splitjax.models import target
from splitjax.types import Array

Padding = Literal["same", "valid"]


def margin(k: int, padding: Padding) -> int:
  """Counts the zeros that padding adds on every side for k x k kernels."""
  return k // 2 if padding == "same" else 0


def padded(x: Array, margin: int, fill: float = 0.0) -> Array:
  """Pads rows and columns of images [B, H, W, c]."""
  edge = (margin, margin)
  return jnp.pad(x, ((0, 0), edge, edge, (0, 0)), constant_values=fill)


def patches(
  x: Array, k: int, stride: int = 1, padding: Padding = "same"
) -> Array:
  """Gathers the k x k neighbourhood of each pixel; it is 0 beyond the border.

  [B, H, W, c] becomes [B, H', W', k*k*c], in the order of a flattened kernel
  [k, k, c, f]. k is odd; stride and padding are as in `convolution.conv2d`.
  Images are shifted along rows, then along columns: 2 k copies instead of
  k x k.
  """
  x = padded(x, margin(k, padding))
  for axis in (2, 1):
    stop = x.shape[axis] - k + 1
    views = [
      jax.lax.slice_in_dim(x, i, i + stop, stride, axis) for i in range(k)
    ]
    x = jnp.concatenate(views, axis=-1)
  return x


def shifted(x: Array, k: int, stride: int, margin: int) -> list[Array]:
  """Lists k*k shifted images [B, H', W', c], one per place in a window."""
  batch, height, width, channels = x.shape
  x = padded(x, margin)
  rows, columns = (n + 2 * margin - k for n in (height, width))

  def view(i, j):
    stop = (batch, i + rows + 1, j + columns + 1, channels)
    return jax.lax.slice(x, (0, i, j, 0), stop, (1, stride, stride, 1))

  return [view(i, j) for i in range(k) for j in range(k)]


def by_xla(
  x: Array, kernel: Array, margin: int, stride: int = 1, groups: int = 1
) -> Array:
  """Convolves [B, H, W, c] * [k, k, c / groups, f] with a margin of zeros."""
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    (stride, stride),
    ((margin, margin), (margin, margin)),
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    feature_group_count=groups,
  )


def native(
  x: Array, kernel: Array, margin: int, stride: int, groups: int = 1
) -> Array:
  """Convolves like `by_xla`, but computes the kernel's gradient by products.

  AT_KERNEL says for which convolutions it does so; others are left to `by_xla`.
  `groups` is 1, or the number of channels for a depthwise convolution.
  """
  kind = "dense" if groups == 1 else "depthwise"
  if AT_KERNEL.get(target.current().platform) != kind:
    return by_xla(x, kernel, margin, stride, groups)
  return _native(margin, stride, groups)(x, kernel)


AT_KERNEL = {"gpu": "dense", "tpu": "depthwise"}
"""Platform -> the convolutions whose kernel gradient is computed by products.
Other gradients are left to XLA: a TPU's compiler turns the groups of dense
convolutions into an axis, and cuDNN has its own code for the gradients of
depthwise convolutions."""


@functools.cache
def _native(margin: int, stride: int, groups: int) -> Callable:
  at_kernel = _depthwise_kernel if groups > 1 else _dense_kernel

  def forward(x, kernel):
    return by_xla(x, kernel, margin, stride, groups)

  def gradients(x, kernel, g):
    (at_x,) = jax.vjp(lambda x: forward(x, kernel), x)[1](g)
    found = at_kernel(len(kernel), margin, stride)(x, g)
    return at_x, found.astype(kernel.dtype)

  return bilinear(forward, gradients)


@functools.cache
def _dense_kernel(k: int, margin: int, stride: int) -> Callable:
  """Builds the function (x, g) -> gradient of the kernel [k, k, c, f].

  Under `vmap` the gradient is one product for all clients; otherwise it is
  XLA's convolution.
  """
  padding: Padding = "same" if margin else "valid"

  @jax.custom_batching.custom_vmap
  def alone(x, g):
    kernel = jnp.zeros((k, k, x.shape[-1], g.shape[-1]), x.dtype)
    return jax.vjp(lambda w: by_xla(x, w, margin, stride), kernel)[1](g)[0]

  def product(x, g):
    columns = patches(x, k, stride, padding)
    flat = jnp.tensordot(columns, g, ((0, 1, 2), (0, 1, 2)))
    return flat.reshape(k, k, x.shape[-1], g.shape[-1])

  @alone.def_vmap
  def _(size, on, *given):
    del size
    axes: Any = tuple(0 if is_on else None for is_on in on)
    return jax.vmap(product, axes)(*given), True

  return alone


@functools.cache
def _depthwise_kernel(k: int, margin: int, stride: int) -> Callable:
  """Builds the function (x, g) -> gradient of the kernel [k, k, 1, c].

  It sums over samples and pixels, once for each of k x k shifted images.
  """

  def sums(x, g):
    g = g.astype(float)
    views = shifted(x, k, stride, margin)
    each = [(view.astype(float) * g).sum((0, 1, 2)) for view in views]
    return jnp.stack(each).reshape(k, k, 1, -1)

  return sums


def bilinear(forward: Callable, gradients: Callable) -> Callable:
  """Gives custom gradients to a function that is linear in both arguments.

  Args:
    forward: (x, w) -> y, linear in x and in w.
    gradients: (x, w, g) -> the gradients of <g, y> with respect to x and to w.

  Returns:
    `forward` with reverse-mode derivatives of any order; jax.jvp is not
    defined.
  """

  @jax.custom_vjp
  def apply(x: Array, w: Array) -> Array:
    return forward(x, w)

  @jax.custom_vjp
  def pull(x: Array, w: Array, g: Array) -> tuple[Array, Array]:
    return gradients(x, w, g)

  # <g, y> is linear in each of x, w and g, so the gradients of its gradients
  # are functions of the same kind.
  apply.defvjp(lambda x, w: (apply(x, w), (x, w)), lambda xw, g: pull(*xw, g))

  def pull_twice(xwg, at):
    (x, w, g), (at_x, at_w) = xwg, at
    return (
      pull(x, at_w, g)[0],
      pull(at_x, w, g)[1],
      apply(at_x, w) + apply(x, at_w),
    )

  pull.defvjp(lambda *xwg: (pull(*xwg), xwg), pull_twice)
  return apply
