"""Convolutions of every formulation against plain loops, in float64.

All cases of a formulation are one program: compiling is what takes time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_nets
import pytest
from jax import export

from splitjax.models import convolution as conv_ops
from splitjax.models import formulations, target, windows
from splitjax.models.cpu import convolution

FORMULATIONS = ("in_turn", "patches", "native")
RNG = np.random.default_rng(0)
# Kernel, stride, padding, image. Edges are odd and even; windows hang over
# borders, up to a 5x5 one on a 3x1 image.
DENSE = [
  (1, 2, "same", (5, 3)),
  (3, 1, "same", (7, 4)),
  (3, 1, "same", (6, 6)),
  (5, 1, "same", (3, 1)),
  (3, 2, "same", (6, 6)),
  (5, 2, "same", (7, 4)),
  (7, 2, "same", (5, 3)),
  (3, 1, "valid", (6, 6)),
  (3, 2, "valid", (7, 4)),
]
DEPTHWISE = [
  (3, 1, "same", (7, 4)),
  (3, 2, "same", (6, 6)),
  (5, 2, "same", (5, 3)),
]
THIN = convolution.THIN
"""Up to these "in_turn" computes columns."""
CHANNELS = THIN + 1
numeric = pytest.mark.numeric
every = pytest.mark.parametrize("conv", FORMULATIONS)
everywhere = pytest.mark.parametrize(
  ("conv", "platform"),
  [(conv, "cpu") for conv in FORMULATIONS]
  + [("native", platform) for platform in windows.AT_KERNEL],
)


def normal(*shape):
  return RNG.normal(size=shape)


def on(platform):
  """Traces as for a platform; the CPU computes."""
  return target.aimed_at(target.current()._replace(platform=platform))


def check(a, b, atol=1e-11):
  np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol)


def graded(op, weight):
  """(x, kernel) -> the output, and both gradients of <output, weight>."""

  def scalar(x, kernel):
    out = op(x, kernel)
    return (out * weight).sum(), out

  def run(x, kernel):
    (_, out), grads = jax.value_and_grad(scalar, (0, 1), has_aux=True)(
      x, kernel
    )
    return out, *grads

  return run


class Example:
  """Inputs of one case; with the loops' output and gradients."""

  def __init__(self, case, depthwise, channels=CHANNELS):
    k, self.stride, self.padding, size = case
    self.depthwise, margin = depthwise, k // 2 if case[2] == "same" else 0
    self.x = normal(2, *size, channels)
    last = (1, channels) if depthwise else (channels, 4)
    self.kernel = normal(k, k, *last)
    forward, backward = (
      (numpy_nets.depthwise, numpy_nets.depthwise_gradients)
      if depthwise
      else (numpy_nets.conv, numpy_nets.conv_gradients)
    )
    place = self.x, self.kernel, self.stride, margin
    out = forward(*place)
    self.weight = normal(*out.shape)
    self.want = out, *backward(*place, self.weight)

  def op(self, conv):
    """(x, kernel) -> output, of a formulation."""
    if self.depthwise:
      return lambda x, kernel: conv_ops.depthwise(
        x, kernel, stride=self.stride, conv=conv
      )
    return lambda x, kernel: conv_ops.conv2d(
      x, kernel, stride=self.stride, padding=self.padding, conv=conv
    )


