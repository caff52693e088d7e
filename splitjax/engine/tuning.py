"""Times each convolution of a network in every formulation, on the device.

A layer is timed as a round computes it: in the body of a loop, for several
clients side by side, each with its own kernel. A step computes the convolution
and its gradients with respect to images and kernel.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from splitjax.engine import base, sharding
from splitjax.models import convolution, drawing, formulations, target
from splitjax.models.backbones import Backbone
from splitjax.models.block import draw_block
from splitjax.models.formulations import Conv, Layer
from splitjax.types import Array

SECONDS, RUNS, MOST = 0.05, 3, 100
"""A run takes as many steps as fill SECONDS, at most MOST. The fastest of RUNS
runs gives the time."""

BEHIND = 4
"""The first step of a formulation is the only one timed if it takes longer than
SECONDS and longer than 2 x BEHIND steps of the fastest formulation so far."""


def layers(net: Backbone, batch: int) -> dict[Layer, int]:
  """Maps each distinct convolution of a network to the most images it gets.

  Convolutions are found if `splitjax.models.layers` or `convolution` made them
  and the config leaves their formulation open. 1x1 convolutions that are not
  depthwise are left out, because all formulations of them are the same product.
  Nothing is computed.
  """

  def trace(name: str, x: Any) -> Any:
    block, key = net.block(name), jax.random.key(0)
    return jax.eval_shape(lambda x: draw_block(block, key, x)[0], x)

  with formulations.listening() as heard:
    drawing.walk(net, trace, net.inputs(batch))
  return heard


def microseconds(
  layer: Layer, images: int, clients: int
) -> dict[str, float | None]:
  """Times a layer: formulation -> microseconds of a step of all clients.

  None stands for a formulation that the compiler or the memory refuses.
  """
  found: dict[str, float | None] = {}
  for conv in layer.formulations:
    limit = BEHIND * min(filter(None, found.values()), default=math.inf)
    try:
      found[conv] = round(
        1e6 * _seconds(layer, conv, images, clients, limit), 1
      )
    except jax.errors.JaxRuntimeError:
      found[conv] = None
  return found


def fastest(times: Mapping[Any, float | None]) -> Any:
  """Returns the formulation with the least time; None if none has a time."""
  sound = {conv: time for conv, time in times.items() if time is not None}
  return min(sound, key=sound.__getitem__, default=None)


def _seconds(
  layer: Layer, conv: Conv, images: int, clients: int, limit: float
) -> float:
  """Times a step; returns seconds.

  Only the first step is timed if it takes longer than SECONDS and longer than
  twice `limit`, which is in microseconds.
  """
  where = target.current().local[0]

  def full(shape: tuple[int, ...], value: float) -> Array:
    return jnp.full((clients, *shape), value, layer.dtype, device=where)

  given = full((images, *layer.image), 0.5), full(layer.kernel, 0.01)
  # A rate of 0 leaves the numbers as they are.
  rate = jax.device_put(jnp.zeros((), layer.dtype), where)
  program = jax.jit(steps(layer, conv))
  run = program.lower(*given, rate, 1).compile(sharding.quick_options())

  def timed(count: int) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(run(*given, rate, count))
    return time.perf_counter() - begun

  cold = timed(1)
  if cold > max(SECONDS, 2e-6 * limit):
    return cold
  once = timed(1)
  count = min(MOST, math.ceil(SECONDS / once))
  return min(timed(count) for _ in range(RUNS)) / count


def steps(layer: Layer, conv: Conv) -> Callable[..., tuple[Array, Array]]:
  """Makes a function that takes `count` gradient steps of a layer.

  The function is (images, kernels, rate, count) -> (images, kernels). It is for
  n clients: images are [n, B, H, W, c], kernels [n, k, k, c, f].
  """

  def convolve(x: Array, kernel: Array) -> Array:
    if layer.depthwise:
      return convolution.depthwise(x, kernel, stride=layer.stride, conv=conv)
    return convolution.conv2d(
      x, kernel, stride=layer.stride, padding=layer.padding, conv=conv
    )

  def program(images, kernels, rate, count):
    def of_client(given):
      def step(_, held):
        out, pull = jax.vjp(convolve, *held)
        return jax.tree.map(lambda x, dx: x - rate * dx, held, pull(out))

      return jax.lax.fori_loop(0, count, step, given)

    return base.over_clients(of_client, (images, kernels))

  return program
