"""A tree of plain dataclasses whose fields are set by dotted paths.

Overrides, sweeps, cells of a grid and stored configs all go through `assign`.
An unknown field is an error at the line that sets it; `check` later reads every
value by its annotation and asks each group whether its fields fit together.
Nothing here imports jax: a registry is looked up when somebody asks for a
name's options.
"""

import dataclasses
import difflib
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from splitjax.fields import MOST, nearest, unknown, written
from splitjax.options import (
  NoSuchField,
  Spec,
  checked,
  keyed,
  registry_of,
)
from splitjax.types import UserError


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

  root: ClassVar[type["FieldGroup"]]

  def __init_subclass__(cls, *, root: bool = False):
    if root:
      FieldGroup.root = cls

  def check(self) -> None:
    """Raises UserError if fields of the group contradict one another."""

  def __setattr__(self, name: str, value: Any) -> None:
    slot = slots(type(self)).get(name)
    path = path_of(type(self)) + name
    if slot is None:
      raise NoSuchField(unknown_field(path))
    # A name is taken at once, so that its options can be set next.
    if slot.hint is Spec:
      if isinstance(value, Spec):
        value = value.placed(slot.registry, path)
      elif isinstance(value, str):
        value = Spec.of(slot.registry, value, path)
    elif slot.keyed and not isinstance(value, bytes):
      if not isinstance(value, Mapping):
        value = keyed(slot.registry, value, path, vars(self).get(name))
      value = {
        k: v.placed(slot.registry, f"{path}.{k}") if isinstance(v, Spec) else v
        for k, v in value.items()
      }
    object.__setattr__(self, name, value)

  def __getattr__(self, name: str) -> Any:  # only of names that are no fields
    if name.startswith("__"):  # copy and pickle look for their hooks
      raise AttributeError(name)
    raise NoSuchField(unknown_field(path_of(type(self)) + name))


class Slot(typing.NamedTuple):
  """A field: its annotation, and the registry of its names or ""."""

  hint: Any
  registry: str

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


slots: Callable[[type], dict[str, Slot]] = functools.cache(_slots)
"""FieldGroup -> its fields -> their slots."""


def is_group(hint: Any) -> bool:
  """Tells whether an annotation is a group of fields."""
  return isinstance(hint, type) and issubclass(hint, FieldGroup)


def paths(
  cls: type[FieldGroup] | None = None, prefix: str = ""
) -> Iterator[str]:
  """Yields the paths of all fields, without the options of names."""
  for name, slot in slots(cls or FieldGroup.root).items():
    if is_group(slot.hint):
      yield from paths(slot.hint, f"{prefix}{name}.")
    else:
      yield prefix + name


def path_of(cls: type[FieldGroup]) -> str:
  """Returns the path of a group, with its dot; "" for the config itself."""
  for name, slot in slots(FieldGroup.root).items():
    if slot.hint is cls:
      return f"{name}."
  return ""


