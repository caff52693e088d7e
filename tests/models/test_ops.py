"""Convolution and pooling against XLA's own and against plain loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from splitjax.models import conv as conv_ops
from splitjax.models import winograd

pytestmark = pytest.mark.usefixtures("quick_compile")

RNG = np.random.default_rng(0)


def normal(*shape):
  return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def check(a, b, atol=1e-5):
  np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)


def value_and_grads(conv, weight):
  """(x, kernel) -> output and both gradients of <output, weight>."""

  def scalar(x, kernel):
    out = conv_ops.conv2d(x, kernel, conv=conv)
    return (out * weight).sum(), out

  return jax.jit(jax.value_and_grad(scalar, (0, 1), has_aux=True))


ours = pytest.mark.parametrize("conv", ["in_turn", "patches"])


@ours
@pytest.mark.parametrize(
  ("k", "size"),
  [(1, (7, 4)), (3, (7, 4)), (5, (7, 4)), (3, (6, 6)), (5, (3, 1))],
)
def test_ours_equals_the_native_convolution(conv, k, size):
  x, kernel = normal(2, *size, 3), normal(k, k, 3, 4)
  weight = normal(2, *size, 4)
  (_, out), grads = value_and_grads(conv, weight)(x, kernel)
  (_, want), exact = value_and_grads("native", weight)(x, kernel)
  assert out.shape == (2, *size, 4) and out.dtype == x.dtype
  check(out, want)
  check(grads[0], exact[0])
  check(grads[1], exact[1], 1e-4)


@ours
@pytest.mark.parametrize("k", [1, 3, 5])
def test_every_client_may_have_its_own_kernel(conv, k):
  x, kernel = normal(3, 2, 5, 5, 2), normal(3, k, k, 2, 4)
  weight = normal(2, 5, 5, 4)
  (_, out), grads = jax.vmap(value_and_grads(conv, weight))(x, kernel)
  native = value_and_grads("native", weight)
  for n in range(3):
    (_, want), exact = native(x[n], kernel[n])
    check(out[n], want)
    check(grads[0][n], exact[0])
    check(grads[1][n], exact[1], 1e-4)


@pytest.mark.parametrize(
  "size", [(7, 7), (3, 3), (8, 4), (5, 6), (3, 7)], ids=str
)
def test_small_maps_of_many_channels(size):
  x, kernel = normal(2, 16, *size, 64), normal(2, 3, 3, 64, 65) / 17
  weight = normal(16, *size, 65)
  assert winograd.suits(x.shape[1:], kernel.shape[1:])
  (_, out), grads = jax.vmap(value_and_grads("in_turn", weight))(x, kernel)
  native = value_and_grads("native", weight)
  # Sums of 576 terms, 16 H W for the kernel's gradient, of order 1.
  for n in range(2):
    (_, want), exact = native(x[n], kernel[n])
    check(out[n], want, 1e-4)
    check(grads[0][n], exact[0], 1e-4)
    check(grads[1][n], exact[1], 2e-3)


def test_clients_may_share_a_kernel_or_images():
  x, kernel = normal(3, 2, 5, 4, 2), normal(3, 3, 3, 2, 4)

  def both(op):
    one = jax.value_and_grad(lambda x, k: jnp.sin(op(x, k)).sum(), (0, 1))
    shared = jax.vmap(one, (0, None))(x, kernel[0])
    return shared, jax.vmap(one, (None, 0))(x[0], kernel)

  named = lambda conv: lambda x, k: conv_ops.conv2d(x, k, conv=conv)  # noqa: E731
  jax.tree.map(check, both(named("in_turn")), both(named("native")))


def test_clients_of_clients_and_gradients_of_gradients():
  # As exact second-order adaptation has them, vmapped over views and clients.
  x, kernel = normal(2, 3, 2, 4, 4, 2), normal(2, 3, 3, 3, 2, 3)

  def after_a_step(op):
    def loss(x, kernel):
      return jnp.square(jnp.sin(op(x, kernel))).sum()

    def one(x, kernel):
      dx, dkernel = jax.grad(loss, (0, 1))(x, kernel)
      return loss(x - 0.01 * dx, kernel - 0.01 * dkernel)

    return jax.vmap(jax.vmap(jax.value_and_grad(one, (0, 1))))(x, kernel)

  named = lambda conv: lambda x, k: conv_ops.conv2d(x, k, conv=conv)  # noqa: E731
  mine, want = (after_a_step(named(conv)) for conv in ("in_turn", "native"))
  # Against the largest entry: a small one is a difference of large terms.
  near = lambda a, b: check(a, b, 1e-5 * float(jnp.abs(b).max()))  # noqa: E731
  jax.tree.map(near, mine, want)


def test_a_convolution_by_hand():
  # One bright pixel in the corner: the kernel appears turned about it.
  x = jnp.zeros((1, 3, 3, 1)).at[0, 0, 0, 0].set(1)
  kernel = jnp.arange(1.0, 10).reshape(3, 3, 1, 1)
  for conv in ("in_turn", "patches", "native", "auto"):
    out = conv_ops.conv2d(x, kernel, conv=conv)[0, :, :, 0]
    assert out.tolist() == [[5, 4, 0], [2, 1, 0], [0, 0, 0]]


def test_auto_is_resolved_and_a_choice_is_kept():
  assert conv_ops.formulation("auto") in ("in_turn", "native")
  if jax.default_backend() == "cpu":
    assert conv_ops.formulation("auto") == "in_turn"
  for conv in ("in_turn", "patches", "native"):
    assert conv_ops.formulation(conv) == conv


@pytest.mark.parametrize("size", [(4, 6), (7, 7), (5, 2)])
def test_max_pool_equals_reduce_window(size):
  x = normal(2, *size, 3)
  window = (1, 2, 2, 1)

  def native(x):
    low = -jnp.inf
    return jax.lax.reduce_window(x, low, jax.lax.max, window, window, "VALID")

  out = conv_ops.max_pool(x)
  assert out.shape == (2, size[0] // 2, size[1] // 2, 3)
  np.testing.assert_array_equal(out, native(x))
  weight = normal(*out.shape)

  def gradient(pool):
    return jax.jit(jax.grad(lambda x: (pool(x) * weight).sum()))(x)

  check(gradient(conv_ops.max_pool), gradient(native))


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
  out = conv_ops.adaptive_mean_pool(x, 3)
  assert out.shape == (2, 3, 3, 3)
  check(out, looped(np.asarray(x), 3))


def test_adaptive_mean_pool_by_hand():
  # 5 -> 3: windows [0, 2), [1, 4), [3, 5).
  x = jnp.array([1.0, 2, 6, 7, 9]).reshape(1, 5, 1, 1)
  out = conv_ops.adaptive_mean_pool(x, 3)[0, :, :, 0]
  check(out, np.repeat([[1.5], [5.0], [8.0]], 3, axis=1))


@pytest.mark.parametrize("conv", ["in_turn", "patches", "native"])
def test_any_number_of_images_may_be_exported(conv):
  # Of many channels on a small map: the number decides the form elsewhere.
  (batch,) = export.symbolic_shape("b")
  x = jax.ShapeDtypeStruct((batch, 7, 7, 64), jnp.float32)
  kernel = jax.random.normal(jax.random.key(0), (3, 3, 64, 64)) / 24

  def convolve(x):
    return conv_ops.conv2d(x, kernel, conv=conv)

  run = export.export(jax.jit(convolve))(x)
  for count in (1, 20):
    image = jax.random.normal(jax.random.key(1), (count, 7, 7, 64))
    np.testing.assert_allclose(run.call(image), convolve(image), atol=1e-4)
