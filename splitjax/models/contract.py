"""The contract of every network, checked in seconds.

`check` runs for a network of your own what the test suite runs for BACKBONES;
`check_forms` is its part that computes nothing. A run checks the forms of a
network of your own and its numbers (`behaviour`) before it compiles a round.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from splitjax.models import backbone as bb
from splitjax.models import behaviour, shapes
from splitjax.models.backbone import Backbone
from splitjax.models.behaviour import BATCH, Broken
from splitjax.models.block import draw_block
from splitjax.registry import options
from splitjax.types import Segment, UserError

SHAPE, CLASSES = (32, 32, 3), 4


def check(
  factory: Callable[..., Backbone],
  *,
  shape: tuple[int, int, int] = SHAPE,
  classes: int = CLASSES,
) -> list[str]:
  """Checks the contract of a network.

  Args:
    factory: as in BACKBONES, (shape, classes, *, options) -> Backbone; give
      options that differ from its defaults by functools.partial.
    shape: (H, W, c) of the images to try it with.
    classes: C, likewise.

  Returns:
    One sentence for each part of the contract.

  Raises:
    Broken: a part of the contract does not hold.
  """
  try:
    known = options(factory)
    _must("depths" in known, "it has no option depths, the cuts in use")
    net = factory(shape, classes)
    _must(isinstance(net, Backbone), f"it returns no Backbone, but {type(net)}")
    check_hashable(net)
    again = factory(shape, classes)
    _must(
      net == again and hash(net) == hash(again),
      "made twice with the same options it is not equal: give blocks that are"
      " hashable and equal, as linen modules are; a program would be compiled"
      " for each",
    )
    chosen = getattr(factory, "keywords", {}).get("depths", known["depths"][1])
    if isinstance(chosen, tuple):
      check_asked(net, net.name, shape, classes, chosen)
    check_forms(net)
    check_any_batch(net)
  except UserError as error:
    raise Broken(str(error)) from None
  return [
    f"its options are {', '.join(known) or 'none'}",
    "it is a Backbone, equal to another of the same options",
    "blocks map batches to batches, exits and head to logits",
    "blocks take batches of any size, as an export does",
    *behaviour.check_numbers(net),
  ]


def check_asked(
  net: Backbone,
  name: str,
  shape: tuple[int, int, int],
  classes: int,
  depths: tuple[int, ...],
) -> None:
  """Checks that a factory made the network that it was asked for.

  Args:
    net: what it returned.
    name: in BACKBONES.
    shape: (H, W, c) of the images.
    classes: C.
    depths: its option.

  Raises:
    UserError: it is no Backbone, or one for other images, classes or cuts.
  """
  where = f"backbone.name={name!r}"
  if not isinstance(net, Backbone):
    raise UserError(
      f"{where}: its factory returns no Backbone, but {type(net)}"
    )
  asked = tuple(shape), classes, sorted(depths)
  made = tuple(net.shape), net.classes, sorted(net.exits)
  for what, one, other in zip(
    ("images", "classes", "exits"), asked, made, strict=True
  ):
    if one != other:
      raise UserError(
        f"{where}: asked for {what} {one}, its factory makes {other}: pass"
        " shape, classes and depths on to Backbone"
      )


def check_hashable(net: Backbone) -> None:
  """Checks that blocks can be keys, as compiled functions need.

  Raises:
    UserError: one cannot; the message names it.
  """
  named = {**net.blocks, **{bb.exit_name(k): x for k, x in net.exits.items()}}
  for name, block in {**named, "head": net.head}.items():
    try:
      hash(block)
      block == block  # noqa: B015, PLR0124 - arrays do not compare
    except Exception as error:
      raise UserError(
        f"backbone.name={net.name!r}: {name} has an attribute that is not"
        " hashable, a list or an array: make it a tuple, or build it in"
        " __call__"
      ) from error


def check_forms(net: Backbone) -> None:
  """Checks names, exits, shapes and variables; nothing is computed.

  Raises:
    UserError: a part does not hold; the message names the block.
  """
  where = f"backbone.name={net.name!r}"
  taken = {"head", *map(bb.exit_name, net.exits)} & set(net.blocks)
  if taken:
    raise UserError(f"{where}: a block is named {taken.pop()!r}, as an exit is")
  if not net.exits or not all(1 <= k < net.length for k in net.exits):
    raise UserError(
      f"{where}: exits after blocks {sorted(net.exits)}; it needs one at least,"
      f" and all in 1..{net.length - 1}"
    )
  try:
    full = shapes.network(net)
  except UserError:
    raise
  except Exception as error:  # whatever a block raises
    raise UserError(f"{where}: {_blame(net, error)}") from error
  _float32(full, where)
  x: Any = (BATCH, *net.shape)
  for depth, name in enumerate(net.names(), start=1):
    after = _output(net, full, name, x, where)
    if depth in net.exits:
      _logits(net, full, bb.exit_name(depth), after, where)
    x = after
  if len(x) != 2:
    raise UserError(
      f"{where}: its last block, {net.names()[-1]}, gives {list(x)} of a batch"
      f" of {BATCH}; it must give the embedding, [B, D]"
    )
  _logits(net, full, "head", x, where)


def check_any_batch(net: Backbone) -> None:
  """Checks that blocks can be traced for any batch size, as an export is.

  Raises:
    UserError: one cannot; the message names it.
  """
  full = shapes.network(net)
  (size,) = jax.export.symbolic_shape("b")

  def after(name: str, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    x = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    segment = bb.select(full, (name,))
    try:
      return jax.eval_shape(
        lambda segment, x: bb.run(net, segment, x, (name,), train=False)[0],
        segment,
        x,
      ).shape
    except Exception as error:  # whatever a block raises
      said = " ".join(str(error).split())[:100]
      raise UserError(
        f"backbone.name={net.name!r}: {name} cannot take a batch of any size,"
        f" as an export does ({said}): take x.shape[0] in place of len(x)"
      ) from error

  x: tuple[Any, ...] = (size, *net.shape)
  for depth, name in enumerate(net.names(), start=1):
    x = after(name, x)
    if depth in net.exits:
      after(bb.exit_name(depth), x)
  after("head", x)


def _float32(full: Segment, where: str) -> None:
  """Checks that all parameters are of one type, that of the optimiser."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(full.params):
    if leaf.dtype != jnp.result_type(float):
      name = "/".join(str(key.key) for key in path)
      raise UserError(
        f"{where}: {name} is {leaf.dtype}; parameters are"
        f" {jnp.result_type(float)}, whatever blocks compute in"
      )


