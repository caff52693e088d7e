"""ConfigDicts for config files: every field at its default, typed.

A config file's get_config() starts from `default` and returns a ConfigDict, in
which the command line can override any field; `Config.from_dict` checks it.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_origin

from ml_collections import config_dict

from splitjax.config.groups import Data
from splitjax.config.schema import Config
from splitjax.data import PARTITIONS, SHIFTS
from splitjax.fields import alternatives
from splitjax.methods import METHODS
from splitjax.methods.allocation import ALLOCATIONS
from splitjax.models import BACKBONES
from splitjax.registry import Spec, find, options, unknown
from splitjax.types import UserError


def default(
  *, method: str = "harmony", partition: str = "shard", backbone: str = "cnn8"
) -> config_dict.ConfigDict:
  """A ConfigDict with every field at its default, options included.

  Args:
    method: key of METHODS.
    partition: key of PARTITIONS.
    backbone: key of BACKBONES.
  """
  c = _defaults(Config)
  c.data = _defaults(Data, name="fashion_mnist")
  c.data.partition = spec(PARTITIONS, partition)
  c.backbone = spec(BACKBONES, backbone)
  c.method = spec(METHODS, method)
  c.eval.shift = spec(SHIFTS, "id_ood")
  c.eval.attacks = config_dict.placeholder(object)
  c.fleet.allocation = spec(ALLOCATIONS, "even")
  return c


def spec(
  registry: Mapping[str, Callable], name: str, label: str = "", **given
) -> config_dict.ConfigDict:
  """A registry entry for a config file, its options filled in.

  Args:
    registry: METHODS, BACKBONES, PARTITIONS, SHIFTS, ALLOCATIONS or ATTACKS.
    name: key of it.
    label: name in tables and figures, for methods.
    **given: options that differ from the factory's defaults.
  """
  known = options(find(registry, name, "config"))
  out = config_dict.ConfigDict({"name": name})
  if label:
    out.label = label
  for key, (hint, value) in known.items():
    _put(out, key, hint, given.pop(key, value))
  if given:
    raise UserError(unknown(f"config: {name}", next(iter(given)), known))
  return out


def compare(
  c: config_dict.ConfigDict, methods: Mapping[str, config_dict.ConfigDict]
) -> None:
  """Makes a config train several methods, key -> spec(METHODS, ...)."""
  if "method" in c:
    del c.method
  c.methods = config_dict.ConfigDict(dict(methods), sort_keys=False)


def vary(
  c: config_dict.ConfigDict, fields: Mapping[str, Sequence[Any]]
) -> None:
  """Makes a config stand for many runs, one per combination of values.

  Args:
    c: the config.
    fields: field -> values, such as {"data.partition.alpha": (0.1, 0.3)}; see
      `sweep` for "seed" and for options of methods.
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


def _defaults(cls, **given) -> config_dict.ConfigDict:
  """The fields of a dataclass that have defaults, typed for overrides."""
  out, hints = config_dict.ConfigDict(), typing.get_type_hints(cls)
  for field in dataclasses.fields(cls):
    value = given.get(field.name, field.default)
    if isinstance(value, Spec) or value is dataclasses.MISSING:
      continue
    if dataclasses.is_dataclass(value):
      out[field.name] = _defaults(hints[field.name])
    else:
      _put(out, field.name, hints[field.name], value)
  return out


def _put(out, name: str, hint, value) -> None:
  """Sets a field so that it accepts an override of any type of `hint`."""
  kinds = [k for k in alternatives(hint) if k is not type(None)]
  if len(kinds) > 1:
    out[name] = config_dict.FieldReference(value, field_type=object)
  elif value is None:
    kind = get_origin(kinds[0]) or kinds[0]
    out[name] = config_dict.placeholder(str if kind is Literal else kind)
  else:
    out[name] = value
