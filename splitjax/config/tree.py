"""A tree of plain dataclasses whose fields are set by dotted paths.

Overrides, sweeps, cells of a grid and stored configs go through `assign`, and
Python sets attributes: both convert a value by its field's annotation where it
is set, so that an error has the line of the file. `check` later asks each group
whether its fields fit together. Nothing here imports jax: a registry is looked
up when somebody asks for a name's options.
"""

import dataclasses
import difflib
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from splitjax.fields import convert, shown, unknown, written
from splitjax.options import Checked, NoSuchField, Spec, keyed, registry_of
from splitjax.types import UserError


def group(cls: type) -> Any:
  """A field that holds a group of fields."""
  return dataclasses.field(default_factory=cls)


def named(registry: str, name: str | None = None) -> Any:
  """A field of a registered name with options, or of several under keys."""
  make: Any = functools.partial(Spec, registry, name) if name else dict
  return dataclasses.field(
    default_factory=make, metadata={"registry": registry}
  )


def key(registry: str, name: str | tuple[str, ...]) -> Any:
  """A field that holds a key of a registry, or several, without options."""
  return dataclasses.field(default=name, metadata={"registry": registry})


class Slot(typing.NamedTuple):
  """A field: its annotation, and the registry of its names or ""."""

  hint: Any
  registry: str = ""

  @property
  def is_group(self) -> bool:
    """Tells whether the field is a group of fields."""
    return isinstance(self.hint, type) and issubclass(self.hint, FieldGroup)

  @property
  def keyed(self) -> bool:
    """Tells whether the field holds several names, each under a key."""
    return typing.get_origin(self.hint) is dict and self.registry != ""


def _slots(cls: Any) -> dict[str, Slot]:
  hints = typing.get_type_hints(cls, include_extras=True)
  return {
    field.name: Slot(hints[field.name], field.metadata.get("registry", ""))
    for field in dataclasses.fields(cls)
  }


slots: Callable[[Any], dict[str, Slot]] = functools.cache(_slots)
"""FieldGroup -> its fields -> their slots."""


@dataclasses.dataclass
class FieldGroup(Checked):
  """A group of fields. One that it lacks can be neither read nor set.

  A subclass made with `root=True` is the whole config: paths begin there.
  """

  __slots__ = ()
  root: ClassVar[type["FieldGroup"]]

  def __init_subclass__(cls, *, root: bool = False):
    if root:
      FieldGroup.root = cls

  def check(self) -> None:
    """Raises UserError if fields of the group contradict one another."""

  def lacks(self, name: str) -> str:
    """Writes the error for a field that there is not."""
    return _unknown_field(self.path(name))

  def set(self, name: str, value: Any) -> None:
    """Sets a field to what it holds of a value; the same name keeps options."""
    slot = slots(type(self)).get(name)
    if slot is None:
      raise NoSuchField(self.lacks(name))
    path = self.path(name)
    present = vars(self).get(name)
    if slot.is_group:
      value = _members(slot, value, present, path)
    elif slot.hint is Spec:
      if not isinstance(present, Spec) or value != present.name:
        present = Spec.at(slot.registry, path, value)
      value = present
    elif slot.keyed:
      value = keyed(slot.registry, value, path, present or {})
    elif typing.get_origin(slot.hint) is not dict:
      value = convert(value, slot.hint, path)
    elif not isinstance(value, Mapping):  # the sweep
      raise UserError(f"{path}: say --sweep=FIELD=VALUE,VALUE, or use vary")
    object.__setattr__(self, name, value)


def _members(slot: Slot, value: Any, present: Any, path: str) -> FieldGroup:
  """Returns a group that knows its path, from a group or a nested dict."""
  if isinstance(value, Mapping):
    for name, item in value.items():
      present.set(name, item)
    return present
  if not isinstance(value, slot.hint):
    fields = ", ".join(f"{path}.{name}" for name in [*slots(slot.hint)][:3])
    text = f"must be a group of fields: set {fields}, ..."
    raise UserError(f"{path}={written(value)} {text}")
  value._path = path
  for name, inner in slots(slot.hint).items():
    if inner.is_group or inner.registry:
      value.set(name, getattr(value, name))
  return value


def paths(cls: Any = None, prefix: str = "") -> Iterator[str]:
  """Yields the paths of all fields, without the options of names."""
  for name, slot in slots(cls or FieldGroup.root).items():
    if slot.is_group:
      yield from paths(slot.hint, f"{prefix}{name}.")
    else:
      yield prefix + name


def slot_of(path: str) -> Slot | None:
  """Finds the field that a path leads to or into; None if there is none."""
  slot: Slot | None = Slot(FieldGroup.root)
  for word in path.split("."):
    if slot is not None and slot.is_group:
      slot = slots(slot.hint).get(word)
  return slot


