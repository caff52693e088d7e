"""Builds a named backbone at its cuts and checks its options."""

import functools
from typing import Any

from splitjax.files import calling, is_own
from splitjax.models import BACKBONES, behaviour, contract, forms, shapes
from splitjax.models.backbone import Backbone
from splitjax.types import UserError

MOST_PARAMETERS = 10**10
"""Limit on a network's size: one copy takes 40 GB in float32."""


def _own(
  name: str, shape: tuple[int, int, int], classes: int, options: dict[str, Any]
) -> Backbone:
  """Builds and checks a user's network; errors are one line with the place."""
  factory = BACKBONES[name]
  with calling(f"backbone.name={name!r}", factory):
    net = factory(shape, classes, **options)
    contract.check_kinds(net, name)
    contract.check_asked(net, name, shape, classes, options["depths"])
    contract.check_hashable(net)
    forms.check_forms(net)
  return net


def check_numbers(
  name: str, shape: tuple[int, int, int], classes: int, options: dict[str, Any]
) -> None:
  """Tries a user's network on six samples, in float32; see `behaviour`.

  Raises:
    UserError: a part of the contract does not hold.
  """
  _tried(BACKBONES[name](shape, classes, **options), name)


@functools.lru_cache(maxsize=8)
def _tried(net: Backbone, name: str) -> None:
  """Runs `check_numbers` once for equal networks."""
  where = f"backbone.name={name!r}"
  with calling(where, BACKBONES[name]):
    try:
      behaviour.check_numbers(net)
    except behaviour.Broken as error:
      raise UserError(f"{where}: {error}") from error


def cut(
  name: str, shape: tuple[int, int, int], classes: int, options: dict[str, Any]
) -> Backbone:
  """Builds a network at the cuts in its options.

  Args:
    name: key of BACKBONES.
    shape: (H, W, c) of one image.
    classes: C.
    options: options of the factory.

  Raises:
    UserError: an invalid size, or a depth that the network does not have.
  """
  if "depths" not in options:
    raise UserError(
      f"backbone.name={name!r}: its factory needs the option depths, the cuts"
      " in use, as in `depths: tuple[int, ...] = (1, 2)`"
    )
  depths = options["depths"]
  if not isinstance(depths, tuple):
    raise UserError(
      f"backbone.depths={depths!r}: the option of {name} must be annotated as"
      " tuple[int, ...]"
    )
  if len(set(depths)) < len(depths):
    raise UserError(f"backbone.depths={depths} must differ from one another")
  # Build it, then check what only the network knows: depths and size.
  if is_own(BACKBONES[name]):
    backbone = _own(name, shape, classes, options)
  else:
    backbone = BACKBONES[name](shape, classes, **options)
  for depth in depths:
    if not 1 <= depth < backbone.length:
      raise UserError(
        f"backbone.depths={depths}: {name} cannot be cut at {depth}; choose"
        f" from 1..{backbone.length - 1}"
      )
  size = sum(shapes.parameters(backbone).values())
  if size > MOST_PARAMETERS:
    raise UserError(
      f"backbone.name={name!r}: with these options it has {size:,} parameters,"
      f" more than {MOST_PARAMETERS:,}; choose a smaller backbone.width"
    )
  return backbone
