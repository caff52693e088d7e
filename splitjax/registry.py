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
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import numpy as np

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


LARGEST = float(np.finfo(np.float32).max), int(np.iinfo(np.int32).max)
"""Of a number and of a whole number: devices compute in float32 and int32."""

_ODD = ("Cc", "Cs", "Zl", "Zp")
"""Letters that a text must not have: what controls a terminal, halves of
letters, which cannot be written to a file, and what ends a line."""

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
  near = difflib.get_close_matches(written(name).strip("'"), known, 1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
  choices = f"choices: {', '.join(known)}" if known else "there is none"
  return f"{where}: unknown {kind} {written(name)}{hint} ({choices})"


def read_spec(registry: Mapping[str, Callable], given: Any, where: str) -> Spec:
  """Checks a name and its options against the factory's signature.

  Raises:
    UserError: an unknown name or option, or an option of a wrong type.
  """
  if not isinstance(given, Mapping) or "name" not in given:
    raise UserError(f"{where}: needs a name (choices: {', '.join(registry)})")
  name = check(given["name"], str, f"{where}.name")
  label = given.get("label", "")
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
      raise UserError(f"{where}={written(value)} must be a group of fields")
    return build(hint, value, where, registries)
  return check(value, hint, where)


def check(value: Any, hint: Any, where: str) -> Any:
  """Returns a value as its type has it: 1 as 1.0, a list as a tuple.

  Raises:
    UserError: it has another type, or is a number or a text that cannot be.
  """
  if isinstance(value, float) and not math.isfinite(value):
    raise UserError(f"{where}={value!r} must be {_describe(hint)}")
  _check_possible(value, hint, where)
  for kind in alternatives(hint):
    if kind is type(None) and value is None:
      return None
    texts = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(value, str) and value in texts:
      return value
    if kind is float and type(value) in (int, float):
      return float(value)
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
      return tuple(check(v, get_args(kind)[0], where) for v in value)
    if type(value) is kind:
      return value
  raise UserError(f"{where}={written(value)} must be {_describe(hint)}")


def _check_possible(value: Any, hint: Any, where: str) -> None:
  """Raises UserError for a number or a text that no field can be."""
  if isinstance(value, (int, float)):
    whole = isinstance(value, int) and float not in alternatives(hint)
    most = LARGEST[whole]
    if abs(value) > most:
      raise UserError(f"{where}={written(value)} must be at most {most:.10g}")
  if isinstance(value, str):
    odd = [c for c in value if unicodedata.category(c) in _ODD]
    if odd:
      raise UserError(
        f"{where}={written(value)} must be one line of text, without {odd[0]!r}"
      )


def written(value: Any) -> str:
  """How a value of any kind is written in a message, cut if it is long."""
  try:
    said = " ".join(repr(value).splitlines())
  except ValueError:  # Python writes no integer of thousands of digits
    said = "(thousands of digits)"
  return said if len(said) <= 200 else f"{said[:197]}..."


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


def flat(tree: Any, name: str = "") -> dict[str, Any]:
  """Nested dicts by dotted path: {"a": {"b": 1}} -> {"a.b": 1}; lists stay."""
  if not isinstance(tree, dict):
    return {name: tree}
  leaves: dict[str, Any] = {}
  for key, value in tree.items():
    leaves |= flat(value, f"{name}.{key}" if name else key)
  return leaves
