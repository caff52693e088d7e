"""The contract of every network, checked in seconds.

`check_backbone` tests your own network as the test suite tests BACKBONES: the
types of its parts, their names, shapes and dtypes (`forms`), and its numbers
(`behaviour`).
"""

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import jax
import jax.export

from splitjax.files import unbound
from splitjax.models import backbones, behaviour, drawing, shapes
from splitjax.models.backbones import Backbone
from splitjax.models.behaviour import Broken
from splitjax.models.forms import check_forms, kind
from splitjax.registry import options
from splitjax.types import UserError

SHAPE, CLASSES = (32, 32, 3), 4


def check_backbone(
  factory: Callable[..., Backbone],
  *,
  shape: tuple[int, ...] = SHAPE,
  classes: int = CLASSES,
) -> list[str]:
  """Checks the contract of a network.

  Args:
    factory: as in BACKBONES, (shape, classes, *, options) -> Backbone. To test
      it with other options than its defaults, bind them by functools.partial.
    shape: shape of the inputs to try it with.
    classes: C, the number of classes to try it with.

  Returns:
    One sentence for each part of the contract, and one on convolutions that
    are slow on this machine, if there are any.

  Raises:
    Broken: a part of the contract does not hold. Exceptions of the network
      itself pass unchanged.

  Example:
    >>> import splitjax
    >>> said = splitjax.check_backbone(splitjax.BACKBONES["toy"])
    >>> said[1]
    'it is a Backbone, equal to another of the same options'
  """
  try:
    known, net = options(factory), factory(shape, classes)
    numbers = _promises(net, factory, known, shape, classes)
  except UserError as error:
    raise Broken(str(error)) from None
  slow = shapes.slow_convolutions(net)
  return [
    f"its options are {', '.join(known) or 'none'}",
    "it is a Backbone, equal to another of the same options",
    "blocks map batches to batches, exits and head to logits",
    "blocks take batches of any size, as an export does",
    *numbers,
    *([slow] if slow else []),
  ]


def _promises(
  net: Any,
  factory: Callable[..., Backbone],
  known: Mapping[str, tuple[Any, Any]],
  shape: tuple[int, ...],
  classes: int,
) -> list[str]:
  """Checks a network, and checks that its factory makes an equal one again.

  Returns:
    The sentences of `behaviour.check_numbers`.
  """
  if "depths" not in known:
    raise UserError("it has no option depths, the cuts in use")
  made_by = getattr(unbound(factory), "__name__", str(factory))
  check_kinds(net, getattr(net, "name", made_by))
  check_hashable(net)
  again = factory(shape, classes)
  if net != again or hash(net) != hash(again):
    raise UserError(
      "made twice with the same options it is not equal: give blocks that are"
      " hashable and equal, as linen modules are; a program would be compiled"
      " for each"
    )
  chosen = getattr(factory, "keywords", {}).get("depths", known["depths"][1])
  if isinstance(chosen, tuple):
    check_asked(net, shape, classes, chosen)
  check_forms(net)
  check_any_batch(net)
  return behaviour.check_numbers(net)


def check_kinds(net: Any, name: str) -> None:
  """Checks that a network is a Backbone of named blocks, exits and a head.

  Args:
    net: what the factory returned.
    name: name of the network.

  Raises:
    UserError: a part has a wrong type; the message names the part.
  """
  where = f"backbone.name={name!r}"
  if not isinstance(net, Backbone):
    raise UserError(
      f"{where}: its factory returns no Backbone, but {kind(net)}"
    )
  for field, key, what in (
    ("blocks", str, "a name (text)"), ("exits", Integral, "a cut's depth"),
  ):  # fmt: skip
    parts: Any = getattr(net, field)
    is_dict = isinstance(parts, Mapping)
    odd = [k for k in parts if not isinstance(k, key)] if is_dict else []
    if odd or not is_dict:
      found = f"has the key {odd[0]!r}" if odd else f"is {kind(parts)}"
      raise UserError(
        f"{where}: {field} {found}; it must be a dict, {what} -> block"
      )
  for part, block in _named(net).items():
    has = all(callable(getattr(block, each, 0)) for each in ("init", "apply"))
    if isinstance(block, type) or not has:
      raise UserError(
        f"{where}: {part} is {kind(block)}; it must be a block, a linen module"
        " such as MyModule(16) (one of flax.nnx by flax.nnx.bridge.to_linen)"
      )


def _named(net: Backbone) -> dict[str, Any]:
  """Lists all blocks, exits and the head by name."""
  exits = {backbones.exit_name(k): x for k, x in net.exits.items()}
  return {**net.blocks, **exits, "head": net.head}


def check_asked(
  net: Backbone,
  shape: tuple[int, ...],
  classes: int,
  depths: tuple[int, ...],
) -> None:
  """Checks that a factory made the network that it was asked for.

  Args:
    net: the network that the factory returned, checked by `check_kinds`.
    shape: shape of the inputs.
    classes: C.
    depths: the cut depths asked for.

  Raises:
    UserError: the network is for other inputs, classes or cuts.
  """
  where = f"backbone.name={net.name!r}"
  asked = tuple(shape), classes, sorted(depths)
  made = tuple(net.shape), net.classes, sorted(net.exits)
  for what, one, other in zip(
    ("inputs", "classes", "exits"), asked, made, strict=True
  ):
    if one != other:
      raise UserError(
        f"{where}: asked for {what} {one}, its factory makes {other}: pass"
        " shape, classes and depths on to Backbone"
      )


def check_hashable(net: Backbone) -> None:
  """Checks that blocks can be static arguments of jit: hashable and comparable.

  Raises:
    UserError: a block cannot be hashed or compared; the message names it.
  """
  for name, block in _named(net).items():
    try:
      hash(block)
      block == block  # noqa: B015, PLR0124 - arrays do not compare
    except Exception as error:
      raise UserError(
        f"backbone.name={net.name!r}: {name} has an attribute that is not"
        " hashable, a list or an array: make it a tuple, or build it in"
        " __call__"
      ) from error


def check_any_batch(net: Backbone) -> None:
  """Checks that blocks can be traced for any batch size, as an export needs.

  Raises:
    UserError: a block cannot be traced; the message names the block.
  """
  full = shapes.network(net)
  (size,) = jax.export.symbolic_shape("b")

  def after(name: str, x: Any) -> Any:
    segment = backbones.select(full, (name,))
    try:
      return jax.eval_shape(
        lambda segment, x: backbones.run(net, segment, x, (name,), train=False)[
          0
        ],
        segment,
        x,
      )
    except Exception as error:  # whatever a block raises
      said = " ".join(str(error).split())[:100]
      raise UserError(
        f"backbone.name={net.name!r}: {name} cannot take a batch of any size,"
        f" as an export does ({said}): take x.shape[0] instead of len(x)"
      ) from error

  drawing.walk(net, after, net.inputs(size))
