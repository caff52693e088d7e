"""Every formulation of the convolutions of HARMONY's backbones, layer by layer.

  python -m benchmarks.layers [--clients=10] [--batch=50] [--minutes=5] \
      [--backbones cnn8 ...] [--dtypes float32 bfloat16] [--quick]

Forward and both gradients, vmapped over clients with kernels of their own, in a
scan as local steps are; the layers are those that a backbone traces, each as
often as it has it. 1x1 convolutions are matrix products in every formulation
and left out, and a ViT has none. Formulations run in turn. When the minutes are
over, what is left is listed as not measured. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.compile_time import INPUTS
from benchmarks.setting import machine
from splitjax import BACKBONES
from splitjax.models import backbone as bb
from splitjax.models import conv
from splitjax.types import Segment

FORMS = "native", "patches", "in_turn"
STEPS = 4
"""Local steps in one scan."""


class Layer(NamedTuple):
  """A convolution.

  Attributes:
    image: (H, W, c) of its input.
    kernel: (k, k, c, f), c = 1 if depthwise.
    stride: of the windows.
    depthwise: every channel has a filter of its own.
    valid: without padding.
  """

  image: tuple[int, int, int]
  kernel: tuple[int, int, int, int]
  stride: int
  depthwise: bool
  valid: bool

  def __str__(self):
    h, w, c = self.image
    k, f = self.kernel[0], self.kernel[-1]
    kind = "depthwise" if self.depthwise else f"{c}->{f}"
    return f"{h}x{w}x{c} {k}x{k} {kind} /{self.stride}"

  @property
  def forms(self) -> tuple[str, ...]:
    """The formulations that differ here."""
    plain = self.stride == 1 and not self.depthwise and not self.valid
    return FORMS if plain else FORMS[:2]


def inner(value: Any) -> Iterator[Any]:
  """The jaxprs in a parameter of an equation."""
  for leaf in value if isinstance(value, (tuple, list)) else [value]:
    leaf = getattr(leaf, "jaxpr", leaf)
    if hasattr(leaf, "eqns"):
      yield leaf


def convolutions(jaxpr: Any) -> Iterator[Layer]:
  """All that a jaxpr computes, as often as it does."""
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == "conv_general_dilated":
      x, kernel = (v.aval.shape for v in eqn.invars)
      yield Layer(
        x[1:],
        kernel,
        eqn.params["window_strides"][0],
        eqn.params["feature_group_count"] > 1,
        not any(map(any, eqn.params["padding"])),
      )
    for value in eqn.params.values():
      for sub in inner(value):
        yield from convolutions(sub)


def layers(name: str) -> Counter[Layer]:
  """The convolutions of a backbone -> how often it has them."""
  shape, classes = INPUTS[name]
  net = BACKBONES[name](shape, classes, conv="native")
  full = jax.eval_shape(lambda: bb.init(net, jax.random.key(0)))

  def forward(params, stats, x):
    names = (*net.names(), "head")
    return bb.run(net, Segment(params, stats), x, names, train=True)[0]

  x = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
  return Counter(convolutions(jax.make_jaxpr(forward)(*full, x).jaxpr))


def program(layer: Layer, form: Any, n: int, batch: int, dtype: str):
  """Compiles STEPS of a layer's forward and backward passes for n clients."""
  padding: Any = "valid" if layer.valid else "same"

  def convolve(x, kernel):
    if layer.depthwise:
      return conv.depthwise(x, kernel, stride=layer.stride, conv=form)
    return conv.conv2d(
      x, kernel, stride=layer.stride, padding=padding, conv=form
    )

  def one(x, kernel):
    def step(pair, _):
      y, pull = jax.vjp(convolve, *pair)
      # Each step needs the last one's gradients: nothing is left out.
      new = (a - 1e-3 * da for a, da in zip(pair, pull(y), strict=True))
      return tuple(a.astype(dtype) for a in new), None

    return jax.lax.scan(step, (x, kernel), None, STEPS)[0]

  x = jax.random.normal(jax.random.key(0), (n, batch, *layer.image), dtype)
  kernel = jax.random.normal(jax.random.key(1), (n, *layer.kernel), dtype)
  kernel = 0.1 * kernel
  compiled = jax.jit(jax.vmap(one)).lower(x, kernel).compile()
  return lambda: jax.block_until_ready(compiled(x, kernel))


def in_turn(runs: dict[str, Callable], repeats: int) -> dict[str, float]:
  """Median milliseconds of each of several programs, run in turn."""
  took: dict[str, list[float]] = {name: [] for name in runs}
  for i in range(repeats + 1):  # the first warms up
    for name, run in runs.items():
      start = time.perf_counter()
      run()
      if i:
        took[name].append(1e3 * (time.perf_counter() - start))
  return {name: statistics.median(ms) for name, ms in took.items()}


def measure(layer: Layer, dtype: str, given) -> dict[str, float]:
  """Milliseconds a client-step of each formulation that differs."""
  runs = {
    form: program(layer, form, given.clients, given.batch, dtype)
    for form in layer.forms
  }
  result = in_turn(runs, given.repeats)
  return {form: ms / STEPS / given.clients for form, ms in result.items()}


def backbone_rows(name: str, dtype: str, given, end: float) -> dict:
  """Measures and prints a backbone's layers."""
  rows: dict[str, dict] = {}
  total: dict[str, float] = dict.fromkeys(FORMS, 0.0)
  missing: dict[str, str] = {}
  for layer, count in list(layers(name).items())[: given.layers]:
    if time.monotonic() > end:
      missing[str(layer)] = "the time was over"
      continue
    try:
      each = measure(layer, dtype, given)
    except jax.errors.JaxRuntimeError as error:  # no memory for it, say
      missing[str(layer)] = str(error).splitlines()[0]
      continue
    rows[str(layer)] = {"count": count, **each}
    for form in FORMS:
      total[form] += count * each.get(form, each["patches"])
    cells = "".join(f"{each.get(f, float('nan')):12.4f}" for f in FORMS)
    print(f"  {str(layer):32}{count:4}{cells}", flush=True)
  cells = "".join(f"{total[form]:12.4f}" for form in FORMS)
  print(f"{name + ', ' + dtype:38}{cells}")
  for layer, why in missing.items():
    print(f"  {layer} not measured: {why}")
  return {"layers": rows, "total": total, "not_measured": missing}


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  usual = ["cnn8", "vgg11", "mobilenet_v2", "resnet50"]
  parser.add_argument("--backbones", nargs="+", default=usual)
  both = ["float32", "bfloat16"]
  parser.add_argument("--dtypes", nargs="+", default=both)
  parser.add_argument("--clients", type=int, default=10)
  parser.add_argument("--batch", type=int, default=50)
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--layers", type=int, help="the first of each, alone")
  parser.add_argument("--minutes", type=float, default=1e9)
  parser.add_argument("--quick", action="store_true", help="one layer, tiny")
  given = parser.parse_args()
  if given.quick:
    given.backbones, given.dtypes, given.layers = ["cnn8"], ["float32"], 1
    given.clients, given.batch, given.repeats = 2, 4, 2
  end = time.monotonic() + 60 * given.minutes
  heads = "".join(f"{form:>12}" for form in FORMS)
  print(f"{'ms a client-step':34}{'x':>4}{heads}")
  result = {
    f"{name}, {dtype}": backbone_rows(name, dtype, given, end)
    for dtype in given.dtypes
    for name in given.backbones
  }
  print(json.dumps({"milliseconds": result, **machine(), **vars(given)}))


if __name__ == "__main__":
  main()
