"""Values against their types, names against their registries.

The type of an option is the annotation of the factory's keyword-only argument,
the type of a config field that of its dataclass: nothing is written twice.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Spec:
  """A name in a registry and its options.

  Attributes:
    name: key of the registry.
    options: every option of the factory that can be set.
    label: how tables and figures call it; "" for the name.
  """

  name: str
  options: dict[str, Any]
  label: str = ""


BOUND = ("conv", "dtype", "norm")
"""Arguments of a factory that other fields of a config set."""


def options(factory: Callable) -> dict[str, tuple[Any, Any]]:
  """Option name -> (type, default), read from keyword-only arguments.

  What a functools.partial binds is part of the method and is left out, as is
  what other fields of the config set.
  """
  bound = set(BOUND)
  base = factory
  if isinstance(factory, functools.partial):
    bound |= set(factory.keywords)
    base = factory.func
  hints = typing.get_type_hints(base)
  return {
    p.name: (hints[p.name], p.default)
    for p in inspect.signature(base).parameters.values()
    if p.kind is p.KEYWORD_ONLY and p.name not in bound
  }


def alternatives(hint: Any) -> tuple:
  """The members of a union; the type itself otherwise."""
  union = get_origin(hint) in (types.UnionType, typing.Union)
  return get_args(hint) if union else (hint,)


def find(registry: Mapping[str, Callable], name: str, where: str) -> Callable:
  """The factory of that name.

  Raises:
    UserError: there is none; the message has the nearest and all choices.
  """
  if name not in registry:
    raise UserError(unknown(f"{where}.name", name, registry, "name"))
  return registry[name]


def unknown(
  where: str, name: Any, known: Iterable[str], kind: str = "field"
) -> str:
  """The message for a name that is not known, with the nearest that is."""
  known = [str(k) for k in known]
  near = difflib.get_close_matches(str(name), known, 1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
  choices = f"choices: {', '.join(known)}" if known else "there is none"
  return f"{where}: unknown {kind} {name!r}{hint} ({choices})"


def read_spec(registry: Mapping[str, Callable], given: Any, where: str) -> Spec:
  """Checks a name and its options against the factory's signature.

  Raises:
    UserError: an unknown name or option, or an option of a wrong type.
  """
  if not isinstance(given, Mapping) or "name" not in given:
    raise UserError(f"{where}: needs a name (choices: {', '.join(registry)})")
  name, label = given["name"], given.get("label", "")
  known = options(find(registry, name, where))
  chosen = {key: value for key, (_, value) in known.items()}
  for key, value in given.items():
    if key in ("name", "label"):
      continue
    if key not in known:
      raise UserError(
        unknown(f"{where} ({name})", key, known, "option")
        + "; a name and its options change together, in the config file"
      )
    chosen[key] = check(value, known[key][0], f"{where}.{key}")
  return Spec(name, chosen, check(label, str, f"{where}.label"))


def build(
  cls, given: Mapping[str, Any], where: str, registries: Mapping[str, Mapping]
):
  """A dataclass from a nested dict.

  Args:
    cls: the dataclass.
    given: its fields; a group of fields is a dict.
    where: its place in the config, "" for the config itself.
    registries: place of a Spec -> the registry that its name points into.

  Raises:
    UserError: a field that is unknown, missing or of a wrong type.
  """
  hints = typing.get_type_hints(cls)
  fields = {f.name: f for f in dataclasses.fields(cls)}
  prefix = where + "." if where else ""
  values = {}
  for name, value in given.items():
    if name not in fields:
      raise UserError(unknown(where or "config", name, fields))
    values[name] = _convert(value, hints[name], prefix + name, registries)
  for name, field in fields.items():
    if field.default is dataclasses.MISSING and name not in values:
      raise UserError(f"config: {prefix}{name} is missing")
  return cls(**values)


def _convert(value, hint, where: str, registries):
  if get_origin(hint) is dict:
    return value  # of Specs, each read already
  if hint is Spec:
    return read_spec(registries[where], value, where)
  if dataclasses.is_dataclass(hint):
    if not isinstance(value, Mapping):
      raise UserError(f"{where}={value!r} must be a group of fields")
    return build(hint, value, where, registries)
  return check(value, hint, where)


def check(value: Any, hint: Any, where: str) -> Any:
  """Returns a value as its type has it: 1 as 1.0, a list as a tuple.

  Raises:
    UserError: it has another type, or is not finite.
  """
  if isinstance(value, float) and not math.isfinite(value):
    raise UserError(f"{where}={value!r} must be {_describe(hint)}")
  for kind in alternatives(hint):
    if kind is type(None) and value is None:
      return None
    if get_origin(kind) is Literal and value in get_args(kind):
      return value
    if kind is float and type(value) in (int, float):
      return float(value)
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
      return tuple(check(v, get_args(kind)[0], where) for v in value)
    if type(value) is kind:
      return value
  raise UserError(f"{where}={value!r} must be {_describe(hint)}")


def _describe(hint) -> str:
  names = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    type(None): "None",
  }
  words = []
  for kind in alternatives(hint):
    if get_origin(kind) is Literal:
      words += [repr(v) for v in get_args(kind)]
    elif get_origin(kind) is tuple:
      words.append(f"a tuple, each {names[get_args(kind)[0]]}")
    else:
      words.append(names[kind])
  return " or ".join(words)


def plain(value: Any) -> Any:
  """Dataclasses to dicts and tuples to lists; a Spec lies flat."""
  if isinstance(value, Spec):
    label = {"label": value.label} if value.label else {}
    return {"name": value.name, **label, **plain(value.options)}
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = dataclasses.fields(value)
    return {f.name: plain(getattr(value, f.name)) for f in fields}
  if isinstance(value, Mapping):
    return {k: plain(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain(v) for v in value]
  return value
