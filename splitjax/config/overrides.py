"""Sets fields of a config by their paths, as --config.FIELD and sweeps do."""

import copy
from collections.abc import Mapping
from typing import Annotated, Any

from splitjax.config.schema import Config
from splitjax.fields import alternatives, read
from splitjax.methods import METHODS
from splitjax.registry import Spec, hint_of, unknown_field
from splitjax.types import UserError


def with_values(
  tree: Mapping[str, Any], values: Mapping[str, Any], where: str = "sweep"
) -> dict[str, Any]:
  """Copies a config's dict and sets some fields.

  Choosing another method, network, partition, shift, allocation or attack drops
  the options and label of the previous one: the new one's defaults hold, except
  for options that `values` also sets.

  Args:
    tree: the config as a nested dict.
    values: dotted path -> value, in any order; a text is read by the field's
      type. `Config` checks the values.
    where: the flag or field that sets them, for messages.

  Raises:
    UserError: the config has no such field.
  """
  out = copy.deepcopy(dict(tree))
  # Groups before their fields, names before their options.
  for path in sorted(values, key=lambda p: (p.count("."), not _is_name(p))):
    *groups, name = path.split(".")
    place: Any = out
    for group in groups:
      place = place.get(group) if isinstance(place, dict) else None
    hint = _hint(path, out)
    known = hint is not None or _is_spec(groups, out)
    if not isinstance(place, dict) or not known:
      raise UserError(unknown_field(where, path, out))
    value = values[path]
    if isinstance(value, str):
      value = read(value, hint)
    if isinstance(value, str) and Spec in alternatives(hint):
      value = {"name": value}  # another name, with its defaults
    if _is_name(path) and _is_spec(groups, out) and value != place.get(name):
      place.clear()
    place[name] = value
  return out


def _is_name(path: str) -> bool:
  return path.endswith(".name")


def _hint(path: str, tree: Mapping[str, Any]) -> Any:
  """Returns a field's annotation; None if the config lacks the field."""
  if path.partition(".")[0] != "method":
    return hint_of(Config, path.split("."), tree)
  one = Annotated[Spec, METHODS]
  return hint_of(one, path.split(".")[1:], tree.get("method") or {})


def _is_spec(groups: list[str], tree: Mapping[str, Any]) -> bool:
  """Checks if a path of groups leads to a name with options."""
  return Spec in alternatives(_hint(".".join(groups), tree))
