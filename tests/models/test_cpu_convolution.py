"""The CPU's convolutions: gradients in parts, and Winograd's form."""

import jax
import numpy as np
import numpy_nets
import pytest

from splitjax.models import convolution as conv_ops
from splitjax.models.cpu import convolution, winograd

numeric = pytest.mark.numeric
RNG = np.random.default_rng(0)


def normal(*shape):
  return RNG.normal(size=shape)


def check(a, b):
  np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


@numeric
def test_a_kernels_gradient_in_parts_of_the_batch(float64, monkeypatch):
  monkeypatch.setattr(convolution, "PIXELS", 50)
  # One part, three parts, two parts and a rest, five parts where four would
  # leave a rest; 5x5 has a form of its own.
  shapes = [(2, 3), (6, 3), (7, 3), (10, 3), (7, 5)]
  inputs = [
    (normal(n, 5, 4, 9), normal(k, k, 9, 17), normal(n, 5, 4, 17))
    for n, k in shapes
  ]

  @jax.jit
  def gradients(inputs):
    return [
      jax.vjp(convolution.conv2d, x, kernel)[1](g) for x, kernel, g in inputs
    ]

  for (x, kernel, g), got in zip(inputs, gradients(inputs), strict=True):
    want = numpy_nets.conv_gradients(x, kernel, 1, len(kernel) // 2, g)
    for a, b in zip(got, want, strict=True):
      check(a, b)


@pytest.mark.slow
@numeric
def test_small_maps_of_many_channels(float64):
  # What "in_turn" computes in Winograd's form.
  cases = []
  for size in ((7, 7), (3, 3), (8, 4), (5, 6)):
    x, kernel = normal(16, *size, 64), normal(3, 3, 64, 65) / 17
    assert winograd.suits(x.shape, kernel.shape)
    cases.append((x, kernel, normal(16, *size, 65)))

  def graded(x, kernel, weight):
    out, pull = jax.vjp(
      lambda x, k: conv_ops.conv2d(x, k, conv="in_turn"), x, kernel
    )
    return out, pull(weight)

  run = jax.jit(lambda cases: [graded(*case) for case in cases])
  for (x, kernel, weight), (out, grads) in zip(cases, run(cases), strict=True):
    check(out, numpy_nets.conv(x, kernel, 1, 1))
    exact = numpy_nets.conv_gradients(x, kernel, 1, 1, weight)
    for a, b in zip(grads, exact, strict=True):
      check(a, b)
