"""Winograd's convolution of small maps: fewer products, as matrix products.

A 3x3 convolution whose outputs are computed in tiles of m x m needs (m + 2)^2
products per channel and tile, not 9 m^2. On maps of up to 8 pixels along an
edge there are so few tiles that a transform of the whole map is one matrix
product too. Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
CVPR 2016; matrices after Toom and Cook.

The error is a few times that of a direct sum: on normal numbers and kernels of
He's scale 2e-6 in place of 5e-7, root mean square.
"""

import functools

import jax.numpy as jnp
import numpy as np

from splitjax.types import Array

POINTS = (0, 1, -1, 2, -0.5)
"""Where the polynomials are evaluated, besides infinity."""


def suits(x: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
  """Whether it is faster than XLA's own convolution on a CPU, as measured.

  Args:
    x: shape [B, H, W, c].
    kernel: shape [k, k, c, f].
  """
  batch, *edges, _ = x
  small = 3 <= min(edges) and max(edges) <= 8
  many = isinstance(batch, int) and batch >= 16  # an export has a symbol
  return kernel[0] == 3 and small and min(kernel[2:]) >= 64 and many


def convolve(x: Array, kernel: Array) -> Array:
  """Convolves with zero padding that keeps the size.

  Args:
    x: [B, H, W, c] float.
    kernel: [3, 3, c, f] float.

  Returns:
    [B, H, W, f].
  """
  b, h, w, c = x.shape
  f, pixels = kernel.shape[-1], h * w
  into, of_kernel, back = (jnp.asarray(m, float) for m in _matrices(h, w))
  points = len(of_kernel)
  u = (of_kernel @ kernel.reshape(9, c * f)).reshape(points, c, f)
  # Pixels in front: both transforms are one product for all samples.
  x = into @ x.transpose(1, 2, 0, 3).reshape(pixels, b * c)
  x = x.reshape(points, -1, c) @ u
  out = (back @ x.reshape(-1, b * f)).reshape(h, w, b, f)
  return out.transpose(2, 0, 1, 3)


@functools.cache
def _matrices(h: int, w: int) -> tuple[np.ndarray, ...]:
  """The maps pixels -> coefficients, kernel -> coefficients, products -> out.

  P points and T tiles over both axes: [P*T, h*w], [P, 9], [h*w, P*T].
  """
  (into, of_kernel, back), (into_w, of_kernel_w, back_w) = map(_axis, (h, w))
  rows = np.einsum("atn,esw->aetsnw", into, into_w).reshape(-1, h * w)
  columns = np.einsum("nat,wes->nwaets", back, back_w).reshape(h * w, -1)
  kernels = np.kron(of_kernel, of_kernel_w)
  return tuple(m for m in (rows, kernels, columns))


def _axis(n: int) -> tuple[np.ndarray, ...]:
  """The same along one axis of n pixels: [a, t, n], [a, 3], [n, a, t]."""
  tiles = -(-n // 4)
  m = -(-n // tiles)
  a = m + 2
  points = np.array(POINTS[: a - 1], float)
  # Products of values at the points, and of the leading coefficients.
  back, kernel, into = np.zeros((m, a)), np.zeros((a, 3)), np.zeros((a, a))
  for j, p in enumerate(points):
    others = np.delete(points, j)
    back[:, j] = p ** np.arange(m)
    kernel[j] = p ** np.arange(3) / np.prod(p - others)
    into[j, :-1] = np.poly(others)[::-1]
  back[-1, -1] = kernel[-1, -1] = 1
  into[-1] = np.poly(points)[::-1]
  # Tile i reads pixels i m - 1 to i m + m; those beyond the edge are 0.
  wide = np.zeros((a, tiles, tiles * m + 2))
  out = np.zeros((tiles * m, a, tiles))
  for i in range(tiles):
    wide[:, i, i * m : i * m + a] = into
    out[i * m : i * m + m, :, i] = back
  return wide[:, :, 1 : n + 1], kernel, out[:n]
