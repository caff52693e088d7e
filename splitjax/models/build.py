"""Builds a named backbone at its cuts and checks its options."""

from typing import Any

from splitjax.models import BACKBONES, shapes
from splitjax.models.backbones import Backbone
from splitjax.types import UserError

MOST_PARAMETERS = 10**10
"""Limit on a network's size: one copy takes 40 GB in float32."""


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
