"""Random initialisation of a network, by a walk over blocks, exits and head."""

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from splitjax.models.backbones import Backbone
from splitjax.models.block import draw_block, exit_name, redraw
from splitjax.types import Array, Net, Tree


def init(backbone: Backbone, key: Array) -> Net:
  """Initialises all blocks, all exits and the head at random from a key []."""

  def draw(name, x):
    # Keyed by name, so that the choice of exits changes no other block.
    mine = jax.random.fold_in(key, zlib.crc32(name.encode()))
    x, params, stats = draw_block(backbone.block(name), mine, x)
    if backbone.draws == "torch":
      params = redraw(params, mine)
    return x, params, stats

  one = backbone.inputs(1)
  return each_block(backbone, draw, jnp.zeros(one.shape, one.dtype))[0]


def each_block(
  backbone: Backbone, draw: Callable[..., tuple], x: Any
) -> tuple[Net, dict[str, Any]]:
  """Calls `draw` for all blocks, all exits and the head.

  Args:
    backbone: the network.
    draw: (name, input) -> output, parameters, running statistics.
    x: as in `walk`.

  Returns:
    All parameters and running statistics, and block name -> output.
  """
  params, stats, out = dict[str, Tree](), dict[str, Tree](), dict[str, Any]()

  def visit(name, x):
    x, params[name], stats[name] = draw(name, x)
    if name in backbone.blocks:
      out[name] = x
    return x

  walk(backbone, visit, x)
  return Net(params, stats), out


def walk(backbone: Backbone, visit: Callable[[str, Any], Any], x: Any) -> None:
  """Visits all blocks, exits and the head, in order.

  Args:
    backbone: the network.
    visit: (name, input) -> output.
    x: [B, ...] input of the first block, or its shape and dtype.
  """
  for depth, name in enumerate(backbone.names(), start=1):
    x = visit(name, x)
    if depth in backbone.exits:
      visit(exit_name(depth), x)
  visit("head", x)
