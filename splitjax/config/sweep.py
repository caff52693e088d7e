"""Lists in place of values: a config that stands for many.

`sweep` of a config, or --sweep of launch.py, names fields and gives each some
values. Seeds become seeds, an option of a method becomes methods that train on
the same clients, any other field becomes cells: every combination is a run in
a folder of its own.
"""

import ast
import copy
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from splitjax.config import validation
from splitjax.config.schema import Config
from splitjax.methods import METHODS
from splitjax.registry import find, flat, options, unknown, written
from splitjax.types import UserError

SWEEP, SEED = "sweep", "seed"

LETTERS = {"lam": "λ", "gamma": "γ", "inner_lr": "α", "inner_steps": "M"}
"""How the papers call an option, for the labels of tables."""

WORDS = {
  "scale": "choose it as --config=FILE:small",
  "paper": "it changes no run; set it in the config",
  "changed": "launch.py writes it",
  "title": "it changes no run; set it in the config",
}
"""Fields that are no axis, and what to do instead."""

LONGEST = 200
"""Letters of a cell's name: it is a folder's."""

HARMLESS = (
  "changed", "checkpoint", "data.device_budget_gb", "data.dir",
  "eval.batch_size", "eval.embeddings", "eval.every", "on_nan", "paper",
  "scale", "seed", "system.clients_per_chunk", "system.conv",
  "system.deterministic", "system.devices", "system.seeds_batched",
  "tensorboard", "title",
)  # fmt: skip
"""Fields, or groups, whose value takes no run away from a paper's setting."""

MOST = 1000
"""Cells of a grid: more is a mistake in most cases."""


class Cell(NamedTuple):
  """One run of a grid, over all seeds.

  Attributes:
    name: of its folder, as alpha=0.1; "" where nothing but seeds is swept.
    values: field -> value.
    config: what is run.
  """

  name: str
  values: dict[str, Any]
  config: Config


class Plan(NamedTuple):
  """What a config with lists stands for.

  Attributes:
    cells: at least one; all of them are checked.
    seeds: given by the sweep; None if it names none.
  """

  cells: list[Cell]
  seeds: list[int] | None


def plan(
  given: Mapping[str, Any],
  more: Sequence[str] = (),
  overridden: Mapping[str, Any] = {},
) -> Plan:
  """The runs that a config stands for.

  Args:
    given: the config as a nested dict, with or without `sweep`.
    more: of the command line, FIELD=VALUE,VALUE; they replace the config's
      values of the same field.
    overridden: field -> the one value that the command line has given it; it
      is in `given`, and beside a paper's numbers the report says so.

  Raises:
    UserError: a field that does not exist, values that cannot be, one twice;
      a field that is both swept and given one value.
  """
  tree: dict[str, Any] = copy.deepcopy(dict(given))
  axes = _axes(tree.pop(SWEEP, None) or {}, more)
  for path in axes:
    if path in overridden:
      raise UserError(
        f"--config.{path}: the field is swept: give its values as"
        f" --sweep={path}=VALUE,VALUE"
      )
  tree |= _changed(tree, overridden)
  seeds = axes.pop(SEED, None)
  if seeds is not None:
    validation.check_seeds(seeds, f"{SWEEP}.{SEED}")
  if "method" in axes:
    _named(tree, axes.pop("method"))
  _check_short(tree, axes)
  own = [path for path in axes if path.split(".")[0] in ("method", "methods")]
  _spread(tree, {path: axes.pop(path) for path in own})
  return Plan(_cells(tree, axes), seeds)


def _changed(
  tree: Mapping[str, Any], overridden: Mapping[str, Any]
) -> dict[str, Any]:
  """Config.changed of a paper's config; {} where nothing of weight is."""
  said = [
    f"{path}={value}"
    for path, value in overridden.items()
    if path.split(".")[0] not in HARMLESS and path not in HARMLESS
  ]
  return {"changed": said} if said and tree.get("paper") else {}


def _axes(group: Any, more: Sequence[str]) -> dict[str, list]:
  """Field -> its values, checked to be some and no value twice."""
  if not isinstance(group, Mapping):
    raise UserError(f"{SWEEP}={written(group)} must be a group of fields")
  asked = list(map(_read, more))
  for i, (path, _) in enumerate(asked):
    if path in dict(asked[:i]):
      raise UserError(f"--sweep={path}: given twice: name all values in one")
  axes = {**(flat(dict(group)) if group else {}), **dict(asked)}
  for path, values in axes.items():
    where = f"{SWEEP}.{path}"
    if path in WORDS:
      raise UserError(f"{where}: no field to sweep: {WORDS[path]}")
    if not isinstance(values, list | tuple) or not values:
      raise UserError(f"{where}={written(values)} must be values, as (1, 2)")
    twice = [v for i, v in enumerate(values) if v in values[:i]]
    if twice:
      raise UserError(f"{where}: {written(twice[0])} occurs twice")
  return {path: list(values) for path, values in axes.items()}


def _read(text: str) -> tuple[str, list]:
  """FIELD=VALUE,VALUE -> field and values; what is no number is text."""
  path, _, values = text.partition("=")
  if not (path and values):
    raise UserError(
      f"--sweep={text} must be FIELD=VALUE,VALUE, as in"
      " --sweep=optimizer.lr=0.01,0.05"
    )
  try:
    return path, list(ast.literal_eval(f"[{values}]"))
  except (SyntaxError, ValueError):
    return path, [_value(text, part) for part in values.split(",")]


def _value(text: str, part: str) -> Any:
  """One value of FIELD=VALUE,VALUE: a literal, or text."""
  if not part.strip():
    raise UserError(
      f"--sweep={text}: there is an empty value: take a comma out"
    )
  try:
    return ast.literal_eval(part.strip())
  except (SyntaxError, ValueError):
    return part


