"""Dataclasses as pytrees: numbers are data of a program, choices shape it."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any, get_origin

import jax
import numpy as np

from splitjax.fields import convert, described, kinds, written
from splitjax.types import UserError

STATIC = "static"
"""Marks a float that shapes the program, as in `Annotated[float, STATIC]`."""

_DATA_TYPES: set[type] = {float}
"""Types whose values are data: floats, and dataclasses that hold them."""


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def pytree(cls: Any) -> Any:
  """Makes a frozen dataclass a pytree: its floats are leaves, all else static.

  A compiled program takes the leaves as arguments, so that a single program
  serves all their values. An int, a bool or a text chooses a branch or a shape,
  and has a program of its own; so has a None in the place of a float, which
  switches a part off.

  A UserError refuses a value that its field does not take when an object is
  made; an int in the place of a float becomes a float, since another dtype
  would be another program. A subclass changes a default by `lam = 0.2` alone,
  and checks what goes together in its `__post_init__`, after
  `super().__post_init__()`.

  Example:
    >>> import jax
    >>> from splitjax.fields import Probability
    >>> @pytree
    ... class Blend:
    ...   lam: Probability = 0.5
    ...   steps: int = 3
    >>> jax.tree.leaves(Blend(lam=1, steps=2))
    [1.0]
  """
  hints = typing.get_type_hints(cls, include_extras=True)
  # `dataclasses` ignores an inherited field's new default without annotation.
  annotations = dict(vars(cls).get("__annotations__", {}))
  for name, default in list(vars(cls).items()):
    hint = hints.get(name, typing.ClassVar)
    if typing.ClassVar not in (hint, get_origin(hint)):
      annotations.setdefault(name, hint)
      setattr(cls, name, _checked(default, hint, name))
  cls.__annotations__ = annotations
  if not hasattr(cls, "__post_init__"):
    cls.__post_init__ = lambda self: None
  cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  init = cls.__init__

  @functools.wraps(init)
  def checking_init(self: Any, **values: Any) -> None:
    if type(self) is not cls:
      raise UserError(f"{type(self).__name__}: write @pytree above its class")
    for name in values.keys() & hints.keys():
      values[name] = _checked(values[name], hints[name], name)
    init(self, **values)

  cls.__init__ = checking_init
  _register(cls, hints)
  _DATA_TYPES.add(cls)
  return cls


def _checked(value: Any, hint: Any, name: str) -> Any:
  """Returns a field's value in its type; data may be arrays, and are kept."""
  if _is_data(hint) and isinstance(value, (jax.Array, np.ndarray)):
    # A number as an array would be another program.
    if value.ndim or isinstance(value, jax.core.Tracer):
      return value
  if described(hint):
    return convert(value, hint, name)
  types = tuple(kind for kind, _ in kinds(hint))
  if all(isinstance(x, type) for x in types) and not isinstance(value, types):
    wanted = " or ".join(kind.__name__ for kind in types)
    raise UserError(f"{name}={written(value)} must be of {wanted}")
  return value


def _register(cls: Any, hints: Mapping[str, object]) -> None:
  """Tells jax of the class.

  Objects that jax makes are not checked: their leaves may be anything, such as
  the axes of a vmap.
  """
  names = [field.name for field in dataclasses.fields(cls)]
  data = [name for name in names if _is_data(hints[name])]
  static = [name for name in names if name not in data]

  def flatten(record):
    leaves = [(jax.tree_util.GetAttrKey(n), vars(record)[n]) for n in data]
    return leaves, tuple(vars(record)[n] for n in static)

  def unflatten(choices, leaves):
    record = object.__new__(cls)
    vars(record).update(zip(data, leaves, strict=True))
    vars(record).update(zip(static, choices, strict=True))
    return record

  jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)


def _is_data(hint: Any) -> bool:
  """Tells whether a field is data; a union is, if one of its types is."""
  shapes = STATIC in getattr(hint, "__metadata__", ())
  return not shapes and any(kind in _DATA_TYPES for kind, _ in kinds(hint))
