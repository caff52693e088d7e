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

from splitjax.fields import MOST, convert, nearest, unknown, written
from splitjax.options import NoSuchField, Spec, check_name, keyed, registry_of
from splitjax.types import UserError


def group(cls: type) -> Any:
  """A field that holds a group of fields."""
  return dataclasses.field(default_factory=cls)


def named(registry: str, name: str) -> Any:
  """A field that holds a registered name with its options."""
  return dataclasses.field(
    default_factory=lambda: Spec(registry, name),
    metadata={"registry": registry},
  )


def several(registry: str) -> Any:
  """A field that holds several registered names, each under a key."""
  return dataclasses.field(
    default_factory=dict, metadata={"registry": registry}
  )


def key(registry: str, name: str | tuple[str, ...]) -> Any:
  """A field that holds a key of a registry, or several, without options."""
  return dataclasses.field(default=name, metadata={"registry": registry})


@dataclasses.dataclass
class FieldGroup:
  """A group of fields. One that it lacks can be neither read nor set.

  A subclass made with `root=True` is the whole config: paths begin there.
  """

  __slots__ = ("_path",)
  root: ClassVar[type["FieldGroup"]]

  def __init_subclass__(cls, *, root: bool = False):
    if root:
      FieldGroup.root = cls

  def check(self) -> None:
    """Raises UserError if fields of the group contradict one another."""

  def __setattr__(self, name: str, value: Any) -> None:
    if name == "_path":
      object.__setattr__(self, name, value)
      return
    slot = slots(type(self)).get(name)
    path = getattr(self, "_path", "") + name
    if slot is None:
      raise NoSuchField(unknown_field(path))
    value = slot.convert(value, vars(self).get(name), path)
    object.__setattr__(self, name, value)

  def __getattr__(self, name: str) -> Any:  # only of names that are no fields
    if name.startswith("_"):  # copy and pickle look for their hooks
      raise AttributeError(name)
    raise NoSuchField(unknown_field(getattr(self, "_path", "") + name))

  def placed(self, path: str) -> "FieldGroup":
    """Returns the group, which names its fields by their paths from now on."""
    self._path = f"{path}."
    for name, slot in slots(type(self)).items():
      if slot.is_group or slot.registry:
        setattr(self, name, getattr(self, name))
    return self


class Slot(typing.NamedTuple):
  """A field: its annotation, and the registry of its names or ""."""

  hint: Any
  registry: str

  @property
  def is_group(self) -> bool:
    """Tells whether the field is a group of fields."""
    return isinstance(self.hint, type) and issubclass(self.hint, FieldGroup)

  @property
  def keyed(self) -> bool:
    """Tells whether the field holds several names, each under a key."""
    return typing.get_origin(self.hint) is dict and self.registry != ""

  def convert(self, value: Any, present: Any, path: str) -> Any:
    """Converts a value to what the field holds, beside its present value."""
    if self.is_group:
      if isinstance(value, self.hint):
        return value.placed(path)
      if not isinstance(value, Mapping):
        fields = ", ".join(f"{path}.{name}" for name in [*slots(self.hint)][:3])
        text = f"must be a group of fields: set {fields}, ..."
        raise UserError(f"{path}={written(value)} {text}")
      for name, item in value.items():
        setattr(present, name, item)
      return present
    if self.hint is Spec:
      # The same name again keeps its options.
      if isinstance(present, Spec) and value == present.name:
        return present
      return Spec.of(self.registry, value, path)
    if self.keyed:
      return keyed(self.registry, value, path, present or {})
    if typing.get_origin(self.hint) is dict:  # the sweep
      if isinstance(value, Mapping):
        return dict(value)
      raise UserError(f"{path}: say --sweep=FIELD=VALUE,VALUE, or use vary")
    return convert(value, self.hint, path)


def _slots(cls: Any) -> dict[str, Slot]:
  hints = typing.get_type_hints(cls, include_extras=True)
  return {
    field.name: Slot(hints[field.name], field.metadata.get("registry", ""))
    for field in dataclasses.fields(cls)
  }


slots: Callable[[Any], dict[str, Slot]] = functools.cache(_slots)
"""FieldGroup -> its fields -> their slots."""


