"""Convolution with stride 1, one client after another, for CPUs.

XLA's CPU backend has a fast convolution for [B, H, W, c] * [k, k, c, f]. It
brings others into this form first, but not in the body of a loop
(https://github.com/jax-ml/jax/issues/12868), where they drop to a naive kernel:
so the kernel's gradient, which jax writes with other axes, is 9 to 20 times too
slow in a scan. Here both gradients are written in that form. And what `vmap`
would make one grouped convolution runs in turn, which keeps a client's images
in the cache. Small maps of many channels are left to `winograd`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax.models import winograd
from splitjax.types import Array


def in_turn(function: Callable) -> Callable:
  """The same function of arrays; under `vmap` a loop instead of one batch."""
  run = jax.custom_batching.custom_vmap(function)

  @run.def_vmap
  def each(size, batched, *args):
    own = tuple(
      x if on else jnp.broadcast_to(x, (size, *x.shape))
      for x, on in zip(args, batched, strict=True)
    )
    return jax.lax.map(lambda one: run(*one), own), True

  return run


def _product(x: Array, kernel: Array, margin: int) -> Array:
  return jax.lax.conv_general_dilated(
    x,
    kernel,
    (1, 1),
    ((margin, margin), (margin, margin)),
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )


@in_turn
def _forward(x: Array, kernel: Array) -> Array:
  if _fewer(x, kernel):
    return winograd.convolve(x, kernel)
  return _product(x, kernel, kernel.shape[0] // 2)


@in_turn
def _input_gradient(g: Array, kernel: Array) -> Array:
  x = jax.ShapeDtypeStruct((*g.shape[:3], kernel.shape[2]), g.dtype)
  if _fewer(x, kernel):
    return jax.linear_transpose(lambda x: winograd.convolve(x, kernel), x)(g)[0]
  turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
  return _product(g, turned, kernel.shape[0] // 2)


@functools.cache
def _kernel_gradient(k: int) -> Callable:
  """(x, g) -> [k, k, c, f]."""

  @in_turn
  def gradient(x, g):
    kernel = jax.ShapeDtypeStruct((k, k, x.shape[-1], g.shape[-1]), g.dtype)
    if _fewer(x, kernel):
      pull = jax.linear_transpose(lambda w: winograd.convolve(x, w), kernel)
      return pull(g)[0]
    # Channels are the batch, and the sum is over samples.
    out = _product(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), k // 2)
    return out.transpose(1, 2, 0, 3)

  return gradient


def _fewer(x, kernel) -> bool:
  """Whether Winograd's form is taken; in 16 bits it would be too coarse."""
  return x.dtype != jnp.bfloat16 and winograd.suits(x.shape, kernel.shape)


@jax.custom_vjp
def convolve(x: Array, kernel: Array) -> Array:
  """Convolves with zero padding that keeps the size.

  Args:
    x: [B, H, W, c] float.
    kernel: [k, k, c, f], x's dtype, k odd.

  Returns:
    [B, H, W, f], x's dtype. It may be differentiated any number of times, in
    reverse mode (jax.jvp is not defined).
  """
  return _forward(x, kernel)


@jax.custom_vjp
def _pull_input(g, kernel):
  return _input_gradient(g, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _pull_kernel(k, x, g):
  return _kernel_gradient(k)(x, g)


# <g, conv(x, w)> is linear in each of the three, and each of these functions is
# its gradient by one: their own gradients are the other two.
convolve.defvjp(
  lambda x, w: (convolve(x, w), (x, w)),
  lambda xw, g: (_pull_input(g, xw[1]), _pull_kernel(len(xw[1]), xw[0], g)),
)
_pull_input.defvjp(
  lambda g, w: (_pull_input(g, w), (g, w)),
  lambda gw, x: (convolve(x, gw[1]), _pull_kernel(len(gw[1]), x, gw[0])),
)
_pull_kernel.defvjp(
  lambda k, x, g: (_pull_kernel(k, x, g), (x, g)),
  lambda k, xg, w: (_pull_input(xg[1], w), convolve(xg[0], w)),
)