def plain(value: Any) -> Any:
  """Turns groups and names into dicts, tuples into lists."""
  if isinstance(value, FieldGroup):
    return {name: plain(getattr(value, name)) for name in slots(type(value))}
  if isinstance(value, Spec):
    return plain(value.to_dict())
  if isinstance(value, Mapping):
    return {name: plain(item) for name, item in value.items()}
  if isinstance(value, list | tuple):
    return [plain(item) for item in value]
  return value


def flat(tree: Any, name: str = "") -> dict[str, Any]:
  """Flattens dicts to dotted paths: {"a": {"b": 1}} -> {"a.b": 1}."""
  if not isinstance(tree, dict):
    return {name: tree}
  values: dict[str, Any] = {}
  for word, value in tree.items():
    values |= flat(value, f"{name}.{word}" if name else word)
  return values


def assign(config: FieldGroup, values: Mapping[str, Any]) -> None:
  """Sets fields by their dotted paths, whatever the order of `values`.

  Groups come before their fields and names before their options, so that
  `data.partition.name` and `data.partition.alpha` may be given either way. A
  value of type `Text` is read by its field's annotation.

  Raises:
    UserError: there is no such field, or it does not take the value.
  """

  def order(path: str) -> tuple[int, bool]:
    return path.count("."), not path.endswith(".name")

  for path in sorted(values, key=order):
    prefix, _, word = path.rpartition(".")
    holder = value_of(config, prefix, path)
    slot = slot_of(prefix)
    if isinstance(holder, Checked):
      holder.set(word, values[path])
    elif slot is not None and slot.keyed and isinstance(holder, dict):
      holder |= keyed(slot.registry, {word: values[path]}, prefix, holder)
    else:
      raise NoSuchField(_unknown_field(path))


def value_of(config: FieldGroup, path: str, field: str = "") -> Any:
  """Returns the value at a dotted path; "" is the config itself.

  Raises:
    UserError: there is no such field, or it has no such key; the line begins
      with `field`, if the path is a part of it.
  """
  holder: Any = config
  words = path.split(".") if path else []
  for number, word in enumerate(words):
    if isinstance(holder, dict) and word not in holder:
      text = unknown(field or path, word, holder, "key")
      remedy = f"--config.{'.'.join(words[:number])}=..."
      raise UserError(f"{text}; to add it, name it first: {remedy}")
    if isinstance(holder, dict):
      holder = holder[word]
    elif isinstance(holder, Spec) or word in slots(type(holder)):
      holder = getattr(holder, word)
    else:
      raise NoSuchField(_unknown_field(field or path))
  return holder


def check(config: FieldGroup) -> None:
  """Looks up registered names, then lets each group check itself.

  Raises:
    UserError: one line that begins with the field.
  """
  for name, slot in slots(type(config)).items():
    value = getattr(config, name)
    if isinstance(value, FieldGroup):
      check(value)
    elif slot.keyed:  # Python sets its entries freely
      config.set(name, value)
      for spec in getattr(config, name).values():
        spec.registered()
    elif isinstance(value, Spec):
      value.registered()
    elif slot.registry:
      choices = registry_of(slot.registry)
      for word in [value] if isinstance(value, str) else value:
        if word not in choices:
          raise UserError(unknown(config.path(name), word, choices))
  config.check()


# Fields that there are not.

_OURS = {
  "methods": "algorithm method",
  "data.partition=dirichlet(alpha=...)": "alpha",
  "data.name": "dataset",
  "backbone": "model network",
  "batch_size": "local_bs",
  "num_clients": "num_users",
  "rounds": "comm_round global_rounds num_rounds",
  "local_epochs": "local_ep",
  "local_epochs, of a round, or rounds": "epochs",
  "participants_per_round, a number of clients": "frac fraction_fit join_ratio",
  "optimizer.lr": "learning_rate local_learning_rate",
  "optimizer.weight_decay": "wd",
  "mean_optimizer.name": "fedadam fedavgm",
  "system.devices (CUDA_VISIBLE_DEVICES=0 chooses one)": "device gpu",
}
"""Our field -> what other libraries call it."""


def near(path: str) -> list[str]:
  """Lists the fields that somebody may mean who writes this path."""
  word = path.rpartition(".")[2]
  # Other libraries' words first: by letters learning_rate is near to nothing.
  elsewhere = [ours for ours, words in _OURS.items() if word in words.split()]
  fields = dict.fromkeys([*paths(), *slots(FieldGroup.root)])
  # optimiser.lr is near to one path; lr alone ends several.
  namesakes = [x for x in fields if x.rpartition(".")[2] == word]
  close = difflib.get_close_matches(path, fields, 1, 0.75)
  return elsewhere or (close if "." in path and close else namesakes or close)


def _unknown_field(path: str) -> str:
  """Writes the error for a path that the config lacks."""
  path = written(path)[1:-1]  # a path may hold anything
  if similar := near(path):
    return f"{path}: unknown field; did you mean {' or '.join(similar)}?"
  prefix = path.rpartition(".")[0]
  choices = [x for x in paths() if x.startswith(f"{prefix}.")]
  choices = choices or [*slots(FieldGroup.root)]
  return f"{path}: unknown field (there are {shown(path, choices)})"
