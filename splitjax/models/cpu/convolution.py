"""Convolution with stride 1 for CPUs, one client after another.

XLA's CPU backend has a fast convolution for the layout [B, H, W, c] * [k, k, c,
f]. It transposes other layouts to this one. But in the body of a loop it
convolves other layouts by naive code
(https://github.com/jax-ml/jax/issues/12868). jax writes the kernel's gradient
in another layout, so this gradient is 9 to 20 times slower in a scan. This
module writes the gradients of the images and of the kernel in the fast layout.

Here `vmap` becomes a loop instead of one grouped convolution. The loop keeps
the images of a client in the cache. Small maps with many channels are convolved
by `winograd`; without it a round of cnn8 took 12 % more CPU time.

If there are few channels, a last axis of channels would leave most of a vector
register empty. So channels become the first axis, and the neighbourhood of a
pixel becomes a column of a matrix. With this layout a round of cnn8 at an
eighth of its width takes 12 % (SplitGP) to 21 % (HARMONY) less time.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax.models.cpu import winograd
from splitjax.models.windows import bilinear, by_xla
from splitjax.types import Array

THIN, NARROW = 8, 16
"""The most input channels and the most filters for which `thin` is true."""

PIXELS = 2048
"""The approximate number of pixels in a part of the batch, see `_in_parts`."""


def in_turn(function: Callable) -> Callable:
  """Makes `vmap` map a function of arrays by a loop."""
  run = jax.custom_batching.custom_vmap(function)

  @run.def_vmap
  def each(*rule):
    out = jax.lax.map(lambda one: run(*one), _with_axis(*rule))
    return out, jax.tree.map(lambda _: True, out)

  return run


def batched(function: Callable) -> Callable:
  """Makes `vmap` call a function once, on arguments with the mapped axis first.

  The function must accept any number of leading axes. In `_columns`, jax's own
  batching rule for `jnp.stack` would put the stacked axis before the mapped
  axis. `reshape` would then have to copy the array, which takes longer than the
  convolution.
  """
  run = jax.custom_batching.custom_vmap(function)
  run.def_vmap(lambda *rule: (run(*_with_axis(*rule)), True))
  return run


def _with_axis(size: int, on: list[bool], *args: Array) -> list[Array]:
  """Adds the mapped axis of a `vmap` to the arguments that lack it.

  The axis comes first and has the length `size`. `on` says which arguments have
  it already.
  """
  return [
    x if is_on else jnp.broadcast_to(x, (size, *x.shape))
    for x, is_on in zip(args, on, strict=True)
  ]


def _forward(x: Array, kernel: Array) -> Array:
  if thin(kernel.shape):
    return _by_columns(x, kernel)
  return _forward_in_turn(x, kernel)


@in_turn
def _forward_in_turn(x: Array, kernel: Array) -> Array:
  if _use_winograd(x, kernel):
    return winograd.convolve(x, kernel)
  return by_xla(x, kernel, kernel.shape[0] // 2)


def _gradients(x: Array, kernel: Array, g: Array) -> tuple[Array, Array]:
  """Computes gradients of x and kernel from the output's gradient g."""
  if thin(kernel.shape):
    return _by_columns(g, _reversed(kernel)), _kernel_by_columns(x, kernel, g)
  return _gradients_in_turn(x, kernel, g)


def _reversed(kernel: Array) -> Array:
  """Makes the kernel whose convolution with g is the gradient of x."""
  return kernel[::-1, ::-1].transpose(0, 1, 3, 2)