def leaves(
  tree: Mapping, cls: type[FieldGroup] | None = None, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
  """Yields path and value of a nested dict, names whole with their options."""
  for name, value in tree.items():
    slot = slots(cls or FieldGroup.root).get(name)
    if slot and is_group(slot.hint) and isinstance(value, Mapping):
      yield from leaves(value, slot.hint, f"{prefix}{name}.")
    else:
      yield f"{prefix}{name}", value


def named_in(tree: Mapping) -> Iterator[tuple[str, str, Any]]:
  """Yields path, registry and name of all that a config's dict registers."""
  for path, value in leaves(tree):
    slot = slot_of(path)
    if slot is None or not slot.registry:
      continue
    if isinstance(value, str | list | tuple):
      for name in [value] if isinstance(value, str) else value:
        yield path, slot.registry, name
    elif slot.keyed and isinstance(value, Mapping):
      for word, item in value.items():
        yield f"{path}.{word}", slot.registry, item.get("name")
    elif isinstance(value, Mapping):
      yield path, slot.registry, value.get("name")


def slot_of(path: str) -> Slot | None:
  """Finds the field that a path leads to or into; None if there is none."""
  cls, slot = FieldGroup.root, None
  for word in path.split("."):
    slot = slots(cls).get(word)
    if slot is None or not is_group(slot.hint):
      break
    cls = slot.hint
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


# Setting fields.


def assign(config: FieldGroup, values: Mapping[str, Any]) -> None:
  """Sets fields by their dotted paths, whatever the order of `values`.

  Groups come before their fields and names before their options, so that
  `data.partition.name` and `data.partition.alpha` may be given either way. A
  value of type `options.Text` is read by its field's annotation.

  Raises:
    UserError: there is no such field, or it does not take the value.
  """

  def order(path: str) -> tuple[int, bool]:
    return path.count("."), not path.endswith(".name")

  for path in sorted(values, key=order):
    _assign(config, path.split("."), values[path], path, None)


def _assign(
  holder: Any, words: list[str], value: Any, path: str, slot: Slot | None
) -> None:
  """Sets what lies at `words` below a holder; `slot` is that of the holder."""
  # A holder is a name with options, several of them by key, or a group.
  word, *below = words
  if isinstance(holder, Spec) and not below:
    holder.set(word, value, path)
  elif isinstance(holder, dict) and slot and slot.registry:
    field = path.removesuffix(".".join(["", *words]))
    if not below:
      holder[word] = keyed(slot.registry, {word: value}, field)[word]
    elif word in holder:
      _assign(holder[word], below, value, path, None)
    else:
      text = unknown(path, word, holder, "key")
      raise UserError(f"{text}; to add it, name it first: --config.{field}=...")
  elif isinstance(holder, FieldGroup) and word in slots(type(holder)):
    slot, present = slots(type(holder))[word], getattr(holder, word)
    if below:
      _assign(present, below, value, path, slot)
    else:
      setattr(holder, word, converted(slot, value, present, path))
  else:
    raise NoSuchField(unknown_field(path))


def converted(slot: Slot, value: Any, present: Any, path: str) -> Any:
  """Converts a value to what a field holds; `present` is its present value."""
  if is_group(slot.hint):
    if isinstance(value, slot.hint):
      return value
    fields = ", ".join(f"{path}.{name}" for name in list(slots(slot.hint))[:3])
    text = f"must be a group of fields: set {fields}, ..."
    raise UserError(f"{path}={written(value)} {text}")
  if slot.hint is Spec:
    # The same name again keeps its options.
    same = isinstance(present, Spec) and value == present.name
    return present if same else Spec.of(slot.registry, value, path)
  if slot.keyed:
    present = present if isinstance(present, Mapping) else {}
    return keyed(slot.registry, value, path, present)
  if typing.get_origin(slot.hint) is dict:  # the sweep
    if isinstance(value, Mapping):
      return dict(value)
    raise UserError(f"{path}: say --sweep=FIELD=VALUE,VALUE, or use vary")
  return checked(value, slot.hint, path)


def value_of(config: FieldGroup, path: str) -> Any:
  """Returns the value at a path that `assign` accepts."""
  holder: Any = config
  for word in path.split(".") if path else ():
    by_key = isinstance(holder, dict)
    holder = holder[word] if by_key else getattr(holder, word)
  return holder


def check(holder: FieldGroup, prefix: str = "") -> None:
  """Reads every value by its annotation, then lets each group check itself.

  Raises:
    UserError: one line that begins with the field.
  """
  for name, slot in slots(type(holder)).items():
    value, path = getattr(holder, name), prefix + name
    if isinstance(value, FieldGroup):
      check(value, f"{path}.")
      continue
    # Python sets fields freely; here each gets its type, as 1 becomes 1.0: an
    # int in the place of a float would be another compiled program.
    value = converted(slot, value, value, path)
    setattr(holder, name, value)
    if slot.registry and isinstance(value, str | tuple):
      choices = registry_of(slot.registry)
      for word in [value] if isinstance(value, str) else value:
        if word not in choices:
          raise UserError(unknown(path, word, choices))
  holder.check()


# Fields that there are not.

ELSEWHERE = {
  "algorithm": "methods",
  "alpha": "data.partition=dirichlet(alpha=...)",
  "client_fraction": "participants_per_round, a number of clients",
  "comm_round": "rounds",
  "cut_layer": "backbone.depths",
  "dataset": "data.name",
  "device": "system.devices (JAX_PLATFORMS=cpu chooses the kind)",
  "epochs": "local_epochs, of a round, or rounds",
  "fedadam": "mean_optimizer.name=fedadam",
  "fedavgm": "mean_optimizer.name=fedavgm",
  "frac": "participants_per_round, a number of clients",
  "fraction_fit": "participants_per_round, a number of clients",
  "global_rounds": "rounds",
  "gpu": "system.devices (CUDA_VISIBLE_DEVICES=0 chooses one)",
  "join_ratio": "participants_per_round, a number of clients",
  "learning_rate": "optimizer.lr",
  "local_bs": "batch_size",
  "local_ep": "local_epochs",
  "local_learning_rate": "optimizer.lr",
  "method": "methods",
  "min_fit_clients": "participants_per_round",
  "model": "backbone",
  "momentum": "optimizer.momentum",
  "network": "backbone",
  "num_rounds": "rounds",
  "num_users": "num_clients",
  "server_learning_rate": "mean_optimizer.lr, or optimizer.server_lr",
  "split_layer": "backbone.depths",
  "wd": "optimizer.weight_decay",
}
"""What other libraries call a field -> its name here."""


def near(path: str) -> list[str]:
  """Lists the fields that somebody may mean who writes this path."""
  word = path.rpartition(".")[2]
  fields = list(paths())
  groups = [
    name for name, s in slots(FieldGroup.root).items() if is_group(s.hint)
  ]
  # Other libraries' words first: by letters learning_rate is near to nothing.
  if word in ELSEWHERE:
    return [ELSEWHERE[word]]
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
