"""Convolutions in every platform's form, and pools, against plain loops.

All cases of a form are one program: compiling is what takes time.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpy_nets
import pytest
from jax import export

from splitjax import models
from splitjax.models import THIN, conv2d, depthwise

RNG = np.random.default_rng(0)
# Kernel, stride, image. Edges are odd and even; windows hang over
# borders, up to a 5x5 one on a 3x1 image.
DENSE = [
  (1, 2, (5, 3)),
  (3, 1, (7, 4)),
  (3, 1, (6, 6)),
  (5, 1, (3, 1)),
  (3, 2, (6, 6)),
  (5, 2, (7, 4)),
  (7, 2, (5, 3)),
]
DEPTHWISE = [(3, 1, (7, 4)), (3, 2, (6, 6)), (5, 2, (5, 3))]
PLATFORMS = "cpu", "cuda", "tpu"
numeric = pytest.mark.numeric
every = pytest.mark.parametrize("platform", PLATFORMS)
channels = pytest.mark.parametrize("c", [THIN, THIN + 1])


@pytest.fixture
def on(monkeypatch):
  """Traces as for a platform; the CPU computes."""

  def of(platform):
    def form(*given, default, **forms):
      return forms.get(platform, default)(*given)

    monkeypatch.setattr(jax.lax, "platform_dependent", form)

  return of


def normal(*shape):
  return RNG.normal(size=shape)


def check(a, b, atol=1e-11):
  np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol)


def graded(op, weight):
  """Inputs -> the output, and the gradients of <output, weight>."""

  def scalar(*inputs):
    out = op(*inputs)
    return (out * weight).sum(), out

  def run(*inputs):
    slots = tuple(range(len(inputs)))
    graded = jax.value_and_grad(scalar, slots, has_aux=True)
    (_, out), grads = graded(*inputs)
    return out, *grads

  return run


class Example:
  """Inputs of one case; with the loops' output and gradients."""

  def __init__(self, case, depthwise, channels=THIN + 1):
    k, self.stride, size = case
    self.depthwise = depthwise
    self.x = normal(2, *size, channels)
    last = (1, channels) if depthwise else (channels, 4)
    self.kernel = normal(k, k, *last)
    forward, backward = (
      (numpy_nets.depthwise, numpy_nets.depthwise_gradients)
      if depthwise
      else (numpy_nets.conv, numpy_nets.conv_gradients)
    )
    place = self.x, self.kernel, self.stride, k // 2
    out = forward(*place)
    self.weight = normal(*out.shape)
    self.want = out, *backward(*place, self.weight)

  def op(self, x, kernel):
    """The output of images and kernels."""
    if self.depthwise:
      return depthwise(x, kernel, stride=self.stride)
    return conv2d(x, kernel, stride=self.stride)


