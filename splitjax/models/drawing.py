"""Draws a network, by a walk over its blocks, exits and head."""

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from splitjax.models.backbones import Backbone
from splitjax.models.block import draw_block, exit_name, redraw
from splitjax.types import Array, Segment, Tree


def init(backbone: Backbone, key: Array) -> Segment:
  """Draws a network from a key []: all blocks, all exits, the head."""

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
) -> tuple[Segment, dict[str, Any]]:
  """Draws all blocks, exits and the head; also returns block name -> output.

  `draw` maps a name and an input to the block's output, parameters and running
  statistics; x as in `walk`.
  """
  params, stats, out = dict[str, Tree](), dict[str, Tree](), dict[str, Any]()

  def visit(name, x):
    x, params[name], stats[name] = draw(name, x)
    if name in backbone.blocks:
      out[name] = x
    return x

  walk(backbone, visit, x)
  return Segment(params, stats), out


def walk(backbone: Backbone, visit: Callable[[str, Any], Any], x: Any) -> None:
  """Visits all blocks, exits and the head, in order.

  `visit` maps a name and an input to the output; x [B, ...] is the input of the
  first block, or its shape.
  """
  for net in backbone.families.values():  # blocks of one name are the same
    walk(net, visit, x)
  if backbone.families:
    return
  for depth, name in enumerate(backbone.names(), start=1):
    x = visit(name, x)
    if depth in backbone.exits:
      visit(exit_name(depth, backbone.family), x)
  visit("head", x)
