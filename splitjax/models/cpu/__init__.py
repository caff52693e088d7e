"""Kernels for CPUs: `conv2d`, `dense` and `max_pool`.

Functions of `models.convolution` and `models.layers` call these kernels where
that is faster; results stay the same. The kernels have custom gradients;
jax.jvp is not defined.
"""

import functools

import jax
import jax.numpy as jnp

from splitjax.models.cpu.convolution import conv2d as conv2d
from splitjax.types import Array


@jax.custom_vjp
def dense(x: Array, kernel: Array) -> Array:
  """Multiplies x [B, c] by a large kernel [c, f], transposing x in memory."""
  return _transposed_product(x, kernel)[0]


def _transposed_product(x: Array, kernel: Array) -> tuple[Array, tuple]:
  """Computes the product, and the residuals that its gradients need."""
  # Without a barrier XLA would undo the transposition.
  transposed = jax.lax.optimization_barrier(x.T)
  out = jax.lax.dot_general(transposed, kernel, (((0,), (0,)), ((), ())))
  return out, (transposed, kernel)


dense.defvjp(
  _transposed_product, lambda saved, g: (g @ saved[1].T, saved[0] @ g)
)


def max_pool(x: Array) -> Array:
  """Computes `convolution.max_pool`, saving positions for the backward pass."""
  return _max_pool(x.shape[1:3], x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max_pool(edges: tuple[int, int], x: Array) -> Array:
  return _largest(x)[0]


def _largest(x: Array) -> tuple[Array, Array]:
  """Finds each window's maximum and its position there, 0 to 3 as int8."""
  b, h, w, c = x.shape
  h, w = h // 2, w // 2
  x = x[:, : 2 * h, : 2 * w].reshape(b, h, 2, w, 2, c)
  rows = [(x[:, :, i, :, 0], x[:, :, i, :, 1]) for i in range(2)]
  left = [_is_larger(*row) for row in rows]
  high, low = (
    jnp.where(on, a, b) for on, (a, b) in zip(left, rows, strict=True)
  )
  top = _is_larger(high, low)
  first = [jnp.where(on, 0, 1) for on in left]
  place = jnp.where(top, first[0], 2 + first[1])
  return jnp.where(top, high, low), place.astype(jnp.int8)


def _is_larger(a: Array, b: Array) -> Array:
  """Tells whether `a` becomes the maximum: if a >= b, or if a is NaN."""
  return (a >= b) | (a != a)


def _to_largest(edges: tuple[int, int], place: Array, g: Array) -> tuple[Array]:
  """Computes the images' gradient: g at each maximum, 0 elsewhere."""
  b, h, w, c = g.shape
  four = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
  on = place[:, :, None, :, None] == four
  x = jnp.where(on, g[:, :, None, :, None], 0).reshape(b, 2 * h, 2 * w, c)
  odd = ((0, edge - 2 * n) for edge, n in zip(edges, (h, w), strict=True))
  # The barrier: x is computed once, and not in every operation that reads it.
  return (jax.lax.optimization_barrier(jnp.pad(x, ((0, 0), *odd, (0, 0)))),)


_max_pool.defvjp(lambda edges, x: _largest(x), _to_largest)
