"""Registered names with options, checked against the factory's signature.

The options of a registered function are its keyword-only arguments, those of a
class its fields, annotated with types that `fields` reads.
"""

import copy
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from splitjax.fields import Text, convert, readable, split, unknown, written
from splitjax.types import UserError

Registry = Mapping[str, Callable]
"""Name -> factory."""

_BOUND = """backbone channels local_norm optimizer outer style
vocabulary""".split()
"""Arguments of factories that other fields or the data set."""

_LONGEST_KEY = 100
"""Maximum length of a key: the key of a method names a folder."""


class NoSuchField(UserError, AttributeError):
  """Raised for a field or an option that there is not."""


class Option(NamedTuple):
  """What an option may be, and what it is if nobody sets it."""

  hint: Any
  default: Any = None


@functools.cache
def declared(factory: Callable) -> dict[str, Option]:
  """Maps the names of a factory's options to them.

  BOUND, and what a functools.partial sets, are no options.

  Raises:
    UserError: the factory cannot be called, or an option has no default, or a
      type that no config can hold.
  """
  bound = set(_BOUND)
  function = factory
  if isinstance(factory, functools.partial):
    bound |= factory.keywords.keys()
    function = factory.func
  name = getattr(function, "__name__", type(function).__name__)
  if not callable(function):
    raise UserError(f"a {name} is no factory: give the function that makes it")
  try:
    hints = typing.get_type_hints(function, include_extras=True)
    arguments = inspect.signature(function).parameters
  except (NameError, TypeError) as error:
    text = f"{name}: its annotations cannot be read: {error}"
    raise UserError(text) from None
  options = {}
  for option, argument in arguments.items():
    if argument.kind is not argument.KEYWORD_ONLY or option in bound:
      continue
    fault = ""
    if option not in hints or not readable(hints[option]):
      fault = "annotate it as int, float, str, bool, Literal, tuple[int, ...]"
    elif argument.default is argument.empty:
      fault = "it needs a default, which configs start from"
    elif hasattr(Spec, option):
      fault = "rename it, every Spec has this attribute"
    if fault:
      raise UserError(f"option {option} of {name}: {fault}")
    options[option] = Option(hint=hints[option], default=argument.default)
  return options


def registry_of(registry: Registry | str) -> Registry:
  """Returns a registry; one that is named is looked up in `splitjax`."""
  if isinstance(registry, str):
    return getattr(sys.modules["splitjax"], registry)
  return registry


class Checked:
  """What checks its fields where they are set, and has no others.

  `_path` is its own place in a config, such as "data.partition".
  """

  __slots__ = ("_path",)

  def set(self, name: str, value: Any) -> None:
    """Sets a field; UserError if there is none, or it takes other values."""
    raise NotImplementedError

  def lacks(self, name: str) -> str:
    """Writes the error for a field that there is not."""
    raise NotImplementedError

  def path(self, name: str) -> str:
    """Returns the dotted path of a field."""
    prefix = getattr(self, "_path", "")
    return f"{prefix}.{name}" if prefix else name

  def __setattr__(self, name: str, value: Any) -> None:
    if name.startswith("_"):
      object.__setattr__(self, name, value)
    else:
      self.set(name, value)

  def __getattr__(self, name: str) -> Any:  # only of names that are no fields
    if name.startswith("_"):  # copy and pickle look for their hooks
      raise AttributeError(name)
    raise NoSuchField(self.lacks(name))


