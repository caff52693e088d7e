"""Checks config values against declared types, bounds and registries.

The type of an option is the annotation of its factory's keyword-only argument;
the type of a config field is the annotation of its dataclass. `Annotated` adds
bounds, and whether a field can change a result:

  rounds: Annotated[int, Bounds(at_least=1)] = 120
"""

import dataclasses
import difflib
import enum
import functools
import inspect
import math
import types
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np

from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Spec:
  """A registered name and its options.

  Attributes:
    name: key of the registry.
    options: every option of the factory that a config can set.
    label: name in tables and figures; "" for `name`.
  """

  name: str
  options: dict[str, Any]
  label: str = ""


@dataclasses.dataclass(frozen=True)
class Bounds:
  """The interval of a number, or of each number of a tuple; None: unbounded."""

  at_least: float | None = None
  above: float | None = None
  at_most: float | None = None
  below: float | None = None

  def __str__(self) -> str:
    limits = dataclasses.asdict(self).items()
    words = [f"{k.replace('_', ' ')} {v:g}" for k, v in limits if v is not None]
    return " and ".join(words)

  def __contains__(self, number: float) -> bool:
    low, high = self.at_least, self.at_most
    return (
      (low is None or number >= low)
      and (high is None or number <= high)
      and (self.above is None or number > self.above)
      and (self.below is None or number < self.below)
    )


class Effect(enum.IntEnum):
  """What a config field can change; fields without a mark are a SETTING.

  Attributes:
    NONE: no result: bookkeeping, the machine, or where files are stored. Runs
      that differ in nothing else are the same run.
    NUMERICS: random draws, rounding, or what is measured and reported. Such
      runs differ, but a paper's experiment stays that experiment.
    SETTING: the experiment.
  """

  NONE = 0
  NUMERICS = 1
  SETTING = 2


LARGEST = float(np.finfo(np.float32).max), int(np.iinfo(np.int32).max)
"""Largest float and largest integer: devices compute in float32 and int32."""

