"""Groups of config fields: nested dicts, checked by dataclasses' annotations.

The annotation of a field is one of these:
  a type that `fields` reads: a single value;
  a dataclass: a group of fields;
  Annotated[Spec, REGISTRY]: a registered name and its options;
  dict[str, T], where T is a dataclass or Annotated[Spec, REGISTRY]: several
    groups or several registered names, each under a key.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from splitjax.fields import Effect, alternatives, check_value, written
from splitjax.registry import Spec, options, plain, read_spec, unknown
from splitjax.types import UserError

LONGEST_KEY = 100
"""Maximum length of a group's key: the key of a method names a folder."""


def build(cls, given: Mapping[str, Any], where: str = ""):
  """Builds a dataclass from a nested dict.

  Args:
    cls: the dataclass.
    given: its fields; a group of fields is a dict.
    where: dotted path of the group, "" for the config itself.

  Raises:
    UserError: a field is unknown, missing, of a wrong type or out of bounds.
  """
  hints = typing.get_type_hints(cls, include_extras=True)
  fields = {f.name: f for f in dataclasses.fields(cls)}
  prefix = where + "." if where else ""
  values = {}
  for name, value in given.items():
    if name not in fields:
      raise UserError(unknown(where or "config", name, fields))
    values[name] = _convert(value, hints[name], prefix + name)
  for name, field in fields.items():
    ours = field.default, field.default_factory
    if name not in values and ours == (dataclasses.MISSING,) * 2:
      raise UserError(f"{prefix}{name} is missing")
  return cls(**values)


def check_keys(where: str, given: Any) -> None:
  """Raises UserError if a key cannot name a folder or a field."""
  for key in given if isinstance(given, Mapping) else ():
    name = isinstance(key, str) and key.isidentifier() and key.isascii()
    if not name or len(key) > LONGEST_KEY:
      raise UserError(
        f"{where}: key {written(key)} must be an ASCII identifier, such as a_1,"
        f" of at most {LONGEST_KEY} letters"
      )


def registry_of(hint: Any) -> Mapping[str, Callable] | None:
  """Returns the registry of a field dict[str, Spec]; None for other fields."""
  (kind, *_) = alternatives(hint)
  each: Any = get_args(kind)[1] if get_origin(kind) is dict else None
  return each.__metadata__[0] if alternatives(each) == (Spec,) else None


def by_key(value: Any, hint: Any, where: str, known: Any = None) -> Any:
  """Turns a list of names into the value of a field of type dict[str, Spec].

  Each name becomes a key. A name that is already a key of the field keeps its
  spec; any other name gets its default options.

  Args:
    value: None, names separated by commas, a sequence of names, or a dict.
    hint: the field's annotation.
    where: dotted path of the field.
    known: the field's present value.

  Returns:
    Key -> spec as a dict; `value` itself for a field of another type.
  """
  registry = registry_of(hint)
  if registry is None:
    return value
  if value is None:
    return {}
  if isinstance(value, Mapping):
    named = {k: {"name": v} for k, v in value.items() if isinstance(v, str)}
    return {**value, **named}
  if isinstance(value, str):
    value = [name.strip() for name in value.split(",") if name.strip()]
  if not isinstance(value, list | tuple):
    return value
  if len(set(map(str, value))) < len(value):
    each = where.rpartition(".")[2].removesuffix("s")
    raise UserError(f"{where}={written(value)}: name each {each} once")
  own = known if isinstance(known, Mapping) else {}
  return {
    name: own.get(name) or plain(read_spec(registry, {"name": name}, where))
    for name in value
  }


def specs(
  hint: Any, tree: Any, where: str = ""
) -> Iterator[tuple[str, Mapping[str, Callable], Any]]:
  """Yields path, registry and name of every Spec in a config's dict."""
  (kind, *_) = alternatives(hint)
  if not isinstance(tree, Mapping):
    return
  if kind is Spec:
    yield where, hint.__metadata__[0], tree.get("name")
    return
  for name, below in tree.items():
    path = f"{where}.{name}" if where else name
    yield from specs(hint_of(hint, [name], tree), below, path)


def _convert(value, hint, where: str):
  value = by_key(value, hint, where)
  (kind, *_) = alternatives(hint)
  of_each = get_origin(kind) is dict
  group = of_each or dataclasses.is_dataclass(kind) and kind is not Spec
  if group and not isinstance(value, Mapping):
    raise UserError(f"{where}={written(value)} must be a group of fields")
  if of_each:
    check_keys(where, value)
    each = get_args(kind)[1]
    return {k: _convert(v, each, f"{where}.{k}") for k, v in value.items()}
  if kind is Spec:
    return read_spec(hint.__metadata__[0], value, where)
  return build(kind, value, where) if group else check_value(value, hint, where)


def hint_of(hint: Any, path: Sequence[str], tree: Any) -> Any:
  """Returns the annotation of a field; None if there is no such field.

  Args:
    hint: the annotation of a group of fields, or its dataclass.
    path: the names that lead from the group to the field.
    tree: the group as a nested dict; the registered names in it decide which
      options there are.
  """
  if not path:
    return hint
  (kind, *_), word = alternatives(hint), path[0]
  inner = None
  if kind is Spec and word in ("name", "label"):
    inner = str
  elif kind is Spec:
    factory = hint.__metadata__[0].get(tree.get("name"))
    inner = factory and options(factory).get(word, [None])[0]
  elif get_origin(kind) is dict:
    inner = get_args(kind)[1]
  elif dataclasses.is_dataclass(kind):
    inner = typing.get_type_hints(kind, include_extras=True).get(word)
  below = tree.get(word) if isinstance(tree, Mapping) else None
  below = below if isinstance(below, Mapping) else {}
  return hint_of(inner, path[1:], below)


def settings(
  cls, tree: Mapping[str, Any], least: Effect = Effect.NUMERICS
) -> dict[str, Any]:
  """Copies a config's dict without the fields whose effect is below `least`.

  Args:
    cls: the dataclass of the dict. Keys of `tree` that `cls` lacks are kept.
    tree: a dict made by `plain`.
    least: the smallest declared effect of a field that is kept.
  """
  hints = typing.get_type_hints(cls, include_extras=True)
  out = {}
  for name, value in tree.items():
    hint = hints.get(name)
    marks = getattr(hint, "__metadata__", ())
    if any(isinstance(mark, Effect) and mark < least for mark in marks):
      continue
    (kind, *_) = alternatives(hint)
    group = dataclasses.is_dataclass(kind) and kind is not Spec
    if group and isinstance(value, Mapping):
      value = settings(kind, value, least)
    out[name] = value
  return out
