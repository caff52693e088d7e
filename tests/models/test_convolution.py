"""Strided, valid and depthwise convolution and the 3x3 pool, against loops.

Everything is float32 against float64; sums have up to 200 terms of order 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_nets
import pytest

from splitjax.models import conv as conv_ops

pytestmark = pytest.mark.usefixtures("quick_compile")

RNG = np.random.default_rng(0)
SIZES = [(7, 4), (6, 6), (5, 3)]
"""Odd and even edges; every window hangs over some border."""


def normal(*shape):
  return np.asarray(RNG.normal(size=shape), np.float32)


def check(a, b):
  np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def with_gradients(op, weight, *inputs):
  """The output, and the gradients of <output, weight> by every input."""

  def scalar(*inputs):
    out = op(*inputs)
    return (out * weight).sum(), out

  every = tuple(range(len(inputs)))
  run = jax.jit(jax.value_and_grad(scalar, every, has_aux=True))
  (_, out), grads = run(*inputs)
  return out, grads


every = pytest.mark.parametrize("conv", ["in_turn", "patches", "native"])


@every
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
  ("k", "stride", "padding"),
  [
    (1, 1, "same"),
    (1, 2, "same"),
    (3, 2, "same"),
    (5, 2, "same"),
    (7, 2, "same"),
    (3, 3, "same"),
    (3, 1, "valid"),
    (3, 2, "valid"),
  ],
)
def test_convolution_equals_the_loop(conv, size, k, stride, padding):
  x, kernel = normal(2, *size, 3), normal(k, k, 3, 4)
  margin = k // 2 if padding == "same" else 0
  want = numpy_nets.conv(x, kernel, stride, margin)
  weight = normal(*want.shape)

  def op(x, kernel):
    return conv_ops.conv2d(x, kernel, stride=stride, padding=padding, conv=conv)

  out, (dx, dkernel) = with_gradients(op, weight, x, kernel)
  check(out, want)
  if padding == "same":
    assert out.shape[1:3] == tuple(-(-n // stride) for n in size)
  exact = numpy_nets.conv_gradients(x, kernel, stride, margin, weight)
  check(dx, exact[0])
  check(dkernel, exact[1])


@every
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("k", "stride"), [(3, 1), (3, 2), (5, 2)])
def test_depthwise_convolution_equals_the_loop(conv, size, k, stride):
  x, kernel = normal(2, *size, 3), normal(k, k, 1, 3)
  want = numpy_nets.depthwise(x, kernel, stride, k // 2)
  weight = normal(*want.shape)

  def op(x, kernel):
    return conv_ops.depthwise(x, kernel, stride=stride, conv=conv)

  out, (dx, dkernel) = with_gradients(op, weight, x, kernel)
  check(out, want)
  exact = numpy_nets.depthwise_gradients(x, kernel, stride, k // 2, weight)
  check(dx, exact[0])
  check(dkernel, exact[1])


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (2, 1)])
def test_overlapping_max_pool_equals_the_loop(size):
  # All below 0: a border of zeros would win.
  x = -np.abs(normal(2, *size, 3)) - 1
  want = numpy_nets.max_pool(x, 3, 2, 1)
  weight = normal(*want.shape)
  out, (dx,) = with_gradients(conv_ops.max_pool_3x3, weight, x)
  np.testing.assert_array_equal(out, want.astype(np.float32))
  assert out.shape[1:3] == tuple(-(-n // 2) for n in size)
  check(dx, numpy_nets.max_pool_gradient(x, 3, 2, 1, weight))


def test_overlapping_max_pool_equals_reduce_window():
  x, pad = normal(2, 7, 6, 3), ((0, 0), (1, 1), (1, 1), (0, 0))

  def native(x):
    low, shape = -jnp.inf, ((1, 3, 3, 1), (1, 2, 2, 1))
    return jax.lax.reduce_window(x, low, jax.lax.max, *shape, pad)

  weight = normal(2, 4, 3, 3)
  out, (dx,) = with_gradients(conv_ops.max_pool_3x3, weight, x)
  want, (exact,) = with_gradients(native, weight, x)
  np.testing.assert_array_equal(out, want)
  check(dx, exact)


def test_the_first_of_equal_maxima_has_the_gradient():
  x = np.zeros((1, 2, 2, 1), np.float32)
  for pool in (conv_ops.max_pool, conv_ops.max_pool_3x3):
    _, (dx,) = with_gradients(pool, np.ones((1, 1, 1, 1)), x)
    assert dx.ravel().tolist() == [1, 0, 0, 0]


def test_what_is_not_a_number_is_the_maximum():
  for place in range(4):
    x = jnp.arange(4.0).at[place].set(jnp.nan).reshape(1, 2, 2, 1)
    assert jnp.isnan(conv_ops.max_pool(x)).all()
    assert jnp.isnan(conv_ops.max_pool_3x3(x)).all()


@pytest.mark.parametrize("depthwise", [False, True])
def test_every_client_may_have_its_own_strided_kernel(depthwise):
  x = normal(3, 2, 5, 6, 2)
  kernel = normal(3, 3, 3, 1 if depthwise else 2, 2)
  weight = normal(2, 3, 3, 2)
  op = conv_ops.depthwise if depthwise else conv_ops.conv2d

  def one(conv):
    def run(x, kernel):
      strided = lambda *a: op(*a, stride=2, conv=conv)  # noqa: E731
      return with_gradients(strided, weight, x, kernel)

    return run

  out, grads = jax.vmap(one("patches"))(x, kernel)
  for n in range(3):
    want, exact = one("native")(x[n], kernel[n])
    check(out[n], want)
    for a, b in zip(grads, exact, strict=True):
      check(a[n], b)


@every
def test_half_precision_in_half_precision_out(conv):
  x, kernel = normal(2, 6, 6, 8), normal(3, 3, 8, 4)
  half = [jnp.asarray(a, jnp.bfloat16) for a in (x, kernel)]
  out = conv_ops.conv2d(*half, stride=2, conv=conv)
  assert out.dtype == jnp.bfloat16
  want = numpy_nets.conv(*(np.asarray(a, np.float64) for a in half), 2, 1)
  # Summed in float32, then rounded to 8 bits.
  np.testing.assert_allclose(
    np.asarray(out, np.float64), want, rtol=2**-8, atol=1e-3
  )
  each = jnp.asarray(kernel[:, :, :1], jnp.bfloat16).repeat(2, -1)
  out = conv_ops.depthwise(half[0], each, conv=conv)
  assert out.dtype == jnp.bfloat16
  want = numpy_nets.depthwise(*(np.float64(a) for a in (half[0], each)), 1, 1)
  np.testing.assert_allclose(
    np.asarray(out, np.float64), want, rtol=2**-8, atol=1e-3
  )
