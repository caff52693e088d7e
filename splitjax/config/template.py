"""ConfigDicts for config files: every field at its default.

A config file's get_config() starts from `default` and returns a ConfigDict, in
which the command line can override any field; `Config.from_dict` checks it.
"""

import copy
import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import config_dict

from splitjax.config.groups import Data
from splitjax.config.nested import specs
from splitjax.config.schema import Config
from splitjax.data import PARTITIONS
from splitjax.fields import check_value
from splitjax.methods import METHODS
from splitjax.models import BACKBONES
from splitjax.registry import Spec, find, options, unknown
from splitjax.types import UserError


def default(
  *, method: str = "harmony", partition: str = "shard", backbone: str = "cnn8"
) -> config_dict.ConfigDict:
  """Returns a ConfigDict with every field at its default, options included.

  Args:
    method: key of METHODS.
    partition: key of PARTITIONS.
    backbone: key of BACKBONES.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="vgg11")
    >>> c.method.lam, c.backbone.name, c.data.partition.name
    (0.2, 'vgg11', 'shard')
  """
  c = _fields(_STANDARD)
  c.data.partition = spec(PARTITIONS, partition)
  c.backbone = spec(BACKBONES, backbone)
  c.method = spec(METHODS, method)
  del c.methods
  c.eval.metrics = None
  return c


_STANDARD = Config(
  Data("fashion_mnist", Spec("shard", {})), Spec("cnn8", {}), {}
)
"""Every field at its default, without a method."""

REGISTRIES: dict[str, Mapping[str, Callable]] = {"method": METHODS} | {
  field: registry for field, registry, _ in specs(Config, _STANDARD.to_dict())
}
"""Field that holds a registered name -> its registry."""


class SpecDict(config_dict.ConfigDict):
  """A registered name and its options.

  Setting another name resets the options to the new name's defaults and drops
  the label, so set the name before its options:

    c.data.partition.name = "dirichlet"
    c.data.partition.alpha = 0.1

  Setting an unknown name or option raises UserError.
  """

  def __init__(self, registry: Mapping[str, Callable], **given):
    object.__setattr__(self, "_registry", registry)
    super().__init__(type_safe=False, convert_dict=False)
    self.update(given)

  def __setitem__(self, key: str, value: Any) -> None:
    if key == "name" and value != self.get(key):
      where = self._field()
      value = check_value(value, str, f"{where}.name")
      known = options(find(self._registry, value, where))
      for each in list(self):
        del self[each]
      for each, (_, standard) in known.items():
        super().__setitem__(each, standard)
    elif key not in ("name", "label") and key not in self:
      raise UserError(
        unknown(
          f"{self._field()} ({self.name})",
          key,
          [each for each in self if each not in ("name", "label")],
          "option",
        )
        + "; set another name before its options"
      )
    super().__setitem__(key, value)

  def update(self, *other, **more) -> None:
    """Sets several fields, `name` first."""
    given = {k: v for each in (*other, more) for k, v in each.items()}
    for key in sorted(given, key=lambda key: key != "name"):
      self[key] = given[key]

  def __deepcopy__(self, memo: dict) -> "SpecDict":
    return SpecDict(self._registry, **copy.deepcopy(self.to_dict(), memo))

  def copy_and_resolve_references(self, visit_map=None) -> "SpecDict":
    """Returns a copy."""
    return copy.deepcopy(self)

  def __reduce__(self):
    return _restored, (self._field(), self.to_dict())

  def _field(self) -> str:
    """Finds the config field that uses this registry; "config" if none does."""
    fields = [f for f, known in REGISTRIES.items() if known is self._registry]
    return fields[0] if fields else "config"


def _restored(field: str, given: dict[str, Any]) -> config_dict.ConfigDict:
  """Rebuilds a pickled SpecDict, as a ConfigDict if its registry is unknown."""
  if field in REGISTRIES:
    return SpecDict(REGISTRIES[field], **given)
  return config_dict.ConfigDict(given, False)


def spec(
  registry: Mapping[str, Callable], name: str, label: str = "", **given
) -> SpecDict:
  """Returns a registry entry for a config file, with all its options.

  Args:
    registry: the registry of a config field, such as METHODS or BACKBONES.
    name: key of the registry.
    label: name in tables and figures, for methods.
    **given: options that differ from the factory's defaults.

  Example:
    >>> import splitjax
    >>> chosen = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> chosen.name, chosen.lam, chosen.gamma
    ('splitgp', 0.9, 0.5)
  """
  named = {"label": label} if label else {}
  return SpecDict(registry, name=name, **named, **given)


def compare(
  c: config_dict.ConfigDict, methods: Mapping[str, config_dict.ConfigDict]
) -> None:
  """Sets the methods that a config trains.

  `methods` maps keys to the results of `spec(METHODS, ...)`. If `headline` is
  none of the keys, it is emptied.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> mine = splitjax.spec(splitjax.METHODS, "splitgp", lam=0.9)
    >>> other = splitjax.spec(splitjax.METHODS, "local")
    >>> splitjax.compare(c, {"mine": mine, "local": other})
    >>> list(c.methods)
    ['mine', 'local']
  """
  if "method" in c:
    del c.method
  if c.get("headline") not in methods:
    c.headline = ""
  c.methods = config_dict.ConfigDict(dict(methods), sort_keys=False)


def vary(
  c: config_dict.ConfigDict, fields: Mapping[str, Sequence[Any]]
) -> None:
  """Makes a config stand for many runs, one per combination of values.

  Args:
    c: the config.
    fields: field -> values, such as {"data.partition.alpha": (0.1, 0.3)}; see
      `sweep` for "seed" and for options of methods.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(partition="dirichlet")
    >>> splitjax.vary(c, {"data.partition.alpha": (0.1, 0.3)})
    >>> c.sweep.data.partition.alpha
    (0.1, 0.3)
  """
  c.sweep = config_dict.ConfigDict(sort_keys=False)
  for path, values in fields.items():
    *groups, name = path.split(".")
    place = c.sweep
    for group in groups:
      if group not in place:
        place[group] = config_dict.ConfigDict(sort_keys=False)
      place = place[group]
    place[name] = tuple(values)


def _fields(group: Any) -> config_dict.ConfigDict:
  """Turns a dataclass of fields into a ConfigDict, options included."""
  # Untyped: `Config` checks all values and reports the expected types.
  out = config_dict.ConfigDict(type_safe=False)
  hints = typing.get_type_hints(type(group), include_extras=True)
  for name, value in vars(group).items():
    if isinstance(value, Spec):
      value = spec(hints[name].__metadata__[0], value.name)
    elif dataclasses.is_dataclass(value):
      value = _fields(value)
    out[name] = value
  return out
