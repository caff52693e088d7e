"""Shapes and sizes of a network; nothing is computed."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from splitjax import trees
from splitjax.models import backbones, drawing, formulations, target, windows
from splitjax.models.backbones import Backbone
from splitjax.models.block import Block, draw_block
from splitjax.types import Array, Segment, Tree

PRODUCTS = ("conv_general_dilated", "dot_general")
"""Primitives of convolutions and of matrix products."""

LANES = 128
"""How many numbers lie side by side along the lanes of a TPU's register."""


def network(backbone: Backbone) -> Segment:
  """Makes the whole network, with a `jax.ShapeDtypeStruct` for each array."""
  return _abstract(backbone)[0]


def parameters(backbone: Backbone) -> dict[str, int]:
  """Counts the parameters of each block, exit and head.

  Running statistics are not counted.
  """
  full = network(backbone)
  return {name: trees.size(tree) for name, tree in full.params.items()}


def outputs(backbone: Backbone) -> dict[str, tuple[int, ...]]:
  """Finds each block's output shape for one input, in the blocks' order."""
  return {name: x.shape[1:] for name, x in _abstract(backbone)[1].items()}


def parts_at(backbone: Backbone, depth: int) -> dict[str, Any]:
  """Describes a cut: the block before it, sizes of the parts, features' shape.

  Returns:
    A dict with "depth"; "behind", the name of the block before the cut; "phi",
    "h" and "theta", the numbers of parameters of the client's blocks, of its
    exit and of the server's part; "cut", the shape of a sample's features.
  """
  size, behind = parameters(backbone), backbone.names()[depth - 1]
  return {
    "depth": depth,
    "behind": behind,
    "phi": sum(size[name] for name in backbone.names(0, depth)),
    "h": size[backbones.exit_name(depth)],
    "theta": sum(size[name] for name in (*backbone.names(depth), "head")),
    "cut": list(outputs(backbone)[behind]),
  }


def activations(backbone: Backbone) -> int:
  """Counts the bytes of activations that a backward pass needs per sample.

  The result is the smaller of two estimates:

  1. The bytes of what `jax.vjp` keeps.
  2. The bytes of all arrays that products and convolutions read and write, plus
     twice the bytes of the largest of these arrays, for two gradients. Results
     of elementwise operations in between, such as a normalisation, are left
     out: XLA computes them again in the backward pass. On a TPU it also
     computes again what products and convolutions read, so only the arrays that
     they write are in the sum.

  On a GPU `windows.native` also makes columns for the gradient of a kernel. The
  columns of the largest convolution are added to the first estimate. The second
  estimate includes these columns or the two gradients, whichever take more.
  """
  return _activations(backbone, target.current(), jnp.result_type(float))


@functools.lru_cache(maxsize=64)
def _activations(backbone: Backbone, goal: target.Target, default: Any) -> int:
  """Computes `activations`, cached per network, target and default float."""
  del default
  full = network(backbone)

  def kept(params, stats, x):
    return jax.vjp(lambda p: _forward(backbone, p, stats, x), params)[1]

  def count(images):
    found = jax.eval_shape(kept, *full, backbone.inputs(images))
    return trees.num_bytes(found)

  residuals = count(2) - count(1)  # what grows with the batch
  products, columns = of_products(backbone), 0
  if windows.AT_KERNEL.get(goal.platform) == "dense":
    columns = max(_of_each_image(backbone, _columns), default=0)
  if not products:
    return residuals
  gradients = max(2 * max(products), columns)
  return min(residuals + columns, sum(products) + gradients)


def of_products(
  backbone: Backbone, names: Sequence[str] = PRODUCTS
) -> list[int]:
  """Lists the bytes of the arrays that some primitives read and write.

  Each number is the bytes that one more sample adds to an array; it is 0 for
  parameters. On a TPU the list has only the arrays that are written, and the
  last axis of a product is rounded up to whole lanes.

  Args:
    backbone: the network, whose forward pass is searched.
    names: names of the primitives to find in it.
  """
  fused = target.current().platform == "tpu"

  def of(equation):
    if equation.primitive.name not in names:
      return []
    arrays = (*(() if fused else equation.invars), *equation.outvars)
    lanes = LANES if fused and equation.primitive.name == "dot_general" else 1
    return [_bytes(x.aval, lanes) for x in arrays]

  return _of_each_image(backbone, of)


def _bytes(x: Any, lanes: int) -> int:
  """Counts an array's bytes, its last axis padded to a multiple of `lanes`."""
  last = x.shape[-1] if x.shape else 1
  return x.size // last * -(-last // lanes) * lanes * x.dtype.itemsize


