"""Registered names with options, checked against the factory's signature.

The options of a registered function are its keyword-only arguments, those of a
class its fields, annotated with types that `fields` reads.
"""

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from splitjax.fields import (
  alternatives,
  check_value,
  native,
  read,
  readable,
  unknown,
  written,
)
from splitjax.types import UserError

Registry = Mapping[str, Callable]
"""Name -> factory."""

BOUND = """backbone channels how local_norm optimizer outer
vocabulary""".split()
"""Arguments of factories that other fields or the data set."""

LONGEST_KEY = 100
"""Maximum length of a key: the key of a method names a folder."""

RESERVED = frozenset(
  ["con", "prn", "aux", "nul"]
  + [f"{port}{number}" for port in ("com", "lpt") for number in range(10)]
)
"""Names that no folder can have on Windows."""


class NoSuchField(UserError, AttributeError):
  """Raised for a field or an option that there is not."""


class Text(str):
  """A value as it was typed, still to be read by its field's annotation."""


@functools.cache
def declared(factory: Callable) -> dict[str, tuple[Any, Any]]:
  """Maps each option of a factory to (annotation, default).

  BOUND, and what a functools.partial sets, are no options.

  Raises:
    UserError: the factory cannot be called, or an option has no default, or a
      type that no config can hold.
  """
  bound = set(BOUND)
  function = factory
  if isinstance(factory, functools.partial):
    bound |= factory.keywords.keys()
    function = factory.func
  if not callable(function):
    kind = type(function).__name__
    raise UserError(f"a {kind} is no factory: give the function that makes it")
  name = getattr(function, "__name__", str(function))
  try:
    hints = typing.get_type_hints(function, include_extras=True)
  except (NameError, TypeError) as error:
    text = f"{name}: its annotations cannot be read: {error}"
    raise UserError(text) from None
  declarations = {}
  for option, argument in inspect.signature(function).parameters.items():
    if argument.kind is not argument.KEYWORD_ONLY or option in bound:
      continue
    if option not in hints or not readable(hints[option]):
      remedy = "as int, float, str, bool, Literal, tuple[int, ...] or a union"
      raise UserError(f"option {option} of {name}: annotate it {remedy}")
    if argument.default is argument.empty:
      text = "needs a default, which configs start from"
      raise UserError(f"option {option} of {name} {text}")
    if hasattr(Spec, option):
      text = "rename it, every Spec has this attribute"
      raise UserError(f"option {option} of {name}: {text}")
    declarations[option] = hints[option], argument.default
  return declarations


def registry_of(registry: Registry | str) -> Registry:
  """Returns a registry; one that is named is looked up in `splitjax`."""
  if isinstance(registry, str):
    return getattr(sys.modules["splitjax"], registry)
  return registry


def check_name(registry: Registry | str, name: Any, path: str) -> Callable:
  """Returns the factory of a name.

  Raises:
    UserError: the registry lacks the name, or what it holds has no options.
  """
  factories = registry_of(registry)
  if not isinstance(name, str) or name not in factories:
    raise UserError(unknown(path, name, factories))
  try:
    declared(factories[name])
  except UserError as error:
    raise UserError(f"{path}={name}: {error}") from None
  return factories[name]


