"""Convolutions that stay fast when every client has its own kernel; pools.

Under `vmap` a kernel per client is a grouped convolution, and in the body of a
loop XLA's CPU backend computes the gradient of a kernel by naive code, 9 to 20
times slower (https://github.com/jax-ml/jax/issues/12868). So every platform has
its own form of the same function, which XLA takes when it compiles:

  CPU  client after client, with both gradients in the one layout that has fast
       code, see `_on_cpu`; of few channels one product with `_columns`, without
       which a round of cnn8 at an eighth of its width takes twice as long.
  GPU  one product of patches and kernel, which `vmap` makes a batched product.
       The patches take k x k times the memory of the image, so the backward
       pass gathers them again. A CPU does so with a stride.
  TPU  XLA's own convolution: its compiler turns the groups into an axis.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.models import winograd

THIN = 8
_NARROW = 16
"""The most input channels and filters that a CPU convolves by `_columns`."""

_PIXELS = 2048
"""The approximate number of pixels in a part of the batch, see `_in_parts`."""


def conv2d(x: Array, kernel: Array, *, stride: int = 1) -> Array:
  """Convolves images [B, H, W, c] by [k, k, c, f] to [B, H', W', f], k odd.

  y[i, j] = sum_u,v x[s i + u - k // 2, s j + v - k // 2] kernel[u, v] for the
  stride s, with zeros outside of x (XLA's "SAME" pads unequally), so that H' =
  ceil(H / s). All forms below compute it and differ in rounding alone. Reverse-
  mode derivatives of any order exist, as for `depthwise`; jax.jvp is not
  defined. x, kernel and result have one dtype.
  """
  k, *_, channels, filters = kernel.shape
  if k == 1:  # a product of pixels on every platform
    return _product(x, kernel, stride)
  on_cpu = "in turn"
  if stride > 1:
    on_cpu = "patches"
  elif channels <= THIN and filters <= _NARROW:
    on_cpu = "columns"
  elif winograd.suits(x.shape, kernel.shape) and x.dtype != jnp.bfloat16:
    on_cpu = "winograd"  # which is too inexact in bfloat16
  return _dense(stride, on_cpu)(x, kernel)


def depthwise(x: Array, kernel: Array, *, stride: int = 1) -> Array:
  """Convolves each channel of [B, H, W, c] by its filter [k, k, 1, c], k odd.

  The padding is "same", so that H' = ceil(H / stride). A CPU and a GPU multiply
  each of k x k shifted images by one number per channel and sum the results in
  the default float, without a matrix product.
  """
  return _depthwise(stride)(x, kernel)


def patches(x: Array, k: int, stride: int) -> Array:
  """Gathers neighbourhoods: [B, H, W, c] -> [B, H', W', k*k*c].

  They have the order of a flattened kernel [k, k, c, f]. Images are shifted
  along rows, then along columns: 2 k copies instead of k x k.
  """
  x = padded(x, k // 2)
  for axis in (2, 1):
    stop = x.shape[axis] - k + 1
    views = [
      jax.lax.slice_in_dim(x, i, i + stop, stride, axis) for i in range(k)
    ]
    x = jnp.concatenate(views, axis=-1)
  return x


def padded(x: Array, margin: int, fill: float = 0.0) -> Array:
  """Pads rows and columns of images [B, H, W, c]."""
  edge = (margin, margin)
  return jnp.pad(x, ((0, 0), edge, edge, (0, 0)), constant_values=fill)


def _product(x: Array, kernel: Array, stride: int) -> Array:
  columns = patches(x, len(kernel), stride)
  return columns @ kernel.reshape(-1, kernel.shape[-1])


def _by_xla(
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


@functools.cache
def _dense(stride: int, on_cpu: str) -> Callable:
  """Builds the convolution (x, kernel) -> y of all channels."""

  def product(x, kernel):
    return _product(x, kernel, stride)

  def by_xla(x, kernel):
    return _by_xla(x, kernel, len(kernel) // 2, stride)

  usual = _with_gradients(product)
  forms = {"patches": usual, **_on_cpu()}
  return _bilinear(
    cpu=forms[on_cpu], tpu=_with_gradients(by_xla), default=usual
  )


@functools.cache
def _depthwise(stride: int) -> Callable:
  """Builds the convolution (x, kernel) -> y of each channel by itself."""

  def sums(x, kernel):
    k = len(kernel)
    taps = kernel.reshape(k * k, -1).astype(float)
    views = _shifted(x, k, stride)
    total = sum(
      view.astype(float) * tap for view, tap in zip(views, taps, strict=True)
    )
    return jnp.asarray(total, x.dtype)

  def by_xla(x, kernel):
    return _by_xla(x, kernel, len(kernel) // 2, stride, x.shape[-1])

  return _bilinear(tpu=_with_gradients(by_xla), default=_with_gradients(sums))


def _with_gradients(forward: Callable) -> tuple[Callable, ...]:
  """Adds jax's own gradients to a form, as `_bilinear` takes them."""

  def at_x(x, kernel, g):
    return jax.vjp(lambda x: forward(x, kernel), x)[1](g)[0]

  def at_kernel(x, kernel, g):
    return jax.vjp(lambda kernel: forward(x, kernel), kernel)[1](g)[0]

  return forward, at_x, at_kernel


def _bilinear(**forms: tuple[Callable, ...]) -> Callable:
  """Builds y = f(x, w), linear in x and in w, with a form for each platform.

  `forms` names, for a platform or "default", f(x, w) and the gradients of
  <g, f(x, w)>: a(x, w, g) at x, and b(x, w, g) at w. Of <v, a(x, w, g)> =
  <g, f(v, w)> the gradients are b(v, w, g) at w and f(v, w) at g; those of b
  likewise. So f, a and b give derivatives of any order, and a pass keeps x and
  w alone for the next one, on every platform.
  """

  def choose(i: int) -> Any:
    by_platform = {name: form[i] for name, form in forms.items()}
    return jax.custom_vjp(
      lambda *arrays: jax.lax.platform_dependent(*arrays, **by_platform)
    )

  # Of x `a` needs the shape alone, and so does `b` of w.
  f, a, b = map(choose, range(3))

  def pull(saved, g):
    return a(*saved, g), b(*saved, g)

  def pull_a(saved, v):
    x, w, g = saved
    return jnp.zeros_like(x), b(v, w, g), f(v, w)

  def pull_b(saved, v):
    x, w, g = saved
    return a(x, v, g), jnp.zeros_like(w), f(x, v)

  f.defvjp(lambda *arrays: (f(*arrays), arrays), pull)
  a.defvjp(lambda *arrays: (a(*arrays), arrays), pull_a)
  b.defvjp(lambda *arrays: (b(*arrays), arrays), pull_b)
  return f


def _shifted(x: Array, k: int, stride: int) -> list[Array]:
  """Lists k*k shifted images [B, H', W', c], one per place in a window."""
  batch, height, width, channels = x.shape
  x = padded(x, k // 2)
  rows, columns = (n + 2 * (k // 2) - k for n in (height, width))

  def view(i, j):
    stop = (batch, i + rows + 1, j + columns + 1, channels)
    return jax.lax.slice(x, (0, i, j, 0), stop, (1, stride, stride, 1))

  return [view(i, j) for i, j in itertools.product(range(k), repeat=2)]


def _one_by_one(function: Callable) -> Callable:
  """Makes `vmap` map a function of arrays by a loop.

  The loop keeps the images of one client in the CPU's cache.
  """
  run = jax.custom_batching.custom_vmap(function)

  @run.def_vmap
  def loop(*rule):
    out = jax.lax.map(lambda arrays: run(*arrays), _with_axis(*rule))
    return out, jax.tree.map(lambda _: True, out)

  return run


def _at_once(function: Callable) -> Callable:
  """Makes `vmap` call a function once, on arguments with the mapped axis first.

  The function must accept any number of leading axes. jax's own rule for
  `jnp.stack` would put the stacked axis before the mapped one, and `reshape`
  would copy the array, which takes longer than the convolution.
  """
  run = jax.custom_batching.custom_vmap(function)
  run.def_vmap(lambda *rule: (run(*_with_axis(*rule)), True))
  return run


def _with_axis(size: int, on: list[bool], *args: Array) -> list[Array]:
  """Adds the mapped axis, as the first, to the arguments that are not `on`."""
  return [
    x if is_on else jnp.broadcast_to(x, (size, *x.shape))
    for x, is_on in zip(args, on, strict=True)
  ]


@functools.cache
def _on_cpu() -> dict[str, tuple[Callable, ...]]:
  """Makes a CPU's forms of stride 1 with padding that keeps the size.

  XLA's CPU backend has fast code for the layout [B, H, W, c] * [k, k, c, f]
  alone. jax writes the gradient of a kernel in another one, which is fast only
  outside of loops; "in turn" writes it in this one. Without `winograd` for
  small maps of many channels a round of cnn8 took 12 % more CPU time.
  """

  def forward(x, kernel):
    return _by_xla(x, kernel, len(kernel) // 2)

  def at_x(x, kernel, g):
    return forward(g, _turned(kernel))

  def at_kernel(x, kernel, g):
    k = len(kernel)
    return _in_parts(lambda x, g: _sum_over_samples(x, g, k), x, g)

  small_maps = _with_gradients(winograd.convolve)
  return {
    "in turn": tuple(_one_by_one(f) for f in (forward, at_x, at_kernel)),
    "winograd": tuple(_one_by_one(f) for f in small_maps),
    "columns": (
      _by_columns,
      lambda x, kernel, g: _by_columns(g, _turned(kernel)),
      _kernel_by_columns,
    ),
  }


def _turned(kernel: Array) -> Array:
  """Makes the kernel whose convolution with g is the gradient of x."""
  return kernel[::-1, ::-1].transpose(0, 1, 3, 2)


def _by_columns(x: Array, kernel: Array) -> Array:
  """Convolves by one product of the kernel with `_columns`."""
  return _column_product(x.transpose(3, 0, 1, 2), kernel).transpose(1, 2, 3, 0)


@_at_once
def _column_product(x: Array, kernel: Array) -> Array:
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
  """Builds the map of [..., c, B, H, W], [..., B, H, W, f] to [..., kkc, f]."""

  @_at_once
  def gradient(x, g):
    return _columns(x, k) @ g.reshape(*g.shape[:-4], -1, g.shape[-1])

  return gradient


def _columns(x: Array, k: int) -> Array:
  """Stacks neighbourhoods: [..., c, B, H, W] -> [..., k*k*c, B*H*W]."""
  *n, c, _, rows, columns = x.shape
  edge = k // 2, k // 2
  x = jnp.pad(x, ((0, 0),) * (x.ndim - 2) + (edge, edge))
  shifted = [
    x[..., i : i + rows, j : j + columns]
    for i, j in itertools.product(range(k), repeat=2)
  ]
  return jnp.stack(shifted, len(n)).reshape(*n, k * k * c, -1)


def _in_parts(total: Callable, x: Array, g: Array) -> Array:
  """Computes total(x, g), a sum over samples, by adding up totals of parts.

  x and g are [B, H, W, ...]. A part of the batch fits into the cache: for 14x14
  maps of 50 samples, one call for all takes twice as long.
  """
  batch, *edges, _ = x.shape
  pixels = math.prod(edges)
  if not isinstance(batch, int) or batch * pixels <= _PIXELS:
    return total(x, g)  # an export has a symbol for the batch
  count = -(-batch * pixels // _PIXELS)
  # Up to a quarter more parts, if equal ones: a rest would be compiled too.
  counts = range(count, count + count // 4 + 1)
  count = next((n for n in counts if batch % n == 0), count)
  size = -(-batch // count)
  count = batch // size
  parts = [a[: count * size].reshape(count, size, *a.shape[1:]) for a in (x, g)]
  out = jax.eval_shape(total, x, g)
  # Many sums of 16 bits would lose digits.
  start = jnp.zeros(out.shape, jnp.promote_types(out.dtype, jnp.float32))
  if batch % size:
    start += total(x[count * size :], g[count * size :])
  result = jax.lax.scan(lambda s, p: (s + total(*p), None), start, parts)[0]
  return result.astype(out.dtype)


def _sum_over_samples(x: Array, g: Array, k: int) -> Array:
  """Computes the kernel's gradient by one convolution of x with g.

  It sums over samples in place of channels. For kernels above 3x3 and at least
  8 channels it convolves g with x: a round of cnn4 takes a tenth less time.
  """
  if k > 3 and x.shape[-1] >= 8:
    out = _by_xla(g.transpose(3, 1, 2, 0), x.transpose(1, 2, 0, 3), k // 2)
    return out[:, ::-1, ::-1].transpose(1, 2, 3, 0)
  out = _by_xla(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), k // 2)
  return out.transpose(1, 2, 0, 3)


def max_pool(x: Array) -> Array:
  """Takes the maximum over 2 x 2 windows, stride 2.

  [B, H, W, c] becomes [B, H // 2, W // 2, c]; an odd last row or column is left
  out. The first of equal maxima receives the gradient, as in PyTorch.
  """
  b, h, w, c = x.shape
  h //= 2
  w //= 2
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
  ceil((i + 1) n / size), as in PyTorch. Means are in the default float.
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
