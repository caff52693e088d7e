"""Winograd's convolution of small maps, which needs fewer multiplications.

A 3x3 convolution whose outputs are computed in tiles of m x m needs (m + 2)^2
multiplications per channel and tile, not 9 m^2. Matrix products do these
multiplications. Maps of up to 8 pixels along an edge have so few tiles that the
transform of a whole map is one matrix product too.

An edge of 7 pixels is two tiles of 4, the last pixel of which is left out: 144
multiplications instead of 441. The rounding error is a few times that of a
direct sum: 2e-6, not 5e-7.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016;
the matrices follow Toom and Cook.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array

_POINTS = (0, 1, -1, 2, -0.5)
"""Points at which the polynomials are evaluated, besides infinity."""


def suits(x: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
  """Tells whether `convolve` was measured to be faster than XLA on a CPU.

  The shapes are [B, H, W, c] and [k, k, c, f].
  """
  batch, *edges, _ = x
  small = 3 <= min(edges) and max(edges) <= 8
  many = isinstance(batch, int) and batch >= 16  # an export has a symbol
  return kernel[0] == 3 and small and min(kernel[2:]) >= 64 and many


def convolve(x: Array, kernel: Array) -> Array:
  """Convolves images [B, H, W, c] by [3, 3, c, f], padded to keep the size."""
  b, h, w, c = x.shape
  f = kernel.shape[-1]
  pixels = h * w
  # Pixels come first, so that each transform is one product for all samples.
  x = x.transpose(1, 2, 0, 3).reshape(pixels, b * c)
  into, of_kernel, back = (jnp.asarray(m, float) for m in _matrices(h, w))
  points = len(of_kernel)
  u = (of_kernel @ kernel.reshape(9, c * f)).reshape(points, c, f)
  products = (into @ x).reshape(points, -1, c) @ u
  out = back @ products.reshape(-1, b * f)
  return out.reshape(h, w, b, f).transpose(2, 0, 1, 3)


@functools.cache
def _matrices(h: int, w: int) -> tuple[np.ndarray, ...]:
  """Makes the transforms of the input, of the kernel and of the products.

  For P points in T tiles they are [P*T, h*w] for the input, [P, 9] for the
  kernel, and [h*w, P*T] from the products back to the output.
  """
  into, of_kernel, back = _axis(h)
  into_w, of_kernel_w, back_w = _axis(w)
  kernels = np.kron(of_kernel, of_kernel_w)
  rows = np.einsum("atn,esw->aetsnw", into, into_w).reshape(-1, h * w)
  columns = np.einsum("nat,wes->nwaets", back, back_w).reshape(h * w, -1)
  return rows, kernels, columns


def _axis(n: int) -> tuple[np.ndarray, ...]:
  """Makes the transforms of an axis of n pixels, which is cut into tiles.

  The last point is infinity; the value there is a kernel's leading coefficient.
  For P points and T tiles it returns the transforms of the input [P, T, n], of
  the kernel [P, 3] and back to the output [n, P, T].
  """
  tiles = -(-n // 4)
  m = -(-n // tiles)
  kernel = np.array(_POINTS[: m + 1], float)[:, None] ** np.arange(3)
  kernel = np.append(kernel, [[0, 0, 1]], 0)
  into = np.zeros((m + 2, tiles, tiles * m + 2))
  back = np.zeros((tiles * m, m + 2, tiles))
  for i in range(tiles):
    # A tile reads m + 2 pixels; those beyond the edge are 0.
    start = i * m
    stop = start + m
    into[:, i, start : stop + 2], back[start:stop, :, i] = _tile(m)
  return into[:, :, 1 : n + 1], kernel, back[:n]


def _tile(m: int) -> tuple[np.ndarray, np.ndarray]:
  """Makes a tile's transforms, [m + 2, m + 2] in and [m, m + 2] back."""
  points = np.array(_POINTS[: m + 1], float)
  into = np.zeros((m + 2, m + 2))
  back = np.zeros((m, m + 2))
  back[:, :-1] = points ** np.arange(m)[:, None]
  back[-1, -1] = 1
  for j, p in enumerate(points):
    roots = np.delete(points, j)
    into[j, :-1] = np.poly(roots)[::-1] / np.prod(p - roots)
  into[-1] = np.poly(points)[::-1]
  return into, back
