"""Pools against XLA's own and against plain loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy_nets
import pytest

from splitjax import models

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

RNG = np.random.default_rng(0)


def normal(*shape):
  return RNG.normal(size=shape)


def check(a, b):
  np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def graded(pool, weight):
  """x -> the output, and the gradient of <output, weight>."""

  def scalar(x):
    out = pool(x)
    return (out * weight).sum(), out

  def run(x):
    (_, out), dx = jax.value_and_grad(scalar, has_aux=True)(x)
    return out, dx

  return run


POOLS = {"max_pool": (2, 2, 0), "max_pool_3x3": (3, 2, 1)}
"""Name -> edge of the window, stride, margin."""


@pytest.mark.parametrize("name", POOLS)
def test_max_pools_equal_the_loop(name):
  k, stride, margin = POOLS[name]
  # All below 0: a border of zeros would win.
  sizes = [(7, 4), (6, 6), (5, 3), (3, 2)] + [(1, 1), (2, 1)] * margin
  images = [-np.abs(normal(2, *size, 3)) - 1 for size in sizes]
  want = [numpy_nets.max_pool(x, k, stride, margin) for x in images]
  weights = [normal(*out.shape) for out in want]

  @jax.jit
  def ours(images):
    pool = getattr(models, name)
    return [
      graded(pool, weight)(x) for x, weight in zip(images, weights, strict=True)
    ]

  for x, (out, dx), exact, weight in zip(
    images, ours(images), want, weights, strict=True
  ):
    np.testing.assert_array_equal(out, exact)
    check(dx, numpy_nets.max_pool_gradient(x, k, stride, margin, weight))


def test_the_gradient_of_a_pool_has_a_gradient():
  x, weight = (normal(2, 5, 4, 32), normal(2, 2, 2, 32))

  @jax.jit
  def both(x):
    out, pull = jax.vjp(models.max_pool, x)
    return jax.grad(length)(x), pull(8 * out * weight**2)[0]

  def length(x):
    dx = jax.grad(lambda x: (models.max_pool(x) ** 2 * weight).sum())(x)
    return (dx**2).sum()

  # dx is 2 m weight at each maximum m, so the length is the sum of their
  # squares, and its gradient 8 m weight^2 there.
  check(*both(x))


def test_the_first_of_equal_maxima_has_the_gradient():
  x = np.zeros((1, 2, 2, 1))
  for pool in (models.max_pool, models.max_pool_3x3):
    _, dx = jax.jit(graded(pool, np.ones((1, 1, 1, 1))))(x)
    assert dx.ravel().tolist() == [1, 0, 0, 0]


def test_what_is_not_a_number_is_the_maximum():
  @jax.jit
  def pooled(x):
    wide = jnp.repeat(x, 32, axis=-1)
    one, three = models.max_pool, models.max_pool_3x3
    return one(x), three(x), one(wide)

  for place in range(4):
    x = np.arange(4.0)
    x[place] = np.nan
    assert all(np.isnan(out).all() for out in pooled(x.reshape(1, 2, 2, 1)))


def looped(x, size):
  """PyTorch's adaptive pooling, window by window."""
  b, h, w, c = x.shape
  out = np.zeros((b, size, size, c))
  for i in range(size):
    for j in range(size):
      rows = slice(math.floor(i * h / size), math.ceil((i + 1) * h / size))
      columns = slice(math.floor(j * w / size), math.ceil((j + 1) * w / size))
      out[:, i, j] = x[:, rows, columns].mean(axis=(1, 2))
  return out


def test_adaptive_mean_pool_takes_pytorchs_windows():
  sizes = [(14, 14), (7, 7), (5, 5), (1, 1), (2, 2), (14, 5), (3, 8)]
  images = [normal(2, *size, 3) for size in sizes]
  pooled = jax.jit(lambda xs: [models.adaptive_mean_pool(x, 3) for x in xs])
  for x, out in zip(images, pooled(images), strict=True):
    assert out.shape == (2, 3, 3, 3)
    check(out, looped(x, 3))
