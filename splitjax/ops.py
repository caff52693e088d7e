"""Convolution and pooling that stay fast when every client has its own kernel.

Under `vmap` over clients with weights of their own, `lax.conv` becomes a
grouped convolution, and inside `lax.scan` XLA's CPU backend drops to a naive
kernel for its gradient: 9 to 20 times slower than a loop in PyTorch. Written as
shifted slices and one matrix product, the same sum is a batched matmul, which
is fast on every backend. `python -m benchmarks.convolution` measures both.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array

Conv = Literal["auto", "patches", "native"]


def formulation(conv: Conv) -> Conv:
  """Resolves "auto" for the present backend.

  "patches" on CPU, where it was measured; "native" elsewhere, which is XLA's
  own choice and has not been measured here.
  """
  if conv != "auto":
    return conv
  return "patches" if jax.default_backend() == "cpu" else "native"


def conv2d(x: Array, kernel: Array, *, conv: Conv = "auto") -> Array:
  """Convolves with stride 1 and zero padding that keeps the size ("SAME").

  Args:
    x: [B, H, W, c] float.
    kernel: [k, k, c, f] float, k odd.
    conv: the formulation, "patches", "native" or "auto" (by backend).

  Returns:
    [B, H, W, f], x's dtype.
  """
  if formulation(conv) == "native":
    return jax.lax.conv_general_dilated(
      x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
  k = kernel.shape[0]
  return patches(x, k) @ kernel.reshape(-1, kernel.shape[-1])


def patches(x: Array, k: int) -> Array:
  """Gathers the k x k neighbourhood of every pixel, zeros beyond the border.

  Args:
    x: [B, H, W, c].
    k: odd edge length.

  Returns:
    [B, H, W, k*k*c], in the order of a kernel [k, k, c, f] laid flat.
  """
  _, height, width, _ = x.shape
  r = k // 2
  padded = jnp.pad(x, ((0, 0), (r, r), (r, r), (0, 0)))
  shifted = [
    padded[:, i : i + height, j : j + width] for i in range(k) for j in range(k)
  ]
  return jnp.concatenate(shifted, axis=-1)


def max_pool(x: Array) -> Array:
  """Takes the maximum over 2 x 2 windows, stride 2; an odd edge is cut off.

  Args:
    x: [B, H, W, c].

  Returns:
    [B, H // 2, W // 2, c].
  """
  b, h, w, c = x.shape
  h, w = h // 2, w // 2
  return x[:, : 2 * h, : 2 * w].reshape(b, h, 2, w, 2, c).max(axis=(2, 4))


def adaptive_mean_pool(x: Array, size: int) -> Array:
  """Means over size x size windows that cover the image, whatever its size.

  Window i of an axis of length n is [floor(i n / size), ceil((i + 1) n / size))
  (neighbours overlap by one where size does not divide n), PyTorch's rule.

  Args:
    x: [B, H, W, c].
    size: windows along each axis.

  Returns:
    [B, size, size, c].
  """
  _, h, w, _ = x.shape
  if (h, w) == (size, size):
    return x
  rows = jnp.asarray(_windows(h, size), x.dtype)
  columns = jnp.asarray(_windows(w, size), x.dtype)
  return jnp.einsum("bhwc,ih,jw->bijc", x, rows, columns)


def _windows(n: int, size: int) -> np.ndarray:
  """The averaging matrix [size, n] of one axis."""
  matrix = np.zeros((size, n))
  for i in range(size):
    start, stop = i * n // size, -(-(i + 1) * n // size)
    matrix[i, start:stop] = 1 / (stop - start)
  return matrix
