"""Builds a network of BACKBONES from its options and checks the options."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

from splitjax.models import BACKBONES
from splitjax.models.network import Backbone
from splitjax.types import UserError

_FORMS = {1: "tables [F]", 2: "series [T, c]", 3: "images [H, W, c]"}
"""Descriptions of inputs by their number of axes."""


def cut(
  name: str,
  shape: tuple[int, ...],
  classes: int,
  options: dict[str, Any],
  vocabulary: int = 0,
) -> Backbone:
  """Builds a network that can be cut at the depths in its options.

  `name` is a key of BACKBONES, `options` are those of its factory; inputs of a
  vocabulary above 0 are token ids.

  Raises:
    UserError: inputs that the network does not take, an invalid size, or a
      depth that the network does not have.
  """
  factory = BACKBONES[name]
  field = f"backbone.name={name!r}"
  _check_inputs(name, factory, shape, vocabulary)
  if vocabulary:
    options = {**options, "vocabulary": vocabulary}
  depths = options.get("depths")
  if not isinstance(depths, tuple):
    rule = "needs the option depths, as in `depths: tuple[int, ...] = (1, 2)`"
    raise UserError(f"{field}: its factory {rule}")
  if len(set(depths)) < len(depths):
    raise UserError(f"backbone.depths={depths} must differ from one another")
  backbone = factory(shape, classes, **options)
  for depth in depths:
    if not 1 <= depth < backbone.length:
      raise UserError(
        f"backbone.depths={depths}: {name} cannot be cut at {depth}; choose"
        f" from 1..{backbone.length - 1}"
      )
  return backbone


def axes_of(factory: Callable) -> int | None:
  """Reads how many axes inputs have from the first argument's annotation.

  tuple[int, int, int] are images. None: any number, or no annotation.
  """
  parameters = inspect.signature(factory).parameters
  axes = get_args(next(iter(parameters.values())).annotation)
  return len(axes) if axes and ... not in axes else None


def _check_inputs(
  name: str, factory: Callable, shape: tuple[int, ...], vocabulary: int
) -> None:
  """Raises UserError if a factory does not take the given inputs.

  A factory takes token ids if it has an argument `vocabulary`.
  """
  field = f"backbone.name={name!r}"
  axes = axes_of(factory)
  is_text = "vocabulary" in inspect.signature(factory).parameters
  if vocabulary and not is_text:
    raise UserError(
      f"{field}: takes numbers, and these data are token ids; choose"
      " transformer_text, or a network with the argument vocabulary"
    )
  if axes in (None, len(shape)):
    return
  takes = "token ids [T]" if is_text else _FORMS.get(axes, f"{axes} axes")
  raise UserError(
    f"{field}: takes {takes}, and these data are {list(shape)}; choose another"
    f" backbone, such as {'cnn1d' if len(shape) == 2 else 'mlp'} (grey images"
    " need a last axis of 1)"
  )