@numeric
@every
def test_convolution_equals_the_loop(conv, float64):
  examples = [Example(case, False) for case in DENSE]
  examples += [Example(case, False, THIN) for case in DENSE[1:4]]
  examples += [Example(case, True) for case in DEPTHWISE]

  def all_of_them(inputs):
    return [
      graded(e.op(conv), e.weight)(*own)
      for e, own in zip(examples, inputs, strict=True)
    ]

  found = jax.jit(all_of_them)([(e.x, e.kernel) for e in examples])
  for example, got in zip(examples, found, strict=True):
    for a, b in zip(got, example.want, strict=True):
      check(a, b)
    if example.padding == "same":
      edges = (-(-n // example.stride) for n in example.x.shape[1:3])
      assert got[0].shape[1:3] == tuple(edges)


@numeric
@everywhere
def test_every_client_may_have_its_own_kernel(conv, platform, float64):
  examples = [
    [Example(*case) for _ in range(2)]
    for case in [
      (DENSE[1], False),
      (DENSE[1], False, THIN),
      (DENSE[4], False),
      (DENSE[8], False),
      (DEPTHWISE[1], True),
    ]
  ]

  def all_of_them(inputs):
    return [
      jax.vmap(graded(twins[0].op(conv), twins[0].weight))(*own)
      for twins, own in zip(examples, inputs, strict=True)
    ]

  inputs = [
    (np.stack([a.x, b.x]), np.stack([a.kernel, b.kernel])) for a, b in examples
  ]
  with on(platform):
    found = jax.jit(all_of_them)(inputs)
  for twins, got in zip(examples, found, strict=True):
    check(got[0][0], twins[0].want[0])
    check(got[0][1], twins[1].want[0])
    # The gradients of the first: the second's weights are others.
    check(got[1][0], twins[0].want[1])
    check(got[2][0], twins[0].want[2])


@numeric
def test_clients_may_share_a_kernel_or_images(float64):
  inputs = [
    (normal(3, 2, 5, 4, channels), normal(3, 3, 3, channels, 4))
    for channels in (THIN, CHANNELS)
  ]

  def both(conv, inputs):
    def loss(x, k):
      return jnp.sin(conv_ops.conv2d(x, k, conv=conv)).sum()

    one = jax.value_and_grad(loss, (0, 1))
    kernels = [jax.vmap(one, (0, None))(x, kernel[0]) for x, kernel in inputs]
    return kernels, [jax.vmap(one, (None, 0))(x[0], k) for x, k in inputs]

  run = jax.jit(both, static_argnums=0)
  jax.tree.map(check, run("in_turn", inputs), run("native", inputs))


@numeric
def test_clients_of_clients_and_gradients_of_gradients(float64):
  # As exact second-order adaptation has them, vmapped over views and clients.
  inputs = [
    (normal(2, 3, 2, 4, 4, channels), normal(2, 3, 3, 3, channels, 3) / 8)
    for channels in (THIN, CHANNELS)
  ]

  def after_a_step(conv, inputs):
    def loss(x, kernel):
      out = conv_ops.conv2d(x, kernel, conv=conv)
      return jnp.square(jnp.sin(out)).sum()

    def one(x, kernel):
      dx, dkernel = jax.grad(loss, (0, 1))(x, kernel)
      return loss(x - 0.01 * dx, kernel - 0.01 * dkernel)

    each = jax.vmap(jax.vmap(jax.value_and_grad(one, (0, 1))))
    return [each(x, kernel) for x, kernel in inputs]

  run = jax.jit(after_a_step, static_argnums=0)
  want = run("native", inputs)
  jax.tree.map(check, run("in_turn", inputs), want)
  with on("gpu"):
    assert run.lower("native", inputs).as_text().count("dot_general") > 2
    jax.tree.map(check, run("native", inputs), want)


def test_auto_is_resolved_and_a_choice_is_kept():
  for platform, form in (("cpu", "in_turn"), ("gpu", "native")):
    with on(platform):
      assert formulations.formulation("auto") == form
  for conv in FORMULATIONS:
    assert formulations.formulation(conv) == conv


def test_what_was_traced_for_one_target_is_not_taken_for_another():
  pool, x = jax.jit(conv_ops.max_pool), jnp.ones((1, 4, 4, conv_ops.WIDE))
  mine = pool.lower(x).as_text()
  with on("tpu"):
    assert pool.lower(x).as_text() != mine
  assert pool.lower(x).as_text() == mine


def test_half_precision_in_half_precision_out():
  x, kernel, each = (
    jnp.asarray(a, jnp.bfloat16)
    for a in (normal(2, 6, 6, 8), normal(3, 3, 8, 4), normal(3, 3, 1, 8))
  )

  def all_of_them(x, kernel, each):
    return [
      (
        conv_ops.conv2d(x, kernel, stride=2, conv=conv),
        conv_ops.depthwise(x, each, conv=conv),
      )
      for conv in FORMULATIONS
    ]

  x64, kernel64, each64 = (np.asarray(a, float) for a in (x, kernel, each))
  want = (
    numpy_nets.conv(x64, kernel64, 2, 1),
    numpy_nets.depthwise(x64, each64, 1, 1),
  )
  for got in jax.jit(all_of_them)(x, kernel, each):
    for a, b in zip(got, want, strict=True):
      assert a.dtype == jnp.bfloat16
      # Summed in float32, then rounded to 8 bits.
      np.testing.assert_allclose(np.asarray(a, float), b, 2**-8, 1e-3)


def test_any_number_of_images_may_be_exported():
  # Of many channels on a small map: the number decides the form elsewhere.
  channels = 64
  (batch,) = export.symbolic_shape("b")
  x = jax.ShapeDtypeStruct((batch, 7, 7, channels), jnp.float32)
  shape = 3, 3, channels, channels
  kernel = jax.random.normal(jax.random.key(0), shape) / 24

  def convolve(x):
    return [conv_ops.conv2d(x, kernel, conv=conv) for conv in FORMULATIONS]

  run = export.export(jax.jit(convolve))(x)
  for count in (1, 20):
    image = np.float32(normal(count, 7, 7, channels))
    want = numpy_nets.conv(image, kernel, 1, 1)
    for got in run.call(image):
      np.testing.assert_allclose(got, want, atol=1e-3)
