"""Dataclasses as pytrees: numbers are data of a program, choices shape it."""

import dataclasses
import functools
import types
import typing
from typing import Annotated, Any, get_args, get_origin

import jax
import numpy as np

from splitjax.fields import alternatives, check_value, native, readable, written
from splitjax.types import UserError

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
  float, since another dtype would be another program. A subclass changes a
  default by `lam = 0.2` alone, and checks what goes together in its
  `__post_init__`, after `super().__post_init__()`.

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
  hints = typing.get_type_hints(cls, include_extras=True)
  _inherit_annotations(cls, hints)
  for name in cls.__annotations__.keys() & vars(cls).keys():
    if not _is_class_variable(hints[name]):
      setattr(cls, name, checked(vars(cls)[name], hints[name], name))
  if not hasattr(cls, "__post_init__"):
    cls.__post_init__ = lambda self: None
  cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  cls.__init__ = _checking(cls, cls.__init__, hints)
  _register(cls, hints)
  _DATA_TYPES.add(cls)
  return cls


def checked(value: Any, hint: Any, name: str) -> Any:
  """Returns a field's value in its type; an array, as data may be, as it is.

  Raises:
    UserError: the field does not take the value.
  """
  if isinstance(value, dataclasses.Field):  # a default of dataclasses.field
    return value
  if isinstance(value, np.generic):
    value = native(value)
  if _is_data(hint) and isinstance(value, (jax.Array, np.ndarray)):
    return value
  if readable(hint):
    return check_value(value, hint, name)
  kinds = alternatives(hint)
  if all(isinstance(kind, type) for kind in kinds):
    if not isinstance(value, kinds):
      wanted = " or ".join(kind.__name__ for kind in kinds)
      raise UserError(f"{name}={written(value)} must be of {wanted}")
  return value


def _inherit_annotations(cls: Any, hints: dict[str, Any]) -> None:
  """Annotates a default that a subclass changes, as the field that it is of.

  Without an annotation `dataclasses` would ignore it.
  """
  fields = {
    field.name
    for base in cls.__mro__[1:]
    if dataclasses.is_dataclass(base)
    for field in dataclasses.fields(base)
  }
  annotations = dict(vars(cls).get("__annotations__", {}))
  for name in vars(cls):
    if name in fields and name not in annotations:
      annotations[name] = hints[name]
  cls.__annotations__ = annotations


def _checking(cls: Any, init: Any, hints: dict[str, Any]) -> Any:
  """Wraps `__init__`: it checks the values before they become attributes."""

  @functools.wraps(init)
  def checking_init(self: Any, **values: Any) -> None:
    if type(self) is not cls:
      raise UserError(f"{type(self).__name__}: write @pytree above its class")
    init(
      self,
      **{
        name: checked(value, hints[name], name) if name in hints else value
        for name, value in values.items()
      },
    )

  return checking_init


def _register(cls: Any, hints: dict[str, Any]) -> None:
  """Tells jax of the class.

  Objects that jax makes are not checked: their leaves may be anything, such as
  the axes of a vmap.
  """
  names = [field.name for field in dataclasses.fields(cls)]
  data = [name for name in names if _is_data(hints[name])]
  static = [name for name in names if name not in data]

  def flatten(record):
    held = vars(record)
    return [held[n] for n in data], tuple(held[n] for n in static)

  def flatten_with_keys(record):
    leaves, rest = flatten(record)
    keys = map(jax.tree_util.GetAttrKey, data)
    return tuple(zip(keys, leaves, strict=True)), rest

  def unflatten(rest, leaves):
    record = object.__new__(cls)
    vars(record).update(zip(data, leaves, strict=True))
    vars(record).update(zip(static, rest, strict=True))
    return record

  jax.tree_util.register_pytree_with_keys(
    cls, flatten_with_keys, unflatten, flatten
  )


def _is_class_variable(hint: Any) -> bool:
  return hint is typing.ClassVar or get_origin(hint) is typing.ClassVar


def _is_data(hint: Any) -> bool:
  if get_origin(hint) is Annotated:
    kind, *marks = get_args(hint)
    return STATIC not in marks and _is_data(kind)
  if get_origin(hint) in (types.UnionType, typing.Union):
    return any(map(_is_data, get_args(hint)))
  return hint in _DATA_TYPES