_FORBIDDEN = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that no text field can hold: terminal control characters,
unpaired surrogates (which no file can hold) and line separators."""

BOUND = ("conv", "dtype", "norm")
"""Factory arguments that other config fields set."""


def options(factory: Callable) -> dict[str, tuple[Any, Any]]:
  """Option name -> (annotation, default) of a factory's keyword-only arguments.

  Arguments that a functools.partial binds define the method and are left out,
  as are those that other config fields set.
  """
  bound = set(BOUND)
  base = factory
  if isinstance(factory, functools.partial):
    bound |= set(factory.keywords)
    base = factory.func
  hints = typing.get_type_hints(base, include_extras=True)
  return {
    p.name: (hints[p.name], p.default)
    for p in inspect.signature(base).parameters.values()
    if p.kind is p.KEYWORD_ONLY and p.name not in bound
  }


def alternatives(hint: Any) -> tuple:
  """The members of a union without its marks; else the type itself."""
  if get_origin(hint) is Annotated:
    hint = get_args(hint)[0]
  union = get_origin(hint) in (types.UnionType, typing.Union)
  return get_args(hint) if union else (hint,)


def find(registry: Mapping[str, Callable], name: str, where: str) -> Callable:
  """The factory registered under a name.

  Raises:
    UserError: unknown name; the message has the nearest and all choices.
  """
  if name not in registry:
    raise UserError(unknown(f"{where}.name", name, registry, "name"))
  return registry[name]


def unknown(
  where: str, name: Any, known: Iterable[str], kind: str = "field"
) -> str:
  """The error message for an unknown name, with the nearest known one."""
  known = [str(k) for k in known]
  text = written(name).strip("'")
  near = difflib.get_close_matches(text, known, 1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
  choices = f"choices: {', '.join(known)}" if known else "there are none"
  return f"{where}: unknown {kind} {written(name)}{hint} ({choices})"


def unknown_field(where: str, path: str, tree: Mapping[str, Any]) -> str:
  """The error message for a dotted path that a config lacks.

  Args:
    where: the flag or field that named it.
    path: the unknown path, or the last word of one.
    tree: the config as a nested dict; the message has the nearest of its
      fields and the names beside the path.
  """
  leaves = list(flat(dict(tree)))
  group, _, word = path.rpartition(".")
  near = difflib.get_close_matches(path, leaves, 1)
  if not near:
    words = {leaf.rpartition(".")[2] for leaf in leaves}
    (meant, *_) = [*difflib.get_close_matches(word, words, 1), ""]
    near = [leaf for leaf in leaves if leaf.rpartition(".")[2] == meant]
  prefix = f"{group}." if group else ""
  beside = [k.removeprefix(prefix) for k in leaves if k.startswith(prefix)]
  names = ", ".join(dict.fromkeys(k.partition(".")[0] for k in beside))
  hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
  choices = f" ({group or 'config'} has {names})" if names else ""
  return f"{where}: unknown field {written(path)}{hint}{choices}"


def read_spec(registry: Mapping[str, Callable], given: Any, where: str) -> Spec:
  """Checks a name and its options against the factory's signature.

  Raises:
    UserError: an unknown name or option, or an option of a wrong type.
  """
  if not isinstance(given, Mapping) or "name" not in given:
    raise UserError(f"{where}: needs a name (choices: {', '.join(registry)})")
  name = check(given["name"], str, f"{where}.name")
  label = check(given.get("label", ""), str, f"{where}.label")
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
  return Spec(name, chosen, label)


def build(
  cls, given: Mapping[str, Any], where: str, registries: Mapping[str, Mapping]
):
  """Builds a dataclass from a nested dict.

  Args:
    cls: the dataclass.
    given: its fields; a group of fields is a dict.
    where: dotted path of the group, "" for the config itself.
    registries: dotted path of a Spec -> the registry of its name.

  Raises:
    UserError: an unknown or missing field, a wrong type, a value out of bounds.
  """
  hints = typing.get_type_hints(cls, include_extras=True)
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
  (kind, *_) = alternatives(hint)
  if get_origin(kind) is dict:
    return value  # Specs that are read already
  if kind is Spec:
    return read_spec(registries[where], value, where)
  if dataclasses.is_dataclass(kind):
    if not isinstance(value, Mapping):
      raise UserError(f"{where}={written(value)} must be a group of fields")
    return build(kind, value, where, registries)
  return check(value, hint, where)


def check(value: Any, hint: Any, where: str) -> Any:
  """Returns a value converted to its type: 1 to 1.0, a list to a tuple.

  Args:
    value: as a config gives it.
    hint: the annotation, with `Bounds` where there are any.
    where: dotted path of the field.

  Raises:
    UserError: a wrong type, or a number or text that is out of bounds.
  """
  value = _typed(value, hint, where)
  marks = getattr(hint, "__metadata__", ())
  for bounds in (mark for mark in marks if isinstance(mark, Bounds)):
    several = isinstance(value, tuple)
    numbers = [v for v in (value if several else [value]) if _is_number(v)]
    if several and not numbers:
      raise UserError(f"{where}=() must have one number at least")
    if any(number not in bounds for number in numbers):
      each = ", each" if several else ""
      raise UserError(f"{where}={written(value)} must be {bounds}{each}")
  return value


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool)


def _typed(value: Any, hint: Any, where: str) -> Any:
  """As `check`, without declared bounds."""
  if isinstance(value, float) and not math.isfinite(value):
    raise UserError(f"{where}={value!r} must be {_describe(hint)}")
  _check_representable(value, hint, where)
  for kind in alternatives(hint):
    if kind is type(None) and value is None:
      return None
    texts = get_args(kind) if get_origin(kind) is Literal else ()
    if isinstance(value, str) and value in texts:
      return value
    if kind is float and type(value) in (int, float):
      return float(value)
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
      return tuple(_typed(v, get_args(kind)[0], where) for v in value)
    if type(value) is kind:
      return value
  raise UserError(f"{where}={written(value)} must be {_describe(hint)}")


def _check_representable(value: Any, hint: Any, where: str) -> None:
  """Raises UserError for a number or a text that no field can hold."""
  if isinstance(value, (int, float)):
    whole = isinstance(value, int) and float not in alternatives(hint)
    most = LARGEST[whole]
    if abs(value) > most:
      raise UserError(f"{where}={written(value)} must be at most {most:.10g}")
  if isinstance(value, str):
    odd = [c for c in value if unicodedata.category(c) in _FORBIDDEN]
    if odd:
      raise UserError(
        f"{where}={written(value)} must be one line of text, without {odd[0]!r}"
      )


def written(value: Any) -> str:
  """The repr of a value for a message: one line, at most 200 characters."""
  try:
    text = " ".join(repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits
    text = "(thousands of digits)"
  return text if len(text) <= 200 else f"{text[:197]}..."


def _describe(hint) -> str:
  """A type in words."""
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


def settings(
  cls, tree: Mapping[str, Any], least: Effect = Effect.NUMERICS
) -> dict[str, Any]:
  """The fields of a config's dict whose declared effect is large enough.

  Args:
    cls: the dataclass of the dict; unknown fields stay.
    tree: as `plain` makes it.
    least: the smallest effect of a field that stays.
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


def plain(value: Any) -> Any:
  """Dataclasses to dicts, tuples to lists, a Spec to {name, **options}."""
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
