"""Convolution, pooling and normalisation as plain loops in float64.

Written from the papers, window by window, with none of the package's tricks.
Arrays are [B, H, W, c], kernels [k, k, c, f] or, per channel, [k, k, 1, c].
"""

import zlib

import jax
import jax.numpy as jnp
import numpy as np

EPS = 1e-5


def fill(shapes, seed=0):
  """Parameters and statistics without a zero or a one among them.

  Kernels have He's variance, so that values stay of order 1. Numbers follow
  from the seed and a leaf's path alone; NumPy keeps RandomState's for good.
  """

  def leaf(path, like):
    name = f"{seed}/{jax.tree_util.keystr(path, simple=True, separator='/')}"
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    kind, noise = path[-1].key, rng.normal(size=like.shape)
    if kind == "kernel":
      noise *= np.sqrt(2 / np.prod(like.shape[:-1]))
    elif kind == "var":
      noise = rng.uniform(0.5, 2, like.shape)
    else:
      noise = 0.3 * noise + (kind == "scale")
    return noise

  return jax.tree_util.tree_map_with_path(leaf, shapes)


def draw(block, x, seed=0):
  """Parameters and running statistics of a block for images x, as `fill`."""
  real = jnp.ones(len(x), bool)
  key = jax.random.key(0)
  tree = fill(jax.eval_shape(lambda: block.init(key, x, False, real)), seed)
  return tree.get("params", {}), tree.get("batch_stats", {})


def windows(x, k, stride, margin):
  """Yields the place in the output, and its k x k window of the padded x."""
  _, h, w, _ = x.shape
  for i in range((h + 2 * margin - k) // stride + 1):
    for j in range((w + 2 * margin - k) // stride + 1):
      rows = slice(i * stride, i * stride + k)
      yield (
        (slice(None), i, j),
        (slice(None), rows, slice(j * stride, j * stride + k)),
      )


def padded(x, margin, fill=0.0):
  edges = ((0, 0), (margin, margin), (margin, margin), (0, 0))
  return np.pad(np.asarray(x, np.float64), edges, constant_values=fill)


def out_shape(x, k, stride, margin, features):
  h, w = ((n + 2 * margin - k) // stride + 1 for n in x.shape[1:3])
  return (x.shape[0], h, w, features)


def conv(x, kernel, stride, margin):
  """The sum over a window of x times the kernel."""
  kernel, big = np.asarray(kernel, np.float64), padded(x, margin)
  k = kernel.shape[0]
  out = np.zeros(out_shape(x, k, stride, margin, kernel.shape[-1]))
  for place, window in windows(x, k, stride, margin):
    out[place] = np.einsum("bijc,ijcf->bf", big[window], kernel)
  return out


def conv_gradients(x, kernel, stride, margin, g):
  """Gradients of <conv(x, kernel), g> by x and kernel."""
  kernel, big = np.asarray(kernel, np.float64), padded(x, margin)
  dx, dkernel = np.zeros_like(big), np.zeros_like(kernel)
  for place, window in windows(x, kernel.shape[0], stride, margin):
    dx[window] += np.einsum("bf,ijcf->bijc", g[place], kernel)
    dkernel += np.einsum("bijc,bf->ijcf", big[window], g[place])
  return inner(dx, margin), dkernel


def depthwise(x, kernel, stride, margin):
  """A filter per channel: a convolution of each alone."""
  channels = [[c] for c in range(x.shape[-1])]
  return np.concatenate(
    [conv(x[..., c], kernel[..., c], stride, margin) for c in channels], axis=-1
  )


def depthwise_gradients(x, kernel, stride, margin, g):
  """Gradients of <depthwise(x, kernel), g> by x and kernel."""
  pairs = [
    conv_gradients(x[..., c], kernel[..., c], stride, margin, g[..., c])
    for c in ([c] for c in range(x.shape[-1]))
  ]
  return [np.concatenate(parts, axis=-1) for parts in zip(*pairs, strict=True)]


def max_pool(x, k, stride, margin):
  big = padded(x, margin, -np.inf)
  out = np.zeros(out_shape(x, k, stride, margin, x.shape[-1]))
  for place, window in windows(x, k, stride, margin):
    out[place] = big[window].max(axis=(1, 2))
  return out


def max_pool_gradient(x, k, stride, margin, g):
  """Gradient of <max_pool(x), g>, where no two in a window are equal."""
  big = padded(x, margin, -np.inf)
  dx = np.zeros_like(big)
  for place, window in windows(x, k, stride, margin):
    top = big[window] == big[window].max(axis=(1, 2), keepdims=True)
    dx[window] += top * g[place][:, None, None]
  return inner(dx, margin)


def inner(x, margin):
  return x[:, margin : x.shape[1] - margin, margin : x.shape[2] - margin]


def group_norm(x, params, groups):
  b, h, w, c = x.shape
  parts = x.reshape(b, h, w, groups, c // groups)
  mean = parts.mean(axis=(1, 2, 4), keepdims=True)
  var = np.square(parts - mean).mean(axis=(1, 2, 4), keepdims=True)
  out = ((parts - mean) / np.sqrt(var + EPS)).reshape(x.shape)
  return out * params["scale"] + params["bias"]
