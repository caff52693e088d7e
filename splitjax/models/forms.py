"""Checks of a network's names, shapes and dtypes; nothing is computed.

`contract` calls them, and checks the other promises of a network.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax.errors import InvalidRngError

from splitjax.models import backbones, drawing, shapes
from splitjax.models.backbones import Backbone
from splitjax.models.behaviour import BATCH
from splitjax.types import Net, UserError


def check_forms(net: Backbone) -> None:
  """Checks names, exits, shapes and variables; nothing is computed.

  Raises:
    UserError: a check fails; the message names the block.
  """
  where = f"backbone.name={net.name!r}"
  taken = {"head", *map(backbones.exit_name, net.exits)} & set(net.blocks)
  if taken:
    raise UserError(f"{where}: a block is named {taken.pop()!r}, as an exit is")
  if not net.exits or not all(1 <= k < net.length for k in net.exits):
    raise UserError(
      f"{where}: exits after blocks {sorted(net.exits)}; it needs one at least,"
      f" and all in 1..{net.length - 1}"
    )
  full = shapes.network(net)
  _float32(full, where)

  def check(name: str, x: Any) -> Any:
    out = _output(net, full, name, x, where)
    gives = f"gives {list(out.shape)} of a batch of {BATCH}; it must give"
    if name == net.names()[-1] and len(out.shape) != 2:
      raise UserError(
        f"{where}: its last block, {name}, {gives} the embedding, [B, D]"
      )
    if name not in net.blocks and out.shape != (BATCH, net.classes):
      raise UserError(f"{where}: {name} {gives} logits [B, {net.classes}]")
    return out

  drawing.walk(net, check, net.inputs(BATCH))


def _float32(full: Net, where: str) -> None:
  """Checks that all parameters have the default float, as optimisers need."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(full.params):
    if leaf.dtype != jnp.result_type(float):
      name = jax.tree_util.keystr(path, simple=True, separator="/")
      raise UserError(
        f"{where}: {name} is {leaf.dtype}; parameters are"
        f" {jnp.result_type(float)}, whatever blocks compute in"
      )


def _output(net: Backbone, full: Net, name: str, x: Any, where: str) -> Any:
  """Returns shape and dtype of a block's output, after checking the block.

  It checks the batch axis, the dtype and the form of running statistics.
  """
  handed = jnp.result_type(float)
  segment = backbones.select(full, (name,))
  for train in (False, True):
    try:
      out, stats = jax.eval_shape(
        lambda segment, x, train=train: backbones.run(
          net, segment, x, (name,), train=train, key=jax.random.key(0)
        ),
        segment,
        x,
      )
    except InvalidRngError:
      raise UserError(
        f"{where}: {name} draws random numbers in training; give it the"
        " attribute `random = True`"
      ) from None
    if out.shape[:1] != (BATCH,):
      raise UserError(
        f"{where}: {name} gives {list(out.shape)} of a batch of {BATCH}; the"
        " first axis must stay the samples'"
      )
    if out.dtype != handed:
      raise UserError(
        f"{where}: {name} gives {out.dtype}; blocks hand {handed} on, whatever"
        " they compute in"
      )
    forms = [
      jax.tree.map(lambda s: (s.shape, s.dtype), tree)
      for tree in (segment.stats, stats)
    ]
    if forms[0] != forms[1]:
      raise UserError(
        f"{where}: {name} changes the form of its running statistics"
        " (batch_stats)"
      )
  return out


def kind(value: Any) -> str:
  """Describes the kind of a value in words."""
  if value is None:
    return "None (is a return missing?)"
  if isinstance(value, type):
    return f"the class {value.__name__}"
  name = type(value).__name__
  return f"a{'n' if name[0] in 'aeiouAEIOU' else ''} {name}"