def paths(cls: Any = None, prefix: str = "") -> Iterator[str]:
  """Yields the paths of all fields, without the options of names."""
  for name, slot in slots(cls or FieldGroup.root).items():
    if slot.is_group:
      yield from paths(slot.hint, f"{prefix}{name}.")
    else:
      yield prefix + name


def slot_of(path: str) -> Slot | None:
  """Finds the field that a path leads to or into; None if there is none."""
  slot: Slot | None = Slot(FieldGroup.root, "")
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
    group, _, word = path.rpartition(".")
    holder = value_of(config, group, path)
    slot = slot_of(group)
    if isinstance(holder, Spec):
      holder.set(word, values[path], path)
    elif isinstance(holder, FieldGroup):
      setattr(holder, word, values[path])
    elif isinstance(holder, dict) and slot is not None and slot.keyed:
      holder |= keyed(slot.registry, {word: values[path]}, group, holder)
    else:
      raise NoSuchField(unknown_field(path))


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
      raise NoSuchField(unknown_field(field or path))
  return holder


def check(group: FieldGroup) -> None:
  """Looks up registered names, then lets each group check itself.

  Raises:
    UserError: one line that begins with the field.
  """
  for name, slot in slots(type(group)).items():
    value = getattr(group, name)
    path = getattr(group, "_path", "") + name
    if isinstance(value, FieldGroup):
      check(value)
    elif isinstance(value, dict):  # whose entries Python sets freely
      setattr(group, name, value)
      for word in value if slot.keyed else ():
        spec = getattr(group, name)[word]
        check_name(slot.registry, spec.name, f"{path}.{word}")
    elif isinstance(value, Spec):
      check_name(slot.registry, value.name, path)
    elif slot.registry and isinstance(value, str | tuple):
      choices = registry_of(slot.registry)
      for word in [value] if isinstance(value, str) else value:
        if word not in choices:
          raise UserError(unknown(path, word, choices))
  group.check()


# Fields that there are not.

OURS = {
  "methods": "algorithm method",
  "data.partition=dirichlet(alpha=...)": "alpha",
  "data.name": "dataset",
  "backbone": "model network",
  "backbone.depths": "cut_layer split_layer",
  "batch_size": "local_bs",
  "num_clients": "num_users",
  "rounds": "comm_round global_rounds num_rounds",
  "local_epochs": "local_ep",
  "local_epochs, of a round, or rounds": "epochs",
  "participants_per_round, a number of clients": """client_fraction frac
  fraction_fit join_ratio min_fit_clients""",
  "optimizer.lr": "learning_rate local_learning_rate",
  "optimizer.momentum": "momentum",
  "optimizer.weight_decay": "wd",
  "mean_optimizer.lr, or optimizer.server_lr": "server_learning_rate",
  "mean_optimizer.name": "fedadam fedavgm",
  "system.devices (CUDA_VISIBLE_DEVICES=0 chooses one)": "device gpu",
}
"""Our field -> what other libraries call it."""


def near(path: str) -> list[str]:
  """Lists the fields that somebody may mean who writes this path."""
  word = path.rpartition(".")[2]
  fields = list(paths())
  root = slots(FieldGroup.root)
  groups = [name for name, slot in root.items() if slot.is_group]
  # Other libraries' words first: by letters learning_rate is near to nothing.
  elsewhere = [ours for ours, words in OURS.items() if word in words.split()]
  if elsewhere:
    return elsewhere
  # optimiser.lr is near to one path; lr alone ends several.
  close = difflib.get_close_matches(path, [*fields, *groups], 1, 0.75)
  namesakes = [field for field in fields if field.rpartition(".")[2] == word]
  if namesakes and not ("." in path and close):
    return namesakes
  ends = {field.rpartition(".")[2] for field in fields}
  words = difflib.get_close_matches(word, ends, 1, 0.75)
  return close or [f for f in fields if f.rpartition(".")[2] in words]


def unknown_field(path: str) -> str:
  """Writes the error for a path that the config lacks."""
  path = written(path)[1:-1]  # a path may hold anything
  if similar := near(path):
    return f"{path}: unknown field; did you mean {' or '.join(similar)}?"
  group = path.rpartition(".")[0]
  choices = [f for f in paths() if f.startswith(f"{group}.")]
  if not choices:
    choices = sorted({field.partition(".")[0] for field in paths()})
  if len(choices) > MOST:
    choices = [*nearest(path, choices), "..."]
  return f"{path}: unknown field (there are {', '.join(choices)})"
