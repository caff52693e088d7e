"""Winograd's convolution of small maps, which needs fewer multiplications.

A 3x3 convolution whose outputs are computed in tiles of m x m needs (m + 2)^2
multiplications per channel and tile, not 9 m^2. Matrix products do these
multiplications. Maps of up to 8 pixels along an edge have so few tiles that the
transform of a whole map is one matrix product too.

An edge of 7 pixels is a tile of 4 and a tile of 3. All m + 2 points at which
the smaller one's polynomials are evaluated are points of the larger one, so one
transformed kernel serves both, and a 7x7 map takes 122 multiplications, not
144. The rounding error is a few times that of a direct sum: 2e-6, not 5e-7.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016;
the matrices follow Toom and Cook.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array

POINTS = (0, 1, -1, 2, -0.5)
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
  f, pixels = kernel.shape[-1], h * w
  # Pixels come first, so that each transform is one product for all samples.
  x = x.transpose(1, 2, 0, 3).reshape(pixels, b * c)
  kernel = kernel.reshape(9, c * f)
  total = jnp.zeros((), x.dtype)
  for matrices in _matrices(h, w):
    into, of_kernel, back = (jnp.asarray(m, float) for m in matrices)
    points = len(of_kernel)
    u = (of_kernel @ kernel).reshape(points, c, f)
    products = (into @ x).reshape(points, -1, c) @ u
    total += back @ products.reshape(-1, b * f)
  return total.reshape(h, w, b, f).transpose(2, 0, 1, 3)


@functools.cache
def _matrices(h: int, w: int) -> list[tuple[np.ndarray, ...]]:
  """Makes the transforms of the input, of the kernel and of the products.

  The first group is for the points that all tiles have, a second for those that
  some lack, if tiles differ in size. For P points in T tiles a group has three
  matrices: [P*T, h*w] for the input, [P, 9] for the kernel, and [h*w, P*T] from
  the products back to the output.
  """
  (into, of_kernel, back, has), (into_w, of_kernel_w, back_w, has_w) = map(
    _axis, (h, w)
  )
  rows = np.einsum("atn,esw->aetsnw", into, into_w)
  columns = np.einsum("nat,wes->aetsnw", back, back_w)
  tiles = np.einsum("at,es->aets", has, has_w).reshape(rows[..., 0, 0].shape)
  rows, columns = (m.reshape(tiles.size, h * w) for m in (rows, columns))
  kernels = np.kron(of_kernel, of_kernel_w)
  tiles = tiles.reshape(len(kernels), -1)
  count = tiles.sum(1)
  groups: list[tuple[np.ndarray, ...]] = []
  for points in (count == count.max(), count < count.max()):
    if points.any():
      # A point in fewer tiles than others of its group gets rows of zeros.
      first = np.argsort(~tiles, 1, kind="stable")[:, : count[points].max()]
      at = np.arange(tiles.size).reshape(tiles.shape)
      at = np.take_along_axis(at, first, 1)[points].ravel()
      groups.append((rows[at], kernels[points], columns[at].T))
  return groups


def _axis(n: int) -> tuple[np.ndarray, ...]:
  """Makes the transforms of an axis of n pixels, which is cut into tiles.

  The last point is infinity; the value there is a kernel's leading coefficient.
  For P points and T tiles it returns the transforms of the input [P, T, n], of
  the kernel [P, 3] and back to the output [n, P, T]; and a mask [P, T] of the
  points that each tile has.
  """
  tiles = -(-n // 4)
  sizes = [n // tiles + (i < n % tiles) for i in range(tiles)]
  a = sizes[0] + 2
  kernel = np.array(POINTS[: a - 1], float)[:, None] ** np.arange(3)
  kernel = np.append(kernel, [[0, 0, 1]], 0)
  into, back = np.zeros((a, tiles, n + 2)), np.zeros((n, a, tiles))
  has = np.zeros((a, tiles), bool)
  start = 0
  for i, m in enumerate(sizes):
    # A tile reads m + 2 pixels; those beyond the edge are 0.
    at, stop = [*range(m + 1), a - 1], start + m
    into[at, i, start : stop + 2], back[start:stop, at, i] = _tile(m)
    has[at, i] = True
    start = stop
  return into[:, :, 1 : n + 1], kernel, back, has


def _tile(m: int) -> tuple[np.ndarray, np.ndarray]:
  """Makes a tile's transforms, [m + 2, m + 2] in and [m, m + 2] back."""
  points = np.array(POINTS[: m + 1], float)
  into, back = np.zeros((m + 2, m + 2)), np.zeros((m, m + 2))
  back[:, :-1] = points ** np.arange(m)[:, None]
  back[-1, -1] = 1
  for j, p in enumerate(points):
    others = np.delete(points, j)
    into[j, :-1] = np.poly(others)[::-1] / np.prod(p - others)
  into[-1] = np.poly(points)[::-1]
  return into, back
