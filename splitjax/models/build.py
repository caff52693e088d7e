"""Builds a named backbone at its cuts and checks its options."""

from typing import Any

import numpy as np

from splitjax.models import BACKBONES
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import UserError

MOST = {
  "width": 10**6,
  "resolution": 10**6,
  "length": 1000,
  "stages": 1000,
  "repeats": 1000,
}
"""Option -> its largest value; of several numbers, their largest sum. Beyond
it, array sizes overflow or tracing takes too long to count the parameters."""

MOST_PARAMETERS = 10**10
"""One copy has 40 GB in float32."""


def cut(
  name: str, shape: tuple[int, int, int], classes: int, options: dict[str, Any]
) -> Backbone:
  """Builds a network at the cuts in its options.

  Args:
    name: in BACKBONES.
    shape: (H, W, c) of one image.
    classes: C.
    options: of the factory.

  Raises:
    UserError: an invalid size, or a depth that the network does not have.
  """
  _check_options(options)
  backbone = BACKBONES[name](shape, classes, **options)
  depths = options["depths"]
  for depth in depths:
    if not 1 <= depth < backbone.length:
      raise UserError(
        f"backbone.depths={depths}: {name} cannot be cut at {depth}; choose"
        f" from 1..{backbone.length - 1}"
      )
  size = sum(bb.sizes(backbone).values())
  if size > MOST_PARAMETERS:
    raise UserError(
      f"backbone.name={name!r}: with these options it has {size:,} parameters,"
      f" more than {MOST_PARAMETERS:,}; choose a smaller backbone.width"
    )
  return backbone


def _check_options(options: dict[str, Any]) -> None:
  """Raises UserError if an option is out of range."""
  for field in ("width", "length"):
    if field in options and not options[field] > 0:  # NaN is neither
      raise UserError(f"backbone.{field}={options[field]} must be above 0")
  for field, most in MOST.items():
    if np.sum(options.get(field, 0)) > most:
      several = "sum to" if isinstance(options[field], tuple) else "be"
      raise UserError(
        f"backbone.{field}={options[field]} must {several} at most {most:,}"
      )
  depths = options["depths"]
  if not depths:
    raise UserError("backbone.depths=() must name at least one split depth")
  if len(set(depths)) < len(depths):
    raise UserError(f"backbone.depths={depths} must differ from one another")
