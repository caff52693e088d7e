"""Dataclasses as pytrees: numbers are data of a program, choices shape it."""

import dataclasses
import types
import typing
from typing import Annotated, Any, get_args, get_origin

import jax

from splitjax.fields import check_value, readable

STATIC = "static"
"""Marks a float that shapes the program: `share: Annotated[float, STATIC]`."""

_DATA_TYPES: set[type] = {float}
"""Types whose values are data: floats, and dataclasses that hold them."""


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def pytree(cls: Any) -> Any:
  """Makes a frozen dataclass a pytree: its floats are leaves, all else static.

  A compiled program takes the leaves as arguments, so that a single program
  serves all their values. An int, a bool or a text chooses a branch or a shape,
  and has a program of its own; so has a None in the place of a float, which
  switches a part off.

  Bounds are declared with the field, `lam: Annotated[float, PROBABILITY]`, and
  checked when an object is made; an int in the place of a float becomes a
  float, since another dtype would be another program.

  Raises:
    UserError: when an object is made with a value that its field does not take.

  Example:
    >>> import jax
    >>> from splitjax.fields import PROBABILITY
    >>> @pytree
    ... class Blend:
    ...   lam: Annotated[float, PROBABILITY] = 0.5
    ...   steps: int = 3
    >>> jax.tree.leaves(Blend(lam=1, steps=2))
    [1.0]
    >>> Blend(lam=2.0)
    Traceback (most recent call last):
    splitjax.types.UserError: lam=2.0 must be at least 0 and at most 1
  """
  if not hasattr(cls, "__post_init__"):
    cls.__post_init__ = check_fields
  cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  hints = typing.get_type_hints(cls, include_extras=True)
  names = [field.name for field in dataclasses.fields(cls)]
  data = [name for name in names if _is_data(hints[name])]
  static = [name for name in names if name not in data]
  jax.tree_util.register_dataclass(cls, data, static)
  cls._hints = {name: hints[name] for name in names if readable(hints[name])}
  _DATA_TYPES.add(cls)
  return cls


def check_fields(record: Any) -> None:
  """Checks the plain values of a record against its annotations.

  Traced values pass: jax makes such records while it traces a program.
  """
  for name, hint in record._hints.items():
    value = getattr(record, name)
    if isinstance(value, (bool, int, float, str, tuple, list)):
      object.__setattr__(record, name, check_value(value, hint, name))


def _is_data(hint: Any) -> bool:
  if get_origin(hint) is Annotated:
    kind, *marks = get_args(hint)
    return STATIC not in marks and _is_data(kind)
  if get_origin(hint) in (types.UnionType, typing.Union):
    return any(map(_is_data, get_args(hint)))
  return hint in _DATA_TYPES
