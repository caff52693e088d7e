"""Convolution and pooling against XLA's own and against plain loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax import ops

pytestmark = pytest.mark.usefixtures("quick_compile")

RNG = np.random.default_rng(0)


def normal(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def check(a, b, atol=1e-5):
  np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)


def value_and_grads(conv, weight):
  """(x, kernel) -> output and both gradients of <output, weight>."""

  def scalar(x, kernel):
    out = ops.conv2d(x, kernel, conv=conv)
    return (out * weight).sum(), out

  return jax.jit(jax.value_and_grad(scalar, (0, 1), has_aux=True))


@pytest.mark.parametrize(
  ("k", "size"),
  [(1, (7, 4)), (3, (7, 4)), (5, (7, 4)), (3, (6, 6)), (5, (3, 1))],
)
def test_patches_equal_the_native_convolution(k, size):
  x, kernel = normal(2, *size, 3), normal(k, k, 3, 4)
  weight = normal(2, *size, 4)
  (_, out), grads = value_and_grads("patches", weight)(x, kernel)
  (_, want), exact = value_and_grads("native", weight)(x, kernel)
  assert out.shape == (2, *size, 4) and out.dtype == x.dtype
  check(out, want)
  check(grads[0], exact[0])
  check(grads[1], exact[1], 1e-4)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_every_client_may_have_its_own_kernel(k):
  x, kernel = normal(3, 2, 5, 5, 2), normal(3, k, k, 2, 4)
  weight = normal(2, 5, 5, 4)
  (_, out), grads = jax.vmap(value_and_grads("patches", weight))(x, kernel)
  native = value_and_grads("native", weight)
  for n in range(3):
    (_, want), exact = native(x[n], kernel[n])
    check(out[n], want)
    check(grads[0][n], exact[0])
    check(grads[1][n], exact[1], 1e-4)


def test_a_convolution_by_hand():
  # One bright pixel in the corner: the kernel appears turned about it.
  x = jnp.zeros((1, 3, 3, 1)).at[0, 0, 0, 0].set(1)
  kernel = jnp.arange(1.0, 10).reshape(3, 3, 1, 1)
  for conv in ("patches", "native", "auto"):
    out = ops.conv2d(x, kernel, conv=conv)[0, :, :, 0]
    assert out.tolist() == [[5, 4, 0], [2, 1, 0], [0, 0, 0]]


def test_auto_is_resolved_and_a_choice_is_kept():
  assert ops.formulation("auto") in ("patches", "native")
  if jax.default_backend() == "cpu":
    assert ops.formulation("auto") == "patches"
  assert ops.formulation("native") == "native"
  assert ops.formulation("patches") == "patches"


@pytest.mark.parametrize("size", [(4, 6), (7, 7), (5, 2)])
def test_max_pool_equals_reduce_window(size):
  x = normal(2, *size, 3)
  window = (1, 2, 2, 1)

  def native(x):
    low = -jnp.inf
    return jax.lax.reduce_window(x, low, jax.lax.max, window, window, "VALID")

  out = ops.max_pool(x)
  assert out.shape == (2, size[0] // 2, size[1] // 2, 3)
  np.testing.assert_array_equal(out, native(x))
  weight = normal(*out.shape)

  def gradient(pool):
    return jax.jit(jax.grad(lambda x: (pool(x) * weight).sum()))(x)

  check(gradient(ops.max_pool), gradient(native))


def looped(x, size):
  """PyTorch's adaptive average pooling, window by window."""
  b, h, w, c = x.shape
  out = np.zeros((b, size, size, c))
  for i in range(size):
    for j in range(size):
      rows = slice(math.floor(i * h / size), math.ceil((i + 1) * h / size))
      columns = slice(math.floor(j * w / size), math.ceil((j + 1) * w / size))
      out[:, i, j] = x[:, rows, columns].mean((1, 2))
  return out


@pytest.mark.parametrize(
  "shape", [(14, 14), (7, 7), (5, 5), (3, 3), (1, 1), (2, 2), (14, 5), (3, 8)]
)
def test_adaptive_mean_pool_takes_pytorchs_windows(shape):
  x = normal(2, *shape, 3)
  out = ops.adaptive_mean_pool(x, 3)
  assert out.shape == (2, 3, 3, 3)
  check(out, looped(np.asarray(x), 3))


def test_adaptive_mean_pool_by_hand():
  # 5 -> 3: windows [0, 2), [1, 4), [3, 5).
  x = jnp.array([1.0, 2, 6, 7, 9]).reshape(1, 5, 1, 1)
  out = ops.adaptive_mean_pool(x, 3)[0, :, :, 0]
  check(out, np.repeat([[1.5], [5.0], [8.0]], 3, axis=1))