@numeric
@every
def test_convolution_equals_the_loop(platform, on, float64):
  """Alone, and side by side with another client's kernel."""
  cases = [
    *((case, False) for case in DENSE),
    *((case, False, THIN) for case in DENSE[1:4]),
    *((case, True) for case in DEPTHWISE),
  ]
  pairs = [[Example(*case) for _ in range(2)] for case in cases]
  on(platform)

  def results(inputs):
    found = []
    for (example, _), (x, kernel) in zip(pairs, inputs, strict=True):
      run = graded(example.op, example.weight)
      found.append((run(x[0], kernel[0]), jax.vmap(run)(x, kernel)))
    return found

  inputs = [
    (np.stack([a.x, b.x]), np.stack([a.kernel, b.kernel])) for a, b in pairs
  ]
  found = jax.jit(results)(inputs)
  for (one, two), (alone, both) in zip(pairs, found, strict=True):
    # The gradients of the first: the second's weights are others.
    check(both[0][1], two.want[0])
    for got, stacked, want in zip(alone, both, one.want, strict=True):
      check(got, want)
      check(stacked[0], want)
    edges = (-(-n // one.stride) for n in one.x.shape[1:3])
    assert alone[0].shape[1:3] == tuple(edges)


def by_xla(x, kernel):
  """jax's own convolution, with jax's own gradients."""
  numbers = "NHWC", "HWIO", "NHWC"
  return jax.lax.conv_general_dilated(
    x, kernel, (1, 1), "SAME", dimension_numbers=numbers
  )


@numeric
@every
@channels
def test_shared_inputs_and_gradients_of_gradients(platform, on, c, float64):
  x = jnp.asarray(normal(2, 3, 2, 5, 4, c))
  kernel = jnp.asarray(normal(2, 3, 3, 3, c, 3) / 8)
  on(platform)

  def results(op):
    def loss(x, kernel):
      return jnp.square(jnp.sin(op(x, kernel))).sum()

    def after_a_step(x, kernel):
      dx, dkernel = jax.grad(loss, (0, 1))(x, kernel)
      return loss(x - 0.01 * dx, kernel - 0.01 * dkernel)

    graded, second = (
      jax.value_and_grad(function, (0, 1)) for function in (loss, after_a_step)
    )
    # Clients that share a kernel, or images; and as exact second-order
    # adaptation has them, over views and clients.
    return (
      jax.vmap(graded, (0, None))(x[0], kernel[0, 0]),
      jax.vmap(graded, (None, 0))(x[0, 0], kernel[0]),
      jax.vmap(jax.vmap(second))(x, kernel),
    )

  run = jax.jit(results, static_argnums=0)
  jax.tree.map(check, run(conv2d), run(by_xla))


def test_a_program_has_the_form_of_its_platform():
  """In the loop over the steps of clients that have their own kernels."""
  x, kernel = jnp.ones((2, 4, 5, 5, 9)), jnp.ones((2, 3, 3, 9, 4))

  def steps(x, kernel):
    def step(_, kernel):
      return jax.grad(lambda k: jnp.sin(conv2d(x, k)).sum())(kernel)

    return jax.lax.fori_loop(0, 2, step, kernel)

  traced, found = jax.jit(jax.vmap(steps)).trace(x, kernel), {}
  for platform in PLATFORMS:
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    groups = re.findall(r"_group_count = (\d+)", text)
    found[platform] = {*groups}, "dot_general" in text
  assert found == {
    "cpu": ({"1"}, False),  # a client at a time
    "cuda": (set(), True),
    "tpu": ({"1", "2"}, False),
  }
  # The forms of other platforms leave no trace in what is run.
  assert "conditional" not in traced.lower().compile().as_text()


@numeric
def test_a_kernels_gradient_in_parts_of_the_batch(float64):
  # Of 2,048 pixels: one part, three parts, two parts and a rest, five parts
  # where four would leave a rest; 5x5 has a form of its own.
  shapes = [(2, 3), (6, 3), (7, 3), (10, 3), (7, 5)]
  inputs = [
    (normal(n, 39, 21, 9), normal(k, k, 9, 17), normal(n, 39, 21, 17))
    for n, k in shapes
  ]

  @jax.jit
  def gradients(inputs):
    return [jax.vjp(conv2d, x, kernel)[1](g) for x, kernel, g in inputs]

  for (x, kernel, g), got in zip(inputs, gradients(inputs), strict=True):
    want = numpy_nets.conv_gradients(x, kernel, 1, len(kernel) // 2, g)
    for a, b in zip(got, want, strict=True):
      check(a, b)


@pytest.mark.slow
@numeric
def test_small_maps_of_many_channels(float64):
  # What a CPU computes in Winograd's form.
  cases = []
  for size in ((7, 7), (3, 3), (8, 4), (5, 6)):
    x, kernel = normal(16, *size, 64), normal(3, 3, 64, 65) / 17
    assert models.suits(x.shape, kernel.shape)
    cases.append((x, kernel, normal(16, *size, 65)))

  def graded(x, kernel, weight):
    out, pull = jax.vjp(conv2d, x, kernel)
    return out, pull(weight)

  run = jax.jit(lambda cases: [graded(*case) for case in cases])
  for (x, kernel, weight), (out, grads) in zip(cases, run(cases), strict=True):
    check(out, numpy_nets.conv(x, kernel, 1, 1))
    exact = numpy_nets.conv_gradients(x, kernel, 1, 1, weight)
    for a, b in zip(grads, exact, strict=True):
      check(a, b)


def test_half_precision_in_half_precision_out(on):
  x, kernel, each = (
    jnp.asarray(a, jnp.bfloat16)
    for a in (normal(2, 6, 6, 8), normal(3, 3, 8, 4), normal(3, 3, 1, 8))
  )
  x64, kernel64, each64 = (np.asarray(a, float) for a in (x, kernel, each))
  want = (
    numpy_nets.conv(x64, kernel64, 2, 1),
    numpy_nets.depthwise(x64, each64, 1, 1),
  )
  for platform in PLATFORMS:
    on(platform)
    got = conv2d(x, kernel, stride=2), depthwise(x, each)
    for a, b in zip(got, want, strict=True):
      assert a.dtype == jnp.bfloat16
      # Summed in float32, then rounded to 8 bits.
      np.testing.assert_allclose(np.asarray(a, float), b, 2**-8, 1e-3)


def test_any_number_of_images_may_be_exported():
  """To several platforms at once, each with its form."""
  # Of many channels on a small map: the number decides the form elsewhere.
  channels = 64
  (batch,) = export.symbolic_shape("b")
  x = jax.ShapeDtypeStruct((batch, 7, 7, channels), jnp.float32)
  shape = 3, 3, channels, channels
  kernel = jax.random.normal(jax.random.key(0), shape) / 24
  convolve = jax.jit(lambda x: conv2d(x, kernel))
  run = export.export(convolve, platforms=PLATFORMS)(x)
  for count in (1, 20):
    image = np.float32(normal(count, 7, 7, channels))
    want = numpy_nets.conv(image, kernel, 1, 1)
    np.testing.assert_allclose(run.call(image), want, atol=1e-3)


POOLS = {"max_pool": (2, 2, 0), "max_pool_3x3": (3, 2, 1)}
"""Name -> edge of the window, stride, margin."""


@numeric
@pytest.mark.parametrize("name", POOLS)
def test_max_pools_equal_the_loop(name, float64):
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


@numeric
def test_the_gradient_of_a_pool_has_a_gradient(float64):
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


@numeric
def test_the_first_of_equal_maxima_has_the_gradient(float64):
  x = np.zeros((1, 2, 2, 1))
  for pool in (models.max_pool, models.max_pool_3x3):
    _, dx = jax.jit(graded(pool, np.ones((1, 1, 1, 1))))(x)
    assert dx.ravel().tolist() == [1, 0, 0, 0]


@numeric
def test_what_is_not_a_number_is_the_maximum(float64):
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


@numeric
def test_adaptive_mean_pool_takes_pytorchs_windows(float64):
  sizes = [(14, 14), (7, 7), (5, 5), (1, 1), (2, 2), (14, 5), (3, 8)]
  images = [normal(2, *size, 3) for size in sizes]
  pooled = jax.jit(lambda xs: [models.adaptive_mean_pool(x, 3) for x in xs])
  for x, out in zip(images, pooled(images), strict=True):
    assert out.shape == (2, 3, 3, 3)
    check(out, looped(x, 3))