class Spec:
  """A registered name and its options, which are read and set by attribute.

  Setting another name resets the options to that name's defaults and drops the
  label, so set the name before its options. In a config a Spec is copied.

  Args:
    registry: a registry, or its name in `splitjax`: then it is looked up, and
      its packages are imported, when something asks for an option.
    name: key of the registry.
    label: name in tables and figures; "": the key.
    **options: options that differ from the factory's defaults.

  Example:
    >>> from splitjax.options import Spec
    >>> partition = Spec("PARTITIONS", "dirichlet", alpha=0.3)
    >>> partition.alpha, partition.min_samples
    (0.3, 1)
    >>> partition.name = "shard"
    >>> partition
    shard(k=2, num_shards=100)
  """

  __slots__ = ("_chosen", "_name", "_path", "_registry", "label")

  def __init__(
    self, registry: Registry | str, name: str, label: str = "", **options: Any
  ):
    self._registry, self._name, self._path = registry, name, ""
    self._chosen: dict[str, Any] = {}
    self.label = label
    for option, value in options.items():
      self.set(option, value)

  @property
  def name(self) -> str:
    """Key of the registry."""
    return self._name

  @property
  def factory(self) -> Callable:
    """What the registry holds under the name."""
    return check_name(self._registry, self._name, self._path or "name")

  @property
  def options(self) -> dict[str, Any]:
    """All options: the given ones, and the factory's defaults."""
    declarations = declared(self.factory).items()
    return {name: default for name, (_, default) in declarations} | self._chosen

  def set(self, option: str, value: Any, path: str = "") -> None:
    """Sets the name, the label or an option; `path` is its dotted path."""
    path = path or f"{self._path or self._name}.{option}"
    if option == "name":
      value = checked(value, str, path)
      if value != self._name:  # the same name again changes nothing
        check_name(self._registry, value, path.removesuffix(".name"))
        self._name, self._chosen, self.label = value, {}, ""
    elif option == "label":
      object.__setattr__(self, "label", checked(value, str, path))
    else:
      declarations = declared(self.factory)
      if option not in declarations:
        raise NoSuchField(self._lacks(option, path))
      hint, default = declarations[option]
      value = checked(value, hint, path)
      # Equal Specs are to have equal texts.
      self._chosen.pop(option, None)
      if (type(value), value) != (type(default), default):
        self._chosen[option] = value

  def _lacks(self, option: str, path: str) -> str:
    """Writes the error for an unknown option; names who has it, if not this."""
    # `alpha` with the partition shard: likely another name was meant.
    factories = registry_of(self._registry)
    owners = [n for n, f in factories.items() if option in declared(f)]
    kind = f"option of {self._name},"
    text = unknown(path, option, declared(self.factory), kind)
    if owners and "did you mean" not in text:
      field = path.rpartition(".")[0] or "name"
      text += f"; {field}={owners[0]} has it"
    return text

  def __getattr__(self, option: str) -> Any:
    if option.startswith("_"):  # copy and pickle look for their hooks
      raise AttributeError(option)
    options = self.options
    if option not in options:
      path = f"{self._path or self._name}.{option}"
      raise NoSuchField(self._lacks(option, path))
    return options[option]

  def __setattr__(self, option: str, value: Any) -> None:
    if option.startswith("_"):
      object.__setattr__(self, option, value)
    else:
      self.set(option, value)

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Spec):
      return NotImplemented
    mine = self._name, self.label, self._chosen
    return mine == (other._name, other.label, other._chosen)

  def __reduce__(self):
    # By the registry's name: what it holds may be no module's function.
    parts = self._registry, self._name, self.label, self._path, self._chosen
    return Spec.restored, parts

  def __deepcopy__(self, memo: dict) -> "Spec":
    return self.placed(self._registry, self._path)

  def __repr__(self) -> str:
    return self._name + _arguments(self.options)

  def __str__(self) -> str:
    return self._name + (_arguments(self._chosen) if self._chosen else "")

  @classmethod
  def restored(
    cls,
    registry: Registry | str,
    name: str,
    label: str,
    path: str,
    chosen: Mapping[str, Any],
  ) -> "Spec":
    """Makes a Spec of checked parts."""
    spec = cls(registry, name)
    object.__setattr__(spec, "label", label)
    spec._path, spec._chosen = path, dict(chosen)
    return spec

  def placed(self, registry: Registry | str, path: str) -> "Spec":
    """Returns a copy that names itself by its path in a config."""
    parts = self._name, self.label, path, self._chosen
    return Spec.restored(registry, *parts)

  def with_options(self, **options: Any) -> "Spec":
    """Returns a copy with other options."""
    spec = self.placed(self._registry, self._path)
    for option, value in options.items():
      spec.set(option, value)
    return spec

  def to_dict(self) -> dict[str, Any]:
    """Returns {name, label if it has one, all options}."""
    label = {"label": self.label} if self.label else {}
    return {"name": self._name, **label, **self.options}

  def is_bare(self) -> bool:
    """Tells whether this is a name alone."""
    return not self._chosen and not self.label

  @classmethod
  def of(cls, registry: Registry | str, source: Any, path: str) -> "Spec":
    """Makes a checked Spec from a Spec, a dict as of `to_dict`, or a call.

    Raises:
      UserError: the name or an option is unknown, or a value is wrong.
    """
    if isinstance(source, Spec):
      spec = source.placed(registry, path)
      check_name(registry, spec._name, path)
      # The Spec of another registry may have other options.
      for option, value in source._chosen.items():
        spec.set(option, value, f"{path}.{option}")
      return spec
    if isinstance(source, Mapping):
      if "name" not in source:
        choices = ", ".join(registry_of(registry))
        raise UserError(f"{path}: needs a name (choices: {choices})")
      spec = cls(registry, checked(source["name"], str, f"{path}.name"))
      check_name(registry, spec._name, path)
      for option, value in source.items():
        spec.set(str(option), value, f"{path}.{option}")
      return spec.placed(registry, path)
    if not isinstance(source, str):
      form = "must be NAME or NAME(OPTION=1)"
      raise UserError(f"{path}={written(source)} {form}")
    (found, *others) = calls(registry, source, path)
    if others or "=" in source.partition("(")[0]:
      raise UserError(f"{path}={written(source)} must be one name")
    return found[1].placed(registry, path)


