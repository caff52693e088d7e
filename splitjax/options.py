"""Registered names with options, checked against the factory's signature.

The options of a registered function are its keyword-only arguments, those of a
class its fields, annotated with types that `fields` reads.
"""

import ast
import copy
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from splitjax.fields import Text, convert, readable, unknown, written
from splitjax.types import UserError

Registry = Mapping[str, Callable]
"""Name -> factory."""

BOUND = """backbone channels local_norm optimizer outer style
vocabulary""".split()
"""Arguments of factories that other fields or the data set."""

LONGEST_KEY = 100
"""Maximum length of a key: the key of a method names a folder."""

RESERVED = frozenset(
  "con prn aux nul".split()
  + [f"com{number}" for number in range(10)]
  + [f"lpt{number}" for number in range(10)]
)
"""Names that no folder can have on Windows."""


class NoSuchField(UserError, AttributeError):
  """Raised for a field or an option that there is not."""


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
    fault = ""
    if option not in hints or not readable(hints[option]):
      fault = "annotate it as int, float, str, bool, Literal, tuple[int, ...]"
    elif argument.default is argument.empty:
      fault = "it needs a default, which configs start from"
    elif hasattr(Spec, option):
      fault = "rename it, every Spec has this attribute"
    if fault:
      raise UserError(f"option {option} of {name}: {fault}")
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
    self._registry = registry
    self._name = name
    self._path = ""
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
    """All options: the set ones, and the factory's defaults."""
    declarations = declared(self.factory).items()
    return {name: default for name, (_, default) in declarations} | self._chosen

  def set(self, option: str, value: Any, path: str = "") -> None:
    """Sets the name, the label or an option; `path` is its dotted path."""
    path = path or f"{self._path or self._name}.{option}"
    if option == "name":
      value = convert(value, str, path)
      if value != self._name:  # the same name again changes nothing
        check_name(self._registry, value, path.removesuffix(".name"))
        self._name = value
        self._chosen = {}
        self.label = ""
    elif option == "label":
      object.__setattr__(self, "label", convert(value, str, path))
    else:
      declarations = declared(self.factory)
      if option not in declarations:
        raise NoSuchField(self._lacks(option, path))
      hint, default = declarations[option]
      value = convert(value, hint, path)
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
    return isinstance(other, Spec) and self._said() == other._said()

  def _said(self) -> dict[str, Any]:
    """Returns the name, the label and what differs from the defaults."""
    return {"name": self._name, "label": self.label, **self._chosen}

  def __repr__(self) -> str:
    return self._name + _arguments(self.options)

  def __str__(self) -> str:
    return self._name + (_arguments(self._chosen) if self._chosen else "")

  def placed(self, registry: Registry | str, path: str) -> "Spec":
    """Returns a copy that names itself by its path in a config."""
    spec = copy.copy(self)
    spec._registry = registry
    spec._path = path
    spec._chosen = dict(self._chosen)
    return spec

  def to_dict(self) -> dict[str, Any]:
    """Returns {name, label if it has one, all options}."""
    label = {"label": self.label} if self.label else {}
    return {"name": self._name, **label, **self.options}

  @classmethod
  def of(cls, registry: Registry | str, source: Any, path: str) -> "Spec":
    """Makes a checked Spec from a Spec, a dict as of `to_dict`, or a call.

    Raises:
      UserError: the name or an option is unknown, or a value is wrong.
    """
    if isinstance(source, Spec):
      if isinstance(registry, str) and source._registry == registry:
        return source.placed(registry, path)  # looks nothing up
      source = source._said()
    elif isinstance(source, str):
      items = calls(registry, source)
      if len(items) != 1 or "=" in source.partition("(")[0]:
        text = "must be one name, as in NAME or NAME(OPTION=1)"
        raise UserError(f"{path}={written(str(source))} {text}")
      source = items[0][1]
    if not isinstance(source, Mapping) or "name" not in source:
      choices = ", ".join(registry_of(registry))
      text = f"needs a name (choices: {choices})"
      raise UserError(f"{path}={written(source)} {text}")
    spec = cls(registry, convert(source["name"], str, f"{path}.name"))
    check_name(registry, spec.name, path)
    for option, value in source.items():
      spec.set(str(option), value, f"{path}.{option}")
    return spec.placed(registry, path)


def _arguments(options: Mapping[str, Any]) -> str:
  """Writes options as the arguments of a call."""
  words = [f"{option}={value!r}" for option, value in options.items()]
  return f"({', '.join(words)})"


def keyed(
  registry: Registry | str,
  value: Any,
  path: str,
  present: Mapping[str, Spec],
) -> dict[str, Spec]:
  """Reads several names: a dict, a sequence of names, or "a, KEY=b(x=1)".

  A name alone that is a key of `present` means what this key has there.

  Raises:
    UserError: a key cannot name a folder, or occurs twice; see `Spec.of`.
  """
  pairs: list[tuple[Any, Any]] = []
  if isinstance(value, Mapping):
    pairs = list(value.items())
  elif value is not None and value not in ("", "None", (), []):
    names = map(str, value) if isinstance(value, list | tuple) else [value]
    text = ",".join(names) if not isinstance(value, int | float) else ""
    for key, source in calls(registry, text):
      bare = key in present and source == {"name": key}
      pairs.append((key, present[key] if bare else source))
    if not pairs:
      text = "must be names, as in NAME,KEY=NAME(OPTION=1)"
      raise UserError(f"{path}={written(value)} {text}")
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
    # On macOS and Windows they would be the same folder.
    twins = [k for k in keys[:number] if k.lower() == key.lower()]
    if twins:
      text = f"{written(key)} and {written(twins[0])} are one folder"
      raise UserError(f"{path}: {text}: write KEY={key}(...) with other keys")


def calls(
  registry: Registry | str, text: str
) -> list[tuple[str, dict[str, Any]]]:
  """Reads names with options, but checks neither; [] if the text is no list.

  "harmony, a=splitgp(lam=0.9)" gives ("harmony", {"name": "harmony"}) and
  ("a", {"name": "splitgp", "lam": "0.9"}). Python's own parser reads the text
  as the arguments of a call.
  """
  if text in registry_of(registry):  # also one that is no identifier
    return [(str(text), {"name": str(text)})]
  try:
    call = ast.parse(f"_({text})", mode="eval").body
    if not isinstance(call, ast.Call):
      return []
    items = [(ast.unparse(n).partition("(")[0], n) for n in call.args]
    items += [(str(item.arg), item.value) for item in call.keywords]
    return [(key, _source(node)) for key, node in items]
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return []


def _source(node: ast.expr) -> dict[str, Any]:
  """Reads NAME or NAME(OPTION=VALUE, ...); SyntaxError if it is neither."""
  call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
  if not isinstance(call.func, ast.Name) or call.args:
    raise SyntaxError
  source: dict[str, Any] = {"name": call.func.id}
  for option in call.keywords:
    if option.arg is None:
      raise SyntaxError
    value = option.value
    text = value.value if isinstance(value, ast.Constant) else None
    text = text if isinstance(text, str) else ast.unparse(value)
    source[option.arg] = Text(text)
  return source