def _named(given: dict[str, Any], names: list) -> None:
  """Several methods, each at its defaults, in place of one."""
  if "method" not in given:
    raise UserError(
      f"{SWEEP}.method: the config has several methods already; sweep the"
      " options of one, as methods.KEY.OPTION"
    )
  del given["method"]
  for name in names:
    find(METHODS, name, f"{SWEEP}.method")
  given["methods"] = {name: {"name": name} for name in names}


def _check_short(given: dict[str, Any], axes: Mapping[str, Any]) -> None:
  """Raises UserError where a field is named by its last word alone."""
  fields = {field.name for field in dataclasses.fields(Config)}
  for path in axes:
    if "." in path or path in fields:
      continue
    last = f".{path}", f".{path}s"
    meant = [p for p in _paths(given) if f".{p}".endswith(last)]
    keys = _keys_with(given.get("methods") or {}, path)
    if keys:
      meant.append(f"methods.KEY.{path}, KEY one of {', '.join(keys)}")
    if meant:
      raise UserError(
        f"{SWEEP}: unknown field {path!r}: write {' or '.join(meant)}"
      )


def _keys_with(methods: Mapping[str, Any], option: str) -> list[str]:
  """The keys of methods that have an option of that name."""
  known = {name: options(factory) for name, factory in METHODS.items()}
  return [
    key
    for key, spec in methods.items()
    if isinstance(spec, Mapping)
    and option in known.get(str(spec.get("name")), ())
  ]


def _spread(given: dict[str, Any], axes: dict[str, list]) -> None:
  """Puts one method per combination in the place of one that is swept."""
  swept: dict[str, dict[str, list]] = {}
  if any(path.startswith("method.") for path in axes) and "method" in given:
    name = str(given["method"].get("name"))
    given["methods"] = {name: given.pop("method")}
    axes = {
      p.replace("method.", f"methods.{name}.", 1): v for p, v in axes.items()
    }
  for path, values in axes.items():
    group, *rest = path.split(".")
    if group != "methods" or len(rest) != 2:
      raise UserError(
        f"{SWEEP}.{path}: an option is method.OPTION, or methods.KEY.OPTION"
        " where the config has several methods"
      )
    if rest[0] not in given.get("methods", {}):
      raise UserError(
        unknown(f"{SWEEP}.methods", rest[0], given.get("methods", ()), "key")
      )
    swept.setdefault(rest[0], {})[rest[1]] = values
  methods: dict[str, Any] = {}
  for key, spec in given.get("methods", {}).items():
    for new, each in _variants(key, spec, swept.get(key, {})):
      if new in methods:
        raise UserError(f"{SWEEP}.methods.{key}: two of its values read alike")
      methods[new] = each
  if swept:
    given["methods"] = methods


def _variants(
  key: str, spec: dict[str, Any], axes: dict[str, list]
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Key and spec of a method, once per combination of its options."""
  for values in itertools.product(*axes.values()):
    chosen = dict(zip(axes, values, strict=True))
    word = "_".join([key, *(_word(f"{k}_{v}") for k, v in chosen.items())])
    said = [f"{LETTERS.get(k, k)}={v}" for k, v in chosen.items()]
    label = " ".join([spec.get("label") or key, *said])
    yield word, {**spec, **chosen, **({"label": label} if chosen else {})}


def _word(text: str) -> str:
  """What a key may be made of: letters, digits, underscores."""
  return re.sub(r"\W", "_", text.replace("-", "minus"), flags=re.ASCII)


def _cells(given: dict[str, Any], axes: dict[str, list]) -> list[Cell]:
  """Every combination, each checked."""
  count = math.prod(map(len, axes.values()))
  if count > MOST:
    raise UserError(f"{SWEEP}: {count} combinations, of which {MOST} can be")
  names, cells = _short(axes), []
  for values in itertools.product(*axes.values()):
    chosen = dict(zip(axes, values, strict=True))
    one = copy.deepcopy(given)
    for path, value in chosen.items():
      _set(one, path, value)
    said = [f"{names[k]}={_folder(v)}" for k, v in chosen.items()]
    cells.append(Cell(",".join(said), chosen, Config.from_dict(one)))
  folders = [cell.name.casefold() for cell in cells]
  for cell, name in zip(cells, folders, strict=True):
    if len(name) > LONGEST:
      raise UserError(
        f"{SWEEP}: the folder of a combination would have a name of {len(name)}"
        f" letters ({name[:40]}…), of which {LONGEST} can be: set long values"
        " in the config"
      )
    if folders.count(name) > 1:
      raise UserError(f"{SWEEP}: two combinations would lie in {cell.name}")
  return cells


def _set(given: dict[str, Any], path: str, value: Any) -> None:
  """Sets a field; which there are, and of what type, `Config` checks.

  Raises:
    UserError: there is no such group of fields.
  """
  *groups, name = path.split(".")
  place = given
  for group in groups:
    if not isinstance(place.get(group), dict):
      raise UserError(unknown(SWEEP, path, _paths(given)))
    place = place[group]
  place[name] = value


def _paths(given: dict[str, Any]) -> list[str]:
  return [path for path in flat(given) if not path.startswith("methods.")]


def _short(axes: Mapping[str, Any]) -> dict[str, str]:
  """Field -> its last word, or all of it where two end alike."""
  last = [path.split(".")[-1] for path in axes]
  return {
    p: w if last.count(w) == 1 else p for p, w in zip(axes, last, strict=True)
  }


def _folder(value: Any) -> str:
  """A value as part of the name of a folder."""
  text = str(value).replace(" ", "")
  return re.sub(r"[^\w.+-]", "_", text).strip(".") or "_"