def _blame(net: Backbone, error: Exception) -> str:
  """The first block that cannot be drawn, and its error in one line."""
  said = " ".join(str(error).split())[:200]
  x = jax.ShapeDtypeStruct((1, *net.shape), float)
  for depth, name in enumerate(net.names(), start=1):
    for each in (name, *([bb.exit_name(depth)] if depth in net.exits else [])):
      try:
        out = _drawn(net, each, x)
      except Exception:
        return f"{each} cannot take {list(x.shape)}: {said}"
    x = out if each == name else _drawn(net, name, x)
  return f"the head cannot take {list(x.shape)}: {said}"


def _drawn(net: Backbone, name: str, x: Any) -> Any:
  """The shape of a block's output."""
  return jax.eval_shape(
    lambda x: draw_block(net.block(name), jax.random.key(0), x)[0], x
  )


def _output(
  net: Backbone, full: Segment, name: str, shape: tuple[int, ...], where: str
) -> tuple[int, ...]:
  """The shape that a block gives; checks batch, dtype and statistics."""
  x = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
  segment = bb.select(full, (name,))
  for train in (False, True):
    try:
      out, stats = jax.eval_shape(
        lambda segment, x, train=train: bb.run(
          net, segment, x, (name,), train=train
        ),
        segment,
        x,
      )
    except Exception as error:  # whatever a block raises
      said = " ".join(str(error).split())[:200]
      raise UserError(f"{where}: {name} with train={train}: {said}") from error
    if out.shape[:1] != (BATCH,):
      raise UserError(
        f"{where}: {name} gives {list(out.shape)} of a batch of {BATCH}; the"
        " first axis must stay the samples'"
      )
    if out.dtype != x.dtype:
      raise UserError(
        f"{where}: {name} gives {out.dtype}; blocks hand {x.dtype} on, whatever"
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
  return out.shape


def _logits(
  net: Backbone, full: Segment, name: str, shape: tuple[int, ...], where: str
) -> None:
  """Checks that an exit or the head gives a logit for each class."""
  out = _output(net, full, name, shape, where)
  if out != (BATCH, net.classes):
    raise UserError(
      f"{where}: {name} gives {list(out)} of a batch of {BATCH}; it must give"
      f" logits [B, {net.classes}]"
    )


def _must(condition: bool, text: str) -> None:
  """Raises Broken unless the condition holds."""
  if not condition:
    raise Broken(text)
