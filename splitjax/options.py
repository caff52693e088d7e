"""Registered names with options, checked against the factory's signature.

The options of a registered function are its keyword-only arguments, those of a
class its fields, annotated with types that `fields` reads.
"""

import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from splitjax.fields import (
  Checked,
  NoSuchField,
  Text,
  convert,
  described,
  naming,
  split,
  unknown,
  written,
)
from splitjax.types import UserError

Registry = Mapping[str, Callable]
"""Name -> factory."""

_BOUND = """backbone channels local_norm optimizer outer style
vocabulary""".split()
"""Arguments of factories that other fields or the data set."""


@functools.cache
def declared(factory: Callable) -> dict[str, inspect.Parameter]:
  """Maps the names of a factory's options to their annotations and defaults.

  What other fields set, or a functools.partial, is no option. Raises UserError
  for an option without a default, or of a type that no config can hold.
  """
  function = getattr(factory, "func", factory)  # of a partial
  bound = {*_BOUND, *getattr(factory, "keywords", ())}
  name = getattr(function, "__name__", type(function).__name__)
  if not callable(function):
    raise UserError(f"a {name} is no factory: give the function that makes it")
  try:
    arguments = inspect.signature(function, eval_str=True).parameters
  except (NameError, TypeError, ValueError) as error:
    text = f"{name}: its annotations cannot be read: {error}"
    raise UserError(text) from None
  options = {}
  for option, argument in arguments.items():
    if argument.kind is not argument.KEYWORD_ONLY or option in bound:
      continue
    fault = ""
    if not described(argument.annotation):
      fault = "annotate it as int, float, str, bool, Literal, tuple[int, ...]"
    elif argument.default is argument.empty:
      fault = "it needs a default, which configs start from"
    elif option in Spec.__annotations__ or hasattr(Spec, option):
      fault = "rename it, every Spec has this attribute"
    if fault:
      raise UserError(f"option {option} of {name}: {fault}")
    options[option] = argument
  return options


def registry_of(registry: Registry | str) -> Registry:
  """Returns a registry; one that is named is looked up in `splitjax`."""
  if isinstance(registry, str):
    return getattr(sys.modules["splitjax"], registry)
  return registry


class Spec(Checked):
  """A registered name and its options, which are read and set by attribute.

  Setting another name resets the options to that name's defaults and drops the
  label, so set the name before its options. In a config a Spec is copied. A
  registry that is named, as it is in `splitjax`, is looked up, and its packages
  are imported, when something asks for an option.

  Example:
    >>> from splitjax.options import Spec
    >>> partition = Spec("PARTITIONS", "dirichlet")
    >>> partition.alpha = 0.3
    >>> partition.alpha, partition.min_samples
    (0.3, 1)
    >>> partition.name = "shard"
    >>> partition
    shard(k=2, num_shards=100)
  """

  # Its variables are the name, the label, and options that are no defaults.
  __slots__ = ("__dict__", "_registry")
  name: str  #: key of the registry
  label: str  #: name in tables and figures; "" stands for the key

  def __init__(self, registry: Registry | str, name: str, path: str = ""):
    self._registry = registry
    self._path = path or name
    vars(self).update(name=name, label="")

  def declared(self) -> dict[str, inspect.Parameter]:
    """Looks the name up; returns what its options may be."""
    factories = registry_of(self._registry)
    if self.name not in factories:
      raise UserError(unknown(self._path, self.name, factories))
    with naming(f"{self._path}={self.name}"):
      return declared(factories[self.name])

  @property
  def options(self) -> dict[str, Any]:
    """All options: the set ones, and the factory's defaults."""
    options = self.declared().items()
    return {name: vars(self).get(name, x.default) for name, x in options}

  def set(self, name: str, value: Any) -> None:
    """Sets the name, the label or an option."""
    path = self.path(name)
    if name == "name":
      value = convert(value, str, path)
      if value != self.name:  # the same name again changes nothing
        self.__dict__ = vars(Spec.at(self._registry, self._path, value))
    elif name == "label":
      vars(self)[name] = convert(value, str, path)
    elif option := self.declared().get(name):
      value = convert(value, option.annotation, path)
      # Equal Specs are to have equal texts.
      vars(self).pop(name, None)
      if (type(value), value) != (type(option.default), option.default):
        vars(self)[name] = value
    else:
      raise NoSuchField(self.lacks(name))

  def lacks(self, name: str) -> str:
    """Writes the error for an unknown option; names who has it, if not this."""
    # `alpha` with the partition shard: likely another name was meant.
    factories = registry_of(self._registry)
    owners = [n for n, f in factories.items() if name in declared(f)]
    kind = f"option of {self.name},"
    text = unknown(self.path(name), name, self.options, kind)
    if owners and "did you mean" not in text:
      text += f"; {self._path}={owners[0]} has it"
    return text

  def __getattr__(self, name: str) -> Any:  # only of what is not set
    if name.startswith("_") or name not in self.options:
      return super().__getattr__(name)
    return self.options[name]

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Spec) and vars(self) == vars(other)

  def __repr__(self) -> str:
    return _call(self.name, self.options)

  def __str__(self) -> str:
    chosen = {k: v for k, v in vars(self).items() if k not in ("name", "label")}
    return _call(self.name, chosen) if chosen else self.name

  def to_dict(self) -> dict[str, Any]:
    """Returns {name, label if it has one, all options}."""
    label = {"label": self.label} if self.label else {}
    return {"name": self.name, **label, **self.options}

  @classmethod
  def at(cls, registry: Registry | str, path: str, source: Any) -> "Spec":
    """Makes the checked Spec of a field with a registry and a path.

    `source` is a Spec, a dict as of `to_dict`, or "NAME(OPTION=VALUE)".
    """
    if isinstance(source, Spec) and source._registry == registry:
      spec = copy.copy(source)  # looks nothing up
      spec._path = path
      return spec
    if isinstance(source, Spec):
      source = vars(source)
    elif not isinstance(source, Mapping):
      source = _read(convert(source, str, path), path)
    name = convert(source.get("name"), str, f"{path}.name")
    spec = cls(registry, name, path)
    spec.declared()  # refuses a wrong name before its options
    for option, value in source.items():
      spec.set(str(option), value)
    return spec