@in_turn
def _gradients_in_turn(x: Array, kernel: Array, g: Array):
  if _use_winograd(x, kernel):  # both need the same transform of g
    return jax.vjp(winograd.convolve, x, kernel)[1](g)
  k = len(kernel)
  at_kernel = _in_parts(lambda x, g: _sum_over_samples(x, g, k), x, g)
  return by_xla(g, _reversed(kernel), k // 2), at_kernel


def _by_columns(x: Array, kernel: Array) -> Array:
  """Convolves by one product of the kernel with `_columns`."""
  return _product(x.transpose(3, 0, 1, 2), kernel).transpose(1, 2, 3, 0)


@batched
def _product(x: Array, kernel: Array) -> Array:
  """Maps [..., c, B, H, W] and [..., k, k, c, f] to [..., f, B, H, W]."""
  *n, k, _, c, f = kernel.shape
  rows = kernel.reshape(*n, k * k * c, f).swapaxes(-1, -2)
  return (rows @ _columns(x, k)).reshape(*n, f, *x.shape[-3:])


def _kernel_by_columns(x: Array, kernel: Array, g: Array) -> Array:
  """Computes the kernel's gradient by one product with `_columns`."""
  x = x.transpose(3, 0, 1, 2)
  return _column_gradient(len(kernel))(x, g).reshape(kernel.shape)


@functools.cache
def _column_gradient(k: int) -> Callable:
  """Builds the function (x, g) -> gradient of a flattened k x k kernel.

  It maps [..., c, B, H, W] and [..., B, H, W, f] to [..., k*k*c, f].
  """

  @batched
  def gradient(x, g):
    return _columns(x, k) @ g.reshape(*g.shape[:-4], -1, g.shape[-1])

  return gradient


def _columns(x: Array, k: int) -> Array:
  """Stacks neighbourhoods: [..., c, B, H, W] -> [..., k*k*c, B*H*W]."""
  *n, c, _, rows, columns = x.shape
  edge = k // 2, k // 2
  x = jnp.pad(x, ((0, 0),) * (x.ndim - 2) + (edge, edge))
  shifted = [
    x[..., i : i + rows, j : j + columns] for i in range(k) for j in range(k)
  ]
  return jnp.stack(shifted, len(n)).reshape(*n, k * k * c, -1)


def _in_parts(total: Callable, x: Array, g: Array) -> Array:
  """Computes total(x, g), a sum over samples, by adding up totals of parts.

  x and g are [B, H, W, ...]. A part of the batch fits into the cache. For
  14x14 maps of 50 samples, one call for the whole batch takes twice as long.
  """
  batch, *edges, _ = x.shape
  pixels = math.prod(edges)
  if not isinstance(batch, int) or batch * pixels <= PIXELS:
    return total(x, g)  # an export has a symbol for the batch
  count = -(-batch * pixels // PIXELS)
  # Up to a quarter more parts, if equal ones: a rest would be compiled too.
  more = range(count, count + count // 4 + 1)
  count = next((n for n in more if batch % n == 0), count)
  size = -(-batch // count)
  count = batch // size
  parts = [a[: count * size].reshape(count, size, *a.shape[1:]) for a in (x, g)]
  out = jax.eval_shape(total, x, g)
  # Many sums of 16 bits would lose digits.
  start = jnp.zeros(out.shape, jnp.promote_types(out.dtype, jnp.float32))
  if batch % size:
    start += total(x[count * size :], g[count * size :])
  whole = jax.lax.scan(lambda s, p: (s + total(*p), None), start, parts)[0]
  return whole.astype(out.dtype)


def _sum_over_samples(x: Array, g: Array, k: int) -> Array:
  """Computes the kernel's gradient by one convolution of x and g.

  It convolves x with g, summing over samples in place of channels. If the
  kernel has more than 3x3 pixels and x has at least 8 channels, it convolves g
  with x instead; a round of cnn4 (5x5) then takes a tenth less time.
  """
  if k > 3 and x.shape[-1] >= 8:
    out = by_xla(g.transpose(3, 1, 2, 0), x.transpose(1, 2, 0, 3), k // 2)
    return out[:, ::-1, ::-1].transpose(1, 2, 3, 0)
  out = by_xla(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), k // 2)
  return out.transpose(1, 2, 0, 3)


def thin(kernel: tuple[int, ...]) -> bool:
  """Tells whether channels are few enough for products with `_columns`."""
  return kernel[2] <= THIN and kernel[3] <= NARROW


def _use_winograd(x, kernel) -> bool:
  """Tells whether to use `winograd`, which is too inexact in bfloat16."""
  return x.dtype != jnp.bfloat16 and winograd.suits(x.shape, kernel.shape)


_convolve = bilinear(_forward, _gradients)


def conv2d(x: Array, kernel: Array) -> Array:
  """Convolves images, with zero padding that keeps the size.

  Args:
    x: [B, H, W, c] float.
    kernel: [k, k, c, f], x's dtype, k odd.

  Returns:
    [B, H, W, f], x's dtype. Reverse-mode derivatives of any order exist;
    jax.jvp is not defined.
  """
  return _convolve(x, kernel)
