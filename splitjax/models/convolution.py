"""Convolution and pooling that stay fast when every client has its own kernel.

If each client has its own kernel, `vmap` turns `lax.conv` into a grouped
convolution. In the body of a `lax.scan`, XLA's CPU backend computes the
gradient of any convolution's kernel by slow, naive code. Three formulations
compute the same function:

  native   XLA's own convolution, see `models.windows`.
  in_turn  a loop that convolves client after client, or one matrix product if
           there are few channels; see `models.cpu`. It is fastest on CPUs.
  patches  one matrix product of shifted slices and the kernel. `vmap` makes it
           a batched product, which is fast on every backend. But the slices
           take k x k times the memory of the image.

`models.formulations` chooses one of them.
"""

import functools

import jax
import jax.numpy as jnp

from splitjax.models import cpu, formulations, target, windows
from splitjax.models.formulations import Conv
from splitjax.models.windows import Padding
from splitjax.types import Array

WIDE = 32
"""A max-pool on a CPU stores the position of each maximum if there are at least
this many channels. A round of cnn8 then takes 5 % less time. With fewer
channels, storing positions would make a round of a narrow network a third
longer.
"""


def conv2d(
  x: Array,
  kernel: Array,
  *,
  stride: int = 1,
  padding: Padding = "same",
  conv: Conv = "auto",
) -> Array:
  """Convolves images, by default with zero padding that keeps the size.

  A 1x1 convolution is a matrix product in every formulation.

  Args:
    x: [B, H, W, c] float.
    kernel: [k, k, c, f], x's dtype, k odd.
    stride: the step of the windows.
    padding: "same" pads k // 2 zeros on every side, whatever the stride (XLA's
      "SAME" pads unequally if there is a stride); "valid" pads none.
    conv: the formulation, "in_turn", "patches", "native", "auto" (by device)
      or "measured" (see `formulations`). "in_turn" needs stride 1 and padding
      "same"; it computes other convolutions as "patches".

  Returns:
    [B, H', W', f], x's dtype; with "same", H' = ceil(H / stride).
  """
  k, filters = kernel.shape[0], kernel.shape[-1]
  if k == 1:
    how: Conv = "patches"
  else:
    how = formulations.of_call(conv, x, kernel, stride, padding)
  if how == "native":
    return windows.native(x, kernel, windows.margin(k, padding), stride)
  if how == "in_turn" and stride == 1 and padding == "same":
    return cpu.conv2d(x, kernel)
  columns = windows.patches(x, k, stride, padding)
  return columns @ kernel.reshape(-1, filters)


def depthwise(
  x: Array, kernel: Array, *, stride: int = 1, conv: Conv = "auto"
) -> Array:
  """Convolves every channel with its own filter, padding "same".

  Formulations other than "native" multiply each of k x k shifted images by one
  number per channel and sum the results in the default float, without a matrix
  product.

  Args:
    x: [B, H, W, c] float.
    kernel: [k, k, 1, c] float, k odd.
    stride: the step of the windows.
    conv: the formulation, as in `conv2d`.

  Returns:
    [B, H', W', c], x's dtype; H' = ceil(H / stride).
  """
  k, margin = kernel.shape[0], windows.margin(kernel.shape[0], "same")
  how = formulations.of_call(conv, x, kernel, stride, "same", depthwise=True)
  if how == "native":
    return windows.native(x, kernel, margin, stride, groups=x.shape[-1])
  taps = kernel.reshape(k * k, -1).astype(float)
  total = sum(
    image.astype(float) * taps[i]
    for i, image in enumerate(windows.shifted(x, k, stride, margin))
  )
  return jnp.asarray(total, x.dtype)


def max_pool(x: Array) -> Array:
  """Takes the maximum over 2 x 2 windows, stride 2.

  [B, H, W, c] becomes [B, H // 2, W // 2, c]; an odd last row or column is left
  out. The first of equal maxima receives the gradient, as in PyTorch. On a CPU
  jax.jvp is not defined for images of `WIDE` or more channels.
  """
  if x.shape[-1] >= WIDE and target.current().platform == "cpu":
    return cpu.max_pool(x)
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
  x = windows.padded(x, 1, fill=-jnp.inf)
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
  ceil((i + 1) n / size), as in PyTorch. Windows i and i + 1 share one pixel if
  (i + 1) n / size is no integer. The mean is computed in the default float; the
  result has x's dtype.
  """
  _, h, w, _ = x.shape
  if (h, w) == (size, size):
    return x
  if size == 1:
    return x.mean(axis=(1, 2), keepdims=True)
  pooled = _means(_means(x.astype(float), 1, size), 2, size)
  return pooled.astype(x.dtype)


def _windows(n: int, size: int) -> list[tuple[int, int]]:
  """Lists each window's (start, stop), for `size` windows on n pixels."""
  return [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]


def _means(x: Array, axis: int, size: int) -> Array:
  parts = [
    jax.lax.slice_in_dim(x, start, stop, axis=axis).mean(axis)
    for start, stop in _windows(x.shape[axis], size)
  ]
  return jnp.stack(parts, axis)