def _call(name: str, options: Mapping[str, Any]) -> str:
  """Writes a name with options as a call."""
  words = [f"{option}={value!r}" for option, value in options.items()]
  return f"{name}({', '.join(words)})"


def _read(text: str, path: str) -> dict[str, Any]:
  """Reads NAME or NAME(OPTION=VALUE, ...), but checks neither."""
  call = re.fullmatch(r"([^(=,]+)(?:\((.*)\))?", text.strip(), re.DOTALL)
  parts = [part.partition("=") for part in split(call[2] or "")] if call else []
  if call is None or not all(value for _, _, value in parts):
    form = "must be one name, as in NAME or NAME(OPTION=1)"
    raise UserError(f"{path}={written(text)} {form}")
  options = {name.strip(): Text(x.strip(" '\"")) for name, _, x in parts}
  return {"name": call[1].strip(), **options}


def keyed(
  registry: Registry | str, path: str, value: Any, present: Mapping[str, Spec]
) -> dict[str, Spec]:
  """Reads several names: a dict, a sequence of names, or "a, KEY=b(x=1)".

  A name alone that is a key of `present` means what this key has there.
  """
  if isinstance(value, Mapping):
    pairs = list(value.items())
  else:
    pairs = []
    for word in convert(value, tuple[str, ...] | None, path) or ():
      key, equals, source = map(str.strip, word.partition("="))
      if not equals or "(" in key:  # NAME or NAME(OPTION=1) is its own key
        key = word.partition("(")[0].strip()
        source = present.get(word, word)
      pairs.append((key, source))
  specs: dict[str, Spec] = {}
  for key, source in pairs:
    form = re.compile(r"[a-zA-Z_]\w{0,99}", re.ASCII)
    if not isinstance(key, str) or not form.fullmatch(key):
      text = "must be an ASCII identifier, such as a_1: it names a folder"
      raise UserError(f"{path}: key {written(key)} {text}")
    # On macOS and Windows a and A are one folder.
    if key.lower() in map(str.lower, specs):
      text = "names the folder of another: write KEY=NAME(...) with other keys"
      raise UserError(f"{path}: key {key!r} {text}")
    specs[key] = Spec.at(registry, f"{path}.{key}", source)
  return specs
