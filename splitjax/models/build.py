"""Builds a network of BACKBONES from its options and checks the options."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

from splitjax.models import BACKBONES, shapes
from splitjax.models.backbones import Backbone
from splitjax.types import UserError

MOST_PARAMETERS = 10**10
"""The most parameters that a network may have; they take 40 GB in float32."""


FORMS = ("tables [F]", "series [T, c]", "images [H, W, c]")
"""Descriptions of inputs with 1, 2 and 3 axes."""


def cut(
  name: str,
  shape: tuple[int, ...],
  classes: int,
  options: dict[str, Any],
  vocabulary: int = 0,
) -> Backbone:
  """Builds a network that can be cut at the depths in its options.

  Args:
    name: key of BACKBONES.
    shape: shape of one input.
    classes: C.
    options: options of the factory.
    vocabulary: V, if inputs are token ids.

  Raises:
    UserError: inputs that the network does not take, an invalid size, or a
      depth that the network does not have.
  """
  check_inputs(name, BACKBONES[name], shape, vocabulary)
  if vocabulary:
    options = {**options, "vocabulary": vocabulary}
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


def check_inputs(
  name: str, factory: Callable, shape: tuple[int, ...], vocabulary: int
) -> None:
  """Raises UserError if a factory does not take the given inputs.

  The annotation of the factory's first argument says how many axes the inputs
  have, as in tuple[int, int, int] for images. If the argument is not annotated,
  the axes are not checked. A factory takes token ids if it has an argument
  `vocabulary`.
  """
  known = inspect.signature(factory).parameters
  axes = get_args(next(iter(known.values())).annotation)
  where = f"backbone.name={name!r}"
  if vocabulary and "vocabulary" not in known:
    raise UserError(
      f"{where}: takes numbers, and these data are token ids; choose"
      " transformer_text, or a network with the argument vocabulary"
    )
  if not axes or ... in axes or len(axes) == len(shape):
    return
  takes, found = (
    FORMS[n - 1] if n <= len(FORMS) else f"inputs of {n} axes"
    for n in (len(axes), len(shape))
  )
  takes = "token ids [T]" if "vocabulary" in known else takes
  grey = " or, if they are grey images, give them a last axis of 1"
  raise UserError(
    f"{where}: takes {takes}, and these data are {found}, {list(shape)}; choose"
    f" another backbone, such as {'cnn1d' if len(shape) == 2 else 'mlp'}"
    f"{grey if (len(axes), len(shape)) == (3, 2) else ''}"
  )