def checked(value: Any, hint: Any, path: str) -> Any:
  """Converts a value by an annotation; a `Text` is read first.

  A number stands for a tuple of one.
  """
  if isinstance(value, Text):
    value = read(str(value), hint)
  value = native(value)
  several = any(typing.get_origin(x) is tuple for x in alternatives(hint))
  if several and type(value) in (int, float):
    value = (value,)
  return check_value(value, hint, path)


def _arguments(options: Mapping[str, Any]) -> str:
  """Writes options as the arguments of a call."""
  words = [f"{option}={value!r}" for option, value in options.items()]
  return f"({', '.join(words)})"


def keyed(
  registry: Registry | str,
  value: Any,
  path: str,
  present: Mapping[str, Spec] | None = None,
) -> dict[str, Spec]:
  """Reads several names: a dict, a sequence of names, or "a, KEY=b(x=1)".

  A name alone that is a key of `present` means what this key has there.

  Raises:
    UserError: a key cannot name a folder, or occurs twice; see `Spec.of`.
  """
  present = present or {}
  if isinstance(value, Mapping):
    pairs = list(value.items())
  elif value is None or isinstance(value, str) and value in ("", "None"):
    pairs = []
  elif isinstance(value, str | list | tuple):
    text = value if isinstance(value, str) else ",".join(map(str, value))
    pairs = [
      (key, present[key])
      if key in present and spec.is_bare() and spec.name == key
      else (key, spec)
      for key, spec in calls(registry, text, path, present)
    ]
  else:
    form = "must be names, as in NAME,KEY=NAME(OPTION=1)"
    raise UserError(f"{path}={written(value)} {form}")
  check_keys([key for key, _ in pairs], path)
  return {
    key: Spec.of(registry, source, f"{path}.{key}") for key, source in pairs
  }


def check_keys(keys: Sequence[Any], path: str) -> None:
  """Raises UserError unless each key can name a field and a folder."""
  for number, key in enumerate(keys):
    name = isinstance(key, str) and key.isidentifier() and key.isascii()
    if not name or len(key) > LONGEST_KEY or key.lower() in RESERVED:
      form = "must be an ASCII identifier, such as a_1, and name a folder"
      raise UserError(f"{path}: key {written(key)} {form}")
    same = [k for k in keys[:number] if k.lower() == key.lower()]
    if same:
      text = f"{written(key)} and {written(same[0])} are one folder"
      raise UserError(f"{path}: {text}: write KEY={key}(...) with other keys")


def calls(
  registry: Registry | str,
  text: str,
  path: str,
  keys: Collection[str] | None = None,
) -> list[tuple[str, Spec]]:
  """Reads names with options: "harmony, mine=splitgp(lam=0.9)" -> key, Spec.

  Python's own parser reads the text as the arguments of a call. `keys` are
  names that need not be registered, if keys are a part of paths.

  Raises:
    UserError: the text is no such list, or a name or an option is wrong.
  """
  if text in registry_of(registry):  # also one that is no identifier
    check_name(registry, str(text), path)
    return [(str(text), Spec(registry, str(text)))]
  nodes: list[tuple[str, ast.expr]] = []
  specs: list[tuple[str, Spec]] = []
  try:
    arguments = ast.parse(f"_({text})", mode="eval").body
    if isinstance(arguments, ast.Call):
      nodes = [(ast.unparse(n).partition("(")[0], n) for n in arguments.args]
      nodes += [(str(item.arg), item.value) for item in arguments.keywords]
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    nodes = []
  try:
    for key, node in nodes:
      place = path if keys is None else f"{path}.{key}"
      specs.append((key, _call(registry, key, node, place, keys or ())))
  except SyntaxError:
    specs = []
  if not specs:
    form = "must be NAME or NAME(OPTION=1)"
    raise UserError(f"{path}={written(str(text))} {form}")
  return specs


def _call(
  registry: Registry | str,
  key: str,
  node: ast.expr,
  path: str,
  keys: Collection[str],
) -> Spec:
  """Turns NAME or NAME(OPTION=VALUE, ...) into a Spec; SyntaxError if not."""
  if isinstance(node, ast.Name) and node.id == key and key in keys:
    return Spec(registry, key)
  call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
  if not isinstance(call.func, ast.Name) or call.args:
    raise SyntaxError
  if any(option.arg is None for option in call.keywords):
    raise SyntaxError
  spec = Spec(registry, call.func.id)
  check_name(registry, spec.name, path)
  for option in call.keywords:
    value = option.value
    text = value.value if isinstance(value, ast.Constant) else None
    text = text if isinstance(text, str) else ast.unparse(value)
    spec.set(str(option.arg), Text(text), f"{path}.{option.arg}")
  return spec
