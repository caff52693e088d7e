"""Sweeps: a config with several values of a field stands for many runs.

`c.sweep` (`vary`) and --sweep=FIELD=VALUE,VALUE name the values. Every
combination is a cell, a run in a folder of its own; if a field is `seed`, each
cell is trained once per seed.
"""

import copy
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from splitjax.config import tree
from splitjax.config.config import BOOKKEEPING, Config, within
from splitjax.fields import NOT_NEGATIVE, Text, convert, native, split, written
from splitjax.options import Spec
from splitjax.types import UserError, naming

_MOST_RUNS = 1_000
"""Largest number of combinations of a sweep, its seeds included."""


class Cell(NamedTuple):
  """A run of a grid, or one run per seed if the sweep has seeds."""

  name: str  #: of its folder, such as alpha=0.1; "" if only seeds are swept
  values: dict[str, Any]  #: field -> value
  config: Config
  #: the config of any cell, by the cell's values
  at: Callable[[Mapping[str, Any]], Config]


class Sweep(NamedTuple):
  """The runs of a config."""

  cells: list[Cell]  #: at least one; all are checked
  seeds: tuple[int, ...] | None  #: None if the sweep has none


def plan(
  config: Config,
  swept: Sequence[str] = (),
  overridden: Mapping[str, Any] | None = None,
) -> Sweep:
  """Expands a config into its runs.

  Args:
    config: the config, with or without `sweep`.
    swept: FIELD=VALUE,VALUE of the command line; replaces the config's values
      of the same field.
    overridden: field -> the one value that the command line sets. The report
      lists these fields beside a paper's numbers.

  Raises:
    UserError: an unknown field, an invalid or repeated value, or a field that
      is both swept and overridden.
  """
  overridden = dict(overridden or {})
  axes = _axes(config.sweep, swept)
  for path in axes:
    if path in overridden:
      remedy = f"give its values as --sweep={path}=VALUE,VALUE"
      raise UserError(f"--config.{path}: the field is swept: {remedy}")
  seeds = axes.pop("seed", None)
  numbers = None if seeds is None else check_seeds(seeds, "sweep.seed")

  def at(values: Mapping[str, Any]) -> Config:
    # Every cell starts from the file: a swept name must not keep the options
    # of the name before it; what the command line sets holds in all cells.
    cell = copy.deepcopy(config)
    cell.sweep = {}
    values = {**overridden, **values}
    tree.assign(cell, values)
    # The file's headline may be a method that the command line leaves out.
    if "methods" in values and cell.headline not in cell.methods:
      cell.headline = ""
    if cell.paper:
      changed = [x for x in overridden.items() if not within(x[0], BOOKKEEPING)]
      cell.changed = tuple(f"{p}={x}" for p, x in changed) or cell.changed
    tree.check(cell)
    return cell

  cells: dict[str, Cell] = {}
  for combination in itertools.product(*axes.values()):
    values = dict(zip(axes, combination, strict=True))
    with naming(written(_folder(values)).strip("'")):
      cell = at(values)
    # Folders are named by values as read: 0.10 and 0.1 are one cell.
    values = {path: _plain(tree.value_of(cell, path)) for path in axes}
    name = _folder(values)
    if name.casefold() in cells:
      raise UserError(f"sweep: two combinations have the folder {name}")
    cells[name.casefold()] = Cell(name=name, values=values, config=cell, at=at)
  return Sweep(cells=list(cells.values()), seeds=numbers)


def check_seeds(numbers: Any, path: str) -> tuple[int, ...]:
  """Returns seeds; `path` is the flag or field that gives them.

  Raises:
    UserError: a seed is invalid or given twice, or none is given.
  """
  if isinstance(numbers, str):
    numbers = Text(numbers)
  seeds = convert(numbers, Annotated[tuple[int, ...], NOT_NEGATIVE], path)
  _check_repeated(seeds, path)
  return seeds


def _check_repeated(values: Sequence[Any], path: str) -> None:
  for number, value in enumerate(values):
    if value in values[:number]:
      raise UserError(f"{path}={written(value)} occurs twice: name it once")


def _axes(fields: Mapping[str, Any], swept: Sequence[str]) -> dict[str, tuple]:
  """Merges the sweeps of the config and of --sweep -> field, distinct values.

  If both sweep a field, the command line decides.
  """
  typed: dict[str, tuple] = {}
  for text in swept:
    path, values = read_axis(text)
    if path in typed:
      raise UserError(f"--sweep={path}: given twice: name all values in one")
    typed[path] = values
  axes = {path: native(values) for path, values in fields.items()} | typed
  for path, values in axes.items():
    if not isinstance(values, list | tuple) or not values:
      text = "must be values, as (1, 2)"
      raise UserError(f"sweep.{path}={written(values)} {text}")
  if (runs := math.prod(map(len, axes.values()))) > _MOST_RUNS:
    text = f"{runs} runs, more than {_MOST_RUNS}: sweep fewer in one workdir"
    raise UserError(f"sweep: the values of {', '.join(axes)} are {text}")
  for path, values in axes.items():
    _check_repeated(values, f"sweep.{path}")
  return {path: tuple(values) for path, values in axes.items()}


def read_axis(text: str) -> tuple[str, tuple[Text, ...]]:
  """Reads FIELD=VALUE,VALUE; commas within brackets separate nothing."""
  path, _, values = text.partition("=")
  words = split(values)
  if not path or not words or "" in words:
    form = "must be FIELD=VALUE,VALUE, as in --sweep=optimizer.lr=0.01,0.05"
    raise UserError(f"--sweep={written(text)[1:-1]} {form}")
  return path, tuple(map(Text, words))


def _plain(value: Any) -> Any:
  """Turns names into the texts that say them."""
  if isinstance(value, dict):
    words = {key: str(spec) for key, spec in value.items()}
    return ",".join(w if k == w else f"{k}={w}" for k, w in words.items())
  return str(value) if isinstance(value, Spec) else value


def _folder(values: Mapping[str, Any]) -> str:
  """Names a cell's folder by the last words of its fields, if they differ."""
  words = [path.rpartition(".")[2] for path in values]
  parts = []
  for word, (path, value) in zip(words, values.items(), strict=True):
    name = word if words.count(word) == 1 else path
    text = re.sub(r"[^\w.+-]", "_", str(value).replace(" ", ""))
    parts.append(f"{name}={text.strip('.') or '_'}")
  return ",".join(parts)