def _forward(backbone: Backbone, params: Tree, stats: Tree, x: Array) -> Array:
  """Runs the whole network without exits."""
  segment, names = Segment(params, stats), (*backbone.names(), "head")
  key = jax.random.key(0)
  return backbones.run(backbone, segment, x, names, train=True, key=key)[0]


def _columns(equation: Any) -> list[int]:
  """Lists how many bytes a convolution's columns take; [] for other primitives.

  Columns are the array of all neighbourhoods that a kernel is applied to.
  """
  if equation.primitive.name != "conv_general_dilated":
    return []
  kernel, out = equation.invars[1].aval, equation.outvars[0].aval
  pixels = out.size // kernel.shape[-1]
  return [pixels * math.prod(kernel.shape[:-1]) * out.dtype.itemsize]


def _of_each_image(
  backbone: Backbone, of: Callable[[Any], list[int]]
) -> list[int]:
  """Lists the bytes by which arrays of the forward pass grow per sample.

  `of` maps an equation to the bytes of its arrays. Arrays that do not grow with
  the batch, such as parameters, have 0.
  """
  one, two = _forward_passes(backbone, target.current(), jnp.result_type(float))

  def within(program):
    found = list[int]()
    for equation in program.eqns:
      found += of(equation)
      times = equation.params.get("length", 1)
      for inside in jaxprs_in_params(equation.params):
        found += within(inside) * times
    return found

  grown = np.array(within(two), int) - np.array(within(one), int)
  return [int(x) for x in grown]


@functools.lru_cache(maxsize=16)
def _forward_passes(backbone: Backbone, *_: Any) -> tuple[Any, Any]:
  """Traces forward passes of one and two samples; `_` only keys the cache."""

  def of(count):
    given = *network(backbone), backbone.inputs(count)
    return jax.make_jaxpr(functools.partial(_forward, backbone))(*given).jaxpr

  return of(1), of(2)


def slow_convolutions(
  backbone: Backbone, how: formulations.Conv = "auto"
) -> str:
  """Says which blocks have convolutions that are slow on a CPU; "" if none.

  Convolutions of flax and lax are slow in the loop over a client's steps. `how`
  is the formulation that could replace them. If it does not resolve to
  "in_turn", the result is "" too.
  """
  if formulations.formulation(how) != "in_turn":
    return ""
  found = []

  def look(name: str, x: Any) -> Any:
    if _block_convolves(backbone.block(name), x.shape, x.dtype):
      found.append(name)
    return drawn(backbone.block(name), x)[0]

  drawing.walk(backbone, look, backbone.inputs(1))
  if not found:
    return ""
  return (
    f"the convolutions of {', '.join(found)} are slow on a CPU: a round takes a"
    " quarter of the time, or less, with splitjax.models.layers.Conv"
  )


@functools.lru_cache(maxsize=1024)
def _block_convolves(block: Block, shape: tuple, dtype: Any) -> bool:
  x, key = jax.ShapeDtypeStruct(shape, dtype), jax.random.key(0)
  program = jax.make_jaxpr(lambda x: draw_block(block, key, x))(x)
  return _convolves(program.jaxpr)


def _convolves(program: Any) -> bool:
  """Tells whether a jaxpr has a convolution that is not from `models.cpu`.

  It skips functions with custom gradients, such as those of `models.cpu`.
  """
  for equation in program.eqns:
    name = equation.primitive.name
    if name == "conv_general_dilated":
      return True
    if name.startswith("custom_vjp"):
      continue
    if any(map(_convolves, jaxprs_in_params(equation.params))):
      return True
  return False


def _abstract(backbone: Backbone) -> tuple[Segment, dict[str, Any]]:
  """Finds the shapes that `each_block` returns; traces equal blocks once."""
  return drawing.each_block(
    backbone,
    lambda name, x: drawn(backbone.block(name), x),
    backbone.inputs(1),
  )


def drawn(block: Block, x: Any) -> tuple[Any, Any, Any]:
  """Finds shapes and dtypes of `draw_block`'s results for an input like x."""
  return _abstract_block(block, x.shape, x.dtype, jnp.result_type(float))


@functools.lru_cache(maxsize=1024)
def _abstract_block(block: Block, shape: tuple, dtype: Any, default: Any):
  """Computes `drawn`, cached per block, shape, dtype and default float."""
  del default
  x = jax.ShapeDtypeStruct(shape, dtype)
  return jax.eval_shape(lambda x: draw_block(block, jax.random.key(0), x), x)
