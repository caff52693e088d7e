"""Checks of a config's names and options against registries.

The options of a registered factory are its keyword-only arguments, those of a
class its fields, annotated with types that `fields` reads.
"""

import dataclasses
import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from splitjax.fields import check_value, readable, written
from splitjax.types import UserError, naming


@dataclasses.dataclass(frozen=True)
class Spec:
  """A registered name and its options.

  Attributes:
    name: key of the registry.
    options: all options of the factory that a config can set.
    label: name in tables and figures; if empty, they show `name`.
  """

  name: str
  options: dict[str, Any]
  label: str = ""


BOUND = (
  "how",
  "vocabulary",
  "backbone",
  "optimizer",
  "channels",
  "outer",
  "local_norm",
)
"""Factory arguments that are set by other config fields or by the data."""


def options(factory: Callable) -> dict[str, tuple[Any, Any]]:
  """Maps each option of a factory to (annotation, default).

  Options are its keyword-only arguments, of a dataclass its fields. Those in
  BOUND, and those that a functools.partial binds, are no options.

  Raises:
    UserError: the factory cannot be called, or an option has no annotation, no
      default, or a type that no config can hold.
  """
  bound = set(BOUND)
  base = factory
  if isinstance(factory, functools.partial):
    bound |= set(factory.keywords)
    base = factory.func
  if not callable(base):
    raise UserError(
      f"a {type(base).__name__} is no factory: give the function that makes it"
    )
  name = getattr(base, "__name__", str(base))
  try:
    hints = typing.get_type_hints(base, include_extras=True)
  except (NameError, TypeError) as error:
    raise UserError(
      f"{name}: its annotations cannot be read: {error}"
    ) from None
  known = {}
  for p in inspect.signature(base).parameters.values():
    if p.kind is not p.KEYWORD_ONLY or p.name in bound:
      continue
    if p.name not in hints or not readable(hints[p.name]):
      raise UserError(
        f"{name}: annotate its option {p.name} as int, float, str, bool,"
        " Literal[...], tuple[int, ...] or a union of them"
      )
    if p.default is p.empty:
      raise UserError(
        f"option {p.name} of {name} needs a default, which configs start from"
      )
    known[p.name] = hints[p.name], p.default
  return known


def find(registry: Mapping[str, Callable], name: str, where: str) -> Callable:
  """Returns the factory registered under a name.

  Raises:
    UserError: the name is unknown; see `unknown` for the message.
  """
  if name not in registry:
    raise UserError(unknown(f"{where}.name", name, registry, "name"))
  return registry[name]


MOST = 10
"""Above this number of names, an error shows only the nearest three."""


def nearest(text: str, known: Iterable[str]) -> list[str]:
  """Returns the three names most similar to a text."""
  return difflib.get_close_matches(text, list(known), 3, cutoff=0.0)


def unknown(
  where: str, name: Any, known: Iterable[str], kind: str = "field"
) -> str:
  """Writes the error message for an unknown name, with the choices.

  If there are more than MOST choices, the message has only the nearest three.
  """
  known = [str(k) for k in known]
  text = written(name).strip("'")
  near = difflib.get_close_matches(text, known, 1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
  choices = f"choices: {', '.join(known)}" if known else "there are none"
  if len(known) > MOST:
    closest = ", ".join(nearest(text, known))
    choices = f"the nearest of {len(known)}: {closest}"
  return f"{where}: unknown {kind} {written(name)}{hint} ({choices})"


def unknown_field(where: str, path: str, tree: Mapping[str, Any]) -> str:
  """Writes the error message for a dotted path that a config lacks.

  Args:
    where: the flag or field that named the path.
    path: the unknown path, or its last word.
    tree: the config as a nested dict; the message suggests its nearest fields
      and lists the names in the group of the path.
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
  parts = list(dict.fromkeys(k.partition(".")[0] for k in beside))
  if len(parts) > MOST:
    parts = [] if near else nearest(word, parts)
  names = ", ".join(parts)
  hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
  choices = f" ({group or 'config'} has {names})" if names else ""
  return f"{where}: unknown field {written(path)}{hint}{choices}"


def read_spec(registry: Mapping[str, Callable], given: Any, where: str) -> Spec:
  """Checks a name and its options against the factory's signature.

  A text stands for a name with its default options.

  Raises:
    UserError: a name or option is unknown, or an option has a wrong type.
  """
  if isinstance(given, str):
    given = {"name": given}
  if not isinstance(given, Mapping) or "name" not in given:
    raise UserError(f"{where}: needs a name (choices: {', '.join(registry)})")
  name = check_value(given["name"], str, f"{where}.name")
  label = check_value(given.get("label", ""), str, f"{where}.label")
  factory = find(registry, name, where)
  if not callable(factory):
    raise UserError(
      f"{where}.name={name!r}: {factory!r} is registered, which is no function"
    )
  with naming(f"{where}.name={name!r}"):
    known = options(factory)
  chosen = {key: value for key, (_, value) in known.items()}
  for key, value in given.items():
    if key in ("name", "label"):
      continue
    if key not in known:
      raise UserError(
        unknown(f"{where} ({name})", key, known, "option") + "; leave it out"
      )
    chosen[key] = check_value(value, known[key][0], f"{where}.{key}")
  return Spec(name, chosen, label)


def plain(value: Any) -> Any:
  """Turns dataclasses into dicts and tuples into lists.

  A Spec becomes {name, **options}, with its label if it has one.
  """
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
  """Flattens dicts to dotted paths: {"a": {"b": 1}} -> {"a.b": 1}."""
  if not isinstance(tree, dict):
    return {name: tree}
  leaves: dict[str, Any] = {}
  for key, value in tree.items():
    leaves |= flat(value, f"{name}.{key}" if name else key)
  return leaves
