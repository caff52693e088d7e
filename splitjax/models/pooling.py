"""Pools of images, with PyTorch's windows and gradients."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.models.conv import padded


def max_pool(x: Array) -> Array:
  """Takes the maximum over 2 x 2 windows, stride 2.

  [B, H, W, c] becomes [B, H // 2, W // 2, c]; an odd last row or column is left
  out. The first of equal maxima receives the gradient, as in PyTorch.
  """
  b, h, w, c = x.shape
  h, w = h // 2, w // 2
  # Maxima within rows, then over rows: this too keeps the first of equal ones.
  x = x[:, : 2 * h, : 2 * w].reshape(b, 2 * h, w, 2, c)
  x = _larger(x[..., 0, :], x[..., 1, :]).reshape(b, h, 2, w, c)
  return _larger(x[:, :, 0], x[:, :, 1])


def max_pool_3x3(x: Array) -> Array:
  """Takes the maximum over 3 x 3 windows, stride 2, padding 1.

  [B, H, W, c] becomes [B, ceil(H / 2), ceil(W / 2), c]. Padding is never the
  maximum, and the first of equal maxima receives the gradient, as in PyTorch.
  """
  x = padded(x, 1, fill=-jnp.inf)
  for axis in (2, 1):  # as in `max_pool`
    stop = x.shape[axis] - 2
    x = functools.reduce(
      _larger,
      (jax.lax.slice_in_dim(x, i, i + stop, 2, axis) for i in range(3)),
    )
  return x


def _larger(a: Array, b: Array) -> Array:
  """Takes the larger of a and b, element by element; NaN if one of them is NaN.

  If they are equal, it takes `a`, which then gets the gradient. jax's `max`
  is not used: its gradient compares the inputs with the maximum. If XLA
  computes the inputs twice, in two fusions with different rounding, no input
  equals the maximum and the gradient is 0 / 0.
  """
  return jnp.where((a >= b) | (a != a), a, b)


def adaptive_mean_pool(x: Array, size: int) -> Array:
  """Averages images over a grid of windows: [B, H, W, c] -> [B, size, size, c].

  Window i of an axis of length n starts at floor(i n / size) and ends before
  ceil((i + 1) n / size), as in PyTorch. The mean is computed in the default
  float; the result has x's dtype.
  """
  _, h, w, _ = x.shape
  if (h, w) == (size, size):
    return x
  if size == 1:
    return x.mean(axis=(1, 2), keepdims=True)
  pooled = x.astype(float)
  for axis, n in ((1, h), (2, w)):
    bounds = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
    parts = (jax.lax.slice_in_dim(pooled, *b, axis=axis) for b in bounds)
    pooled = jnp.stack([part.mean(axis) for part in parts], axis)
  return pooled.astype(x.dtype)
