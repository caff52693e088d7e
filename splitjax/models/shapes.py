"""Shapes and sizes of a network; nothing is computed."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from splitjax import trees
from splitjax.models import backbones, drawing, target
from splitjax.models.backbones import Backbone
from splitjax.models.block import Block, draw_block
from splitjax.types import Net


def network(backbone: Backbone) -> Net:
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


def slow_convolutions(backbone: Backbone) -> str:
  """Says which blocks have convolutions that are slow on a CPU; "" if none.

  Convolutions of flax and lax are slow in the loop over a client's steps there.
  On other devices the result is "".
  """
  if target.current().platform != "cpu":
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
  """Tells whether a jaxpr has a convolution that is not `models.conv`'s.

  It skips functions with custom gradients, such as those of `models.conv`.
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


def _abstract(backbone: Backbone) -> tuple[Net, dict[str, Any]]:
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
