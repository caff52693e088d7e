"""Sizes of a network without computing it: shapes, parameters, FLOPs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from splitjax import target
from splitjax.models import network
from splitjax.models.network import Backbone, Block, draw_block
from splitjax.types import Net, Tree, UserError


def shapes(backbone: Backbone) -> Net:
  """Makes the whole network, with a `jax.ShapeDtypeStruct` for each array."""
  params = dict[str, Tree]()
  stats = dict[str, Tree]()

  def look(name: str, x: Any) -> Any:
    x, params[name], stats[name] = block_shapes(backbone.block(name), x)
    return x

  network.walk(backbone, look, backbone.inputs(1))
  return Net(params, stats)


def parameters(backbone: Backbone) -> dict[str, int]:
  """Counts the parameters, without statistics, of each block, exit and head."""
  return {
    name: sum(leaf.size for leaf in jax.tree.leaves(tree))
    for name, tree in shapes(backbone).params.items()
  }


def outputs(backbone: Backbone) -> dict[str, tuple[int, ...]]:
  """Finds each block's output shape for one input, in the blocks' order."""
  x = backbone.inputs(1)
  out = dict[str, tuple[int, ...]]()
  for name, block in backbone.blocks.items():
    x, *_ = block_shapes(block, x)
    out[name] = x.shape[1:]
  return out


def parts_at(backbone: Backbone, depth: int) -> dict[str, Any]:
  """Describes a cut: its depth, the client's last block and the block's output.

  "phi", "h" and "theta" are the parameters of the client's blocks, of its exit
  and of the server's part.
  """
  size = parameters(backbone)
  last_block = backbone.names()[depth - 1]
  return {
    "depth": depth,
    "last_block": last_block,
    "phi": sum(size[name] for name in backbone.names(0, depth)),
    "h": size[network.exit_name(depth)],
    "theta": sum(size[name] for name in (*backbone.names(depth), "head")),
    "output": list(outputs(backbone)[last_block]),
  }


@functools.lru_cache(maxsize=64)
def flops(backbone: Backbone) -> dict[str, float]:
  """Counts FLOPs of one input's forward pass, by block, exit or head name.

  Each block is lowered for a TPU, for which alone all convolutions are XLA's
  own: the forms that `models.conv` has for a CPU and a GPU compute other FLOPs.
  No TPU is needed. Nothing is compiled, the CPU's cost analysis counts, and the
  numbers are those of every machine. UserError if JAX has no CPU, or no
  analysis for it.
  """
  full = shapes(backbone)
  counts = dict[str, float]()

  def count(name: str, x: Any) -> Any:
    def apply(segment, x):
      return network.run(backbone, segment, x, (name,), train=False)[0]

    with jax.default_device(target.host()):
      traced = jax.jit(apply).trace(network.select(full, (name,)), x)
      lowered = traced.lower(lowering_platforms=("tpu",))
    analysis = lowered.cost_analysis()
    if analysis is None:
      raise UserError("FLOPs are not known: jax has no analysis for the CPU")
    counts[name] = float(analysis.get("flops", 0.0))  # absent if there are none
    return block_shapes(backbone.block(name), x)[0]

  network.walk(backbone, count, backbone.inputs(1))
  return counts


def flops_of_cut(backbone: Backbone, depth: int) -> tuple[float, float]:
  """Counts FLOPs of one input's forward pass at client and at server.

  The client's part includes its exit, or the head of a whole network.
  """
  counts = flops(backbone)
  at_client = sum(counts[name] for name in backbone.names(0, depth))
  at_client += counts.get(network.classifier_at(backbone, depth), 0.0)
  if depth == backbone.length:
    return at_client, 0.0
  at_server = sum(counts[name] for name in (*backbone.names(depth), "head"))
  return at_client, at_server


def slow_convolutions(backbone: Backbone) -> str:
  """Says which blocks have convolutions that are slow on a CPU; "" if none.

  Those of flax and lax are slow in the loop over a client's steps there.
  """
  names = list[str]()

  def look(name: str, x: Any) -> Any:
    draw = functools.partial(draw_block, backbone.block(name))
    if _convolves(jax.make_jaxpr(draw)(jax.random.key(0), x).jaxpr):
      names.append(name)
    return block_shapes(backbone.block(name), x)[0]

  if target.current().platform == "cpu":
    network.walk(backbone, look, backbone.inputs(1))
  if not names:
    return ""
  return (
    f"the convolutions of {', '.join(names)} are slow on a CPU: a round takes a"
    " quarter of the time with splitjax.models.layers.Conv for images and with"
    " dense layers on splitjax.models.windows for series"
  )


def _convolves(program: Any) -> bool:
  """Tells whether a program has convolutions that are not `models.conv`'s.

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


def block_shapes(block: Block, x: Any) -> tuple[Any, Any, Any]:
  """Finds shapes and dtypes of `draw_block`'s results for an input like x."""
  return _block_shapes(block, x.shape, x.dtype, jnp.result_type(float))


@functools.lru_cache(maxsize=1024)
def _block_shapes(block: Block, shape: tuple, dtype: Any, default: Any):
  """Computes `block_shapes`."""
  del default  # an argument so that another default float misses the cache
  x = jax.ShapeDtypeStruct(shape, dtype)
  return jax.eval_shape(lambda x: draw_block(block, jax.random.key(0), x), x)
