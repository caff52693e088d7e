"""Layers of networks as splitjax convolves them and as XLA's own convolution.

  python -m benchmarks.layers [--toy]

Microseconds of a step, forward and both gradients, of 12 clients with a kernel
each and batches of 50. Convolutions of 1x1 are left out: they are products on
every platform. A line is one JSON object: backbone -> layer -> form -> time.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from benchmarks.rounds import INPUTS
from splitjax import models

BACKBONES = "vgg11", "resnet18", "mobilenet_v2"
REPEATS = 3


class Layer(NamedTuple):
  """A convolution of [B, H, W, c] with a kernel [k, k, c / groups, f]."""

  image: tuple[int, ...]
  kernel: tuple[int, ...]
  stride: int
  groups: int

  def __str__(self) -> str:
    return f"{self.image} by {self.kernel}, stride {self.stride}"


def layers(backbone: str, batch: int) -> list[Layer]:
  """Lists a network's different convolutions in the order of its blocks."""
  shape, classes = INPUTS[backbone]
  net = models.BACKBONES[backbone](shape, classes)

  def forward(full: Any, x: Any) -> Any:
    return models.run(net, full, x, net.names(), train=False)[0]

  program = jax.make_jaxpr(forward)(models.shapes(net), net.inputs(batch))
  return list(dict.fromkeys(convolutions(program.jaxpr, batch)))


def convolutions(program: Any, batch: int) -> list[Layer]:
  """Collects XLA's convolutions of a program that leave the batch first."""
  result = []
  for equation in program.eqns:
    if equation.primitive.name == "conv_general_dilated":
      image, kernel = (v.aval.shape for v in equation.invars[:2])
      if image[0] == batch:
        (stride, _) = equation.params["window_strides"]
        groups = equation.params["feature_group_count"]
        result.append(Layer(image, kernel, stride, groups))
    for inner in jaxprs_in_params(equation.params):
      result += convolutions(inner, batch)
  return result


def forms(layer: Layer) -> dict[str, Callable]:
  """Names functions (image, kernel) -> output."""
  convolve = models.depthwise if layer.groups > 1 else models.conv2d
  margin = layer.kernel[0] // 2
  own = functools.partial(
    jax.lax.conv_general_dilated,
    window_strides=(layer.stride, layer.stride),
    padding=((margin, margin), (margin, margin)),
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
    feature_group_count=layer.groups,
  )
  ours = functools.partial(convolve, stride=layer.stride)
  return {"splitjax": ours, "XLA": own}


def microseconds(
  function: Callable, layer: Layer, clients: int, steps: int
) -> float:
  """Times a step of all clients; the fastest of the repeats."""

  def client(x, kernel):
    def step(_, arrays):
      out, pull = jax.vjp(function, *arrays)
      # Too small to matter, but a loop that changes nothing is taken out.
      return jax.tree.map(lambda a, g: a - 1e-9 * g, arrays, pull(out))

    return jax.lax.fori_loop(0, steps, step, (x, kernel))

  x = jnp.ones((clients, *layer.image))
  kernel = jnp.full((clients, *layer.kernel), 0.01)
  program = jax.jit(jax.vmap(client)).lower(x, kernel).compile()
  seconds = []
  for _ in range(1 + REPEATS):
    start = time.perf_counter()
    jax.block_until_ready(program(x, kernel))
    seconds.append(time.perf_counter() - start)
  return 1e6 * min(seconds[1:]) / steps


def main() -> None:
  """Prints a line for each network."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--toy", action="store_true", help="a layer, two images")
  toy = parser.parse_args().toy
  clients, batch, steps = (1, 2, 1) if toy else (12, 50, 20)
  most = 1 if toy else None
  for backbone in BACKBONES[:most]:
    table = {
      str(layer): {
        name: microseconds(function, layer, clients, steps)
        for name, function in forms(layer).items()
      }
      for layer in layers(backbone, batch)[:most]
    }
    print(json.dumps({backbone: table}), flush=True)


if __name__ == "__main__":
  main()
