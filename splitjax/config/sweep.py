"""Sweeps: a config with lists instead of values stands for many runs.

`sweep` of a config, or --sweep of launch.py, maps fields to values. All
combinations of the values are trained. If the field is `seed`, every run is
trained once per seed. Any other field gives one cell per value, which is a run
in a separate workdir.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from splitjax.config import validation
from splitjax.config.schema import Config, significant, with_values
from splitjax.fields import Effect, literal, native, written
from splitjax.registry import flat
from splitjax.types import UserError, naming

MOST_RUNS = 1_000
"""Largest number of combinations of a sweep, its seeds included."""

FIXED = ("changed", "headline", "paper", "scale", "title")
"""Fields that describe a config and change no run; they cannot be swept."""


class Cell(NamedTuple):
  """One run of a grid, or one run per seed if the sweep has seeds.

  Attributes:
    name: name of its folder, such as alpha=0.1; "" if only seeds are swept.
    values: field -> value.
    config: the run's config.
    at: function that returns the config of any cell from the cell's values.
  """

  name: str
  values: dict[str, Any]
  config: Config
  at: Callable[[Mapping[str, Any]], Config]


class Sweep(NamedTuple):
  """The runs of a config.

  Attributes:
    cells: at least one; all are checked.
    seeds: seeds of the sweep; None if it has none.
  """

  cells: list[Cell]
  seeds: list[int] | None


def plan(
  given: Mapping[str, Any],
  more: Sequence[str] = (),
  overridden: Mapping[str, Any] = {},
) -> Sweep:
  """Expands a config into its runs.

  Args:
    given: the config as a nested dict, with or without `sweep`.
    more: FIELD=VALUE,VALUE from the command line; replaces the config's values
      of the same field.
    overridden: field -> the single value that --config.FIELD sets. The report
      lists these fields beside a paper's numbers.

  Raises:
    UserError: an unknown field, an invalid or repeated value, or a field that
      is both swept and overridden.
  """
  tree: dict[str, Any] = native(given)
  axes = _axes(tree.pop("sweep", None) or {}, more)
  for path in axes:
    if path in overridden:
      raise UserError(
        f"--config.{path}: the field is swept: give its values as"
        f" --sweep={path}=VALUE,VALUE"
      )
  tree = with_values(tree, overridden, "--config")
  if tree.get("paper") and (changed := _changes(tree, overridden)):
    tree["changed"] = changed
  seeds = axes.pop("seed", None)
  if seeds is not None:
    validation.check_seeds(seeds, "sweep.seed")
  return Sweep(_cells(tree, axes, overridden), seeds)


def _changes(
  tree: Mapping[str, Any], overridden: Mapping[str, Any]
) -> list[str]:
  """Lists overrides that change a paper's setting, as FIELD=VALUE."""
  setting = flat(significant(tree, Effect.SETTING))
  return [
    f"{path}={value}"
    for path, value in overridden.items()
    if any(f"{each}.".startswith(f"{path}.") for each in setting)
  ]


def _axes(group: Any, more: Sequence[str]) -> dict[str, list]:
  """Merges the sweeps of the config (`group`) and of --sweep (`more`).

  Returns field -> distinct values. If both sweep a field, `more` decides.
  """
  if not isinstance(group, Mapping):
    raise UserError(f"sweep={written(group)} must be a group of fields")
  asked = [_read(text) for text in more]
  for i, (path, _) in enumerate(asked):
    if path in dict(asked[:i]):
      raise UserError(f"--sweep={path}: given twice: name all values in one")
  axes = {**(flat(dict(group)) if group else {}), **dict(asked)}
  counts = [len(v) for v in axes.values() if isinstance(v, list | tuple)]
  if (runs := math.prod(counts)) > MOST_RUNS:
    raise UserError(
      f"sweep: the values of {', '.join(axes)} are {runs} runs, more than"
      f" {MOST_RUNS}: sweep fewer in one workdir"
    )
  for path, values in axes.items():
    where = f"sweep.{path}"
    if path in FIXED:
      raise UserError(
        f"{where}: cannot be swept, it changes no run; set it in the config"
      )
    if not isinstance(values, list | tuple) or not values:
      raise UserError(f"{where}={written(values)} must be values, as (1, 2)")
    repeated = [v for i, v in enumerate(values) if v in values[:i]]
    if repeated:
      raise UserError(f"{where}: {written(repeated[0])} occurs twice")
  return {path: list(values) for path, values in axes.items()}


def _read(text: str) -> tuple[str, list]:
  """Reads FIELD=VALUE,VALUE; a value that is not a Python literal is text.

  Commas within brackets do not separate values: backbone.depths=(1,2),(2,).
  """
  path, _, values = text.partition("=")
  if not (path and values):
    raise UserError(
      f"--sweep={text} must be FIELD=VALUE,VALUE, as in"
      " --sweep=optimizer.lr=0.01,0.05"
    )
  literals = literal(f"[{values}]")
  if isinstance(literals, list):
    return path, literals
  parts = [part.strip() for part in values.split(",")]
  if "" in parts:
    raise UserError(f"--sweep={text}: an empty value: remove a comma")
  return path, [literal(part) for part in parts]


def _cells(
  tree: dict[str, Any], axes: dict[str, list], overridden: Mapping[str, Any]
) -> list[Cell]:
  """Builds and checks a cell for every combination of the axes' values.

  Options in `overridden` are set in every cell, also if a swept name, such as
  data.partition.name, resets the options to defaults.
  """

  def at(values: Mapping[str, Any]) -> Config:
    return Config.from_dict(with_values(tree, {**overridden, **values}))

  last = [path.rpartition(".")[2] for path in axes]
  cells: dict[str, Cell] = {}
  for values in itertools.product(*axes.values()):
    chosen = dict(zip(axes, values, strict=True))
    # Folders are named by the last word of each field if these words differ.
    parts = [
      f"{word if last.count(word) == 1 else path}={_folder(value)}"
      for word, (path, value) in zip(last, chosen.items(), strict=True)
    ]
    name = ",".join(parts)
    with naming(written(name).strip("'")):
      config = at(chosen)
    if name.casefold() in cells:
      raise UserError(f"sweep: two combinations have the folder {name}")
    cells[name.casefold()] = Cell(name, chosen, config, at)
  return list(cells.values())


def _folder(value: Any) -> str:
  """Writes a value as part of a folder's name."""
  text = str(value).replace(" ", "")
  return re.sub(r"[^\w.+-]", "_", text).strip(".") or "_"