class Spec(Checked):
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

  __slots__ = ("_chosen", "_label", "_name", "_registry")

  def __init__(
    self, registry: Registry | str, name: str, label: str = "", **options: Any
  ):
    self._registry = registry
    self._path = name
    self._begin(name, label)
    for option, value in options.items():
      self.set(option, value)

  def _begin(self, name: str, label: str = "") -> None:
    self._name = name
    self._label = label
    self._chosen: dict[str, Any] = {}

  @property
  def name(self) -> str:
    """Key of the registry."""
    return self._name

  @property
  def label(self) -> str:
    """Name in tables and figures; "" stands for the key."""
    return self._label

  def registered(self) -> Callable:
    """Returns what the registry has; UserError if nothing can be made of it."""
    factories = registry_of(self._registry)
    if self.name not in factories:
      raise UserError(unknown(self._path, self.name, factories))
    try:
      declared(factories[self.name])
    except UserError as error:
      raise UserError(f"{self._path}={self.name}: {error}") from None
    return factories[self.name]

  @property
  def options(self) -> dict[str, Any]:
    """All options: the set ones, and the factory's defaults."""
    options = declared(self.registered()).items()
    return {name: option.default for name, option in options} | self._chosen

  def set(self, name: str, value: Any) -> None:
    """Sets the name, the label or an option."""
    path = self.path(name)
    if name == "name":
      value = convert(value, str, path)
      if value != self.name:  # the same name again changes nothing
        Spec.at(self._registry, self._path, value)  # refuses a wrong one
        self._begin(value)
    elif name == "label":
      self._label = convert(value, str, path)
    else:
      option = declared(self.registered()).get(name)
      if option is None:
        raise NoSuchField(self.lacks(name))
      value = convert(value, option.hint, path)
      # Equal Specs are to have equal texts.
      self._chosen.pop(name, None)
      if (type(value), value) != (type(option.default), option.default):
        self._chosen[name] = value

  def lacks(self, name: str) -> str:
    """Writes the error for an unknown option; names who has it, if not this."""
    # `alpha` with the partition shard: likely another name was meant.
    factories = registry_of(self._registry)
    owners = [n for n, f in factories.items() if name in declared(f)]
    kind = f"option of {self.name},"
    text = unknown(self.path(name), name, declared(self.registered()), kind)
    if owners and "did you mean" not in text:
      text += f"; {self._path}={owners[0]} has it"
    return text

  def __getattr__(self, name: str) -> Any:
    if name.startswith("_") or name not in self.options:
      return super().__getattr__(name)
    return self.options[name]

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Spec) and self._said() == other._said()

  def _said(self) -> dict[str, Any]:
    """Returns the name, the label and what differs from the defaults."""
    return {"name": self.name, "label": self.label, **self._chosen}

  def __repr__(self) -> str:
    return self.name + _arguments(self.options)

  def __str__(self) -> str:
    return self.name + (_arguments(self._chosen) if self._chosen else "")

  def to_dict(self) -> dict[str, Any]:
    """Returns {name, label if it has one, all options}."""
    label = {"label": self.label} if self.label else {}
    return {"name": self.name, **label, **self.options}

  @classmethod
  def at(cls, registry: Registry | str, path: str, source: Any) -> "Spec":
    """Makes the checked Spec of a field.

    Args:
      registry: that of the field.
      path: that of the field.
      source: a Spec, a dict as of `to_dict`, or "NAME(OPTION=VALUE)".

    Raises:
      UserError: the name or an option is unknown, or a value is wrong.
    """
    if isinstance(source, Spec):
      if isinstance(registry, str) and source._registry == registry:
        spec = copy.copy(source)  # looks nothing up
        spec._path = path
        spec._chosen = dict(source._chosen)
        return spec
      source = source._said()
    elif isinstance(source, str):
      source = _call(source, path)
    if not isinstance(source, Mapping) or "name" not in source:
      text = f"needs a name (choices: {', '.join(registry_of(registry))})"
      raise UserError(f"{path}={written(source)} {text}")
    spec = cls(registry, convert(source["name"], str, f"{path}.name"))
    spec._path = path
    spec.registered()  # refuses a wrong name before its options
    for name, value in source.items():
      spec.set(str(name), value)
    return spec


def _arguments(options: Mapping[str, Any]) -> str:
  """Writes options as the arguments of a call."""
  words = [f"{option}={value!r}" for option, value in options.items()]
  return f"({', '.join(words)})"


def _call(text: str, path: str) -> dict[str, Any]:
  """Reads NAME or NAME(OPTION=VALUE, ...), but checks neither."""
  call = re.fullmatch(r"([^(=,]+)(?:\((.*)\))?", text.strip(), re.DOTALL)
  parts = [part.partition("=") for part in split(call[2] or "")] if call else []
  if call is None or not all(value for _, _, value in parts):
    form = "must be one name, as in NAME or NAME(OPTION=1)"
    raise UserError(f"{path}={written(str(text))} {form}")
  options = {name.strip(): Text(x.strip(" '\"")) for name, _, x in parts}
  return {"name": call[1].strip(), **options}


def keyed(
  registry: Registry | str,
  value: Any,
  path: str,
  present: Mapping[str, Spec],
) -> dict[str, Spec]:
  """Reads several names: a dict, a sequence of names, or "a, KEY=b(x=1)".

  A name alone that is a key of `present` means what this key has there.

  Raises:
    UserError: a key cannot name a folder, or occurs twice; see `Spec.at`.
  """
  pairs: Iterable[tuple[Any, Any]]
  if isinstance(value, Mapping):
    pairs = value.items()
  elif value is None or isinstance(value, str | list | tuple):
    words = value or ()
    if isinstance(words, str):
      words = () if words == "None" else split(words)
    pairs = [_pair(str(word), present) for word in words]
  else:
    text = "must be names, as in NAME,KEY=NAME(OPTION=1)"
    raise UserError(f"{path}={written(value)} {text}")
  specs: dict[str, Spec] = {}
  folders: dict[str, str] = {}
  for key, source in pairs:
    identifier = isinstance(key, str) and key.isidentifier() and key.isascii()
    if not identifier or len(key) > _LONGEST_KEY:
      form = "must be an ASCII identifier, such as a_1: it names a folder"
      raise UserError(f"{path}: key {written(key)} {form}")
    # On macOS and Windows they would be the same folder.
    if twin := folders.get(key.lower()):
      text = f"{key!r} and {twin!r} are one folder"
      raise UserError(f"{path}: {text}: write KEY={key}(...) with other keys")
    folders[key.lower()] = key
    specs[key] = Spec.at(registry, f"{path}.{key}", source)
  return specs


def _pair(word: str, present: Mapping[str, Spec]) -> tuple[str, Any]:
  """Reads NAME(OPTION=1) or KEY=NAME(OPTION=1) as a key and its source."""
  key, equals, source = word.partition("=")
  if equals and "(" not in key:
    return key.strip(), source
  name = word.partition("(")[0].strip()
  return name, present[name] if name == word and name in present else word
