"""Sweeps: a config with several values of a field stands for many runs.

`c.sweep` (`vary`) and --sweep=FIELD=VALUE,VALUE name the values. Every
combination is a cell, a run in a folder of its own; if a field is `seed`, each
cell is trained once per seed.
"""

import copy
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from splitjax.config.config import (
  BOOKKEEPING,
  Config,
  assign,
  check,
  value_of,
  within,
)
from splitjax.fields import (
  Bounds,
  Text,
  convert,
  naming,
  split,
  unquoted,
  written,
)
from splitjax.options import Spec
from splitjax.types import UserError


class Cell(NamedTuple):
  """A run of a grid, or one run per seed if the sweep has seeds."""

  name: str  #: of its folder, such as alpha=0.1; "" if only seeds are swept
  values: dict[str, Any]  #: field -> value
  config: Config


class Sweep(NamedTuple):
  """The runs of a config."""

  cells: list[Cell]  #: at least one; all are checked
  seeds: tuple[int, ...] | None  #: None if the sweep has none


def plan(
  config: Config,
  swept: Sequence[str] = (),
  overridden: Mapping[str, Any] | None = None,
) -> Sweep:
  """Expands a config into its checked runs.

  Args:
    config: the config, with or without `sweep`.
    swept: FIELD=VALUE,VALUE of the command line. Where the config sweeps the
      same field, these values replace its values; its other fields stay swept.
    overridden: field -> the one value that the command line sets. The report
      lists these fields beside a paper's numbers.
  """
  overridden = dict(overridden or {})
  for path, values in config.sweep.items():
    if not isinstance(values, list | tuple) or not values:
      text = "must be values, as (1, 2)"
      raise UserError(f"sweep.{path}={written(values)} {text}")
    _check_repeated(values, f"sweep.{path}")
  axes = {**config.sweep, **read_axes(swept)}
  for path in axes.keys() & overridden.keys():
    remedy = f"give its values as --sweep={path}=VALUE,VALUE"
    raise UserError(f"--config.{path}: the field is swept: {remedy}")
  if (runs := math.prod(map(len, axes.values()))) > 1_000:
    text = f"{runs} runs, more than 1,000: sweep fewer in one workdir"
    raise UserError(f"sweep: the values of {', '.join(axes)} are {text}")
  seeds: Any = axes.pop("seed", None)
  if seeds is not None:
    seeds = check_seeds(seeds, "sweep.seed")
  changed = tuple(
    f"{field}={value}"
    for field, value in overridden.items()
    if not within(field, BOOKKEEPING)
  )
  cells: dict[str, Cell] = {}
  for combination in itertools.product(*axes.values()):
    values = dict(zip(axes, combination, strict=True))
    # Every cell starts from the file: a swept name must not keep the options
    # of the name before it; what the command line sets holds in all cells.
    cell = copy.deepcopy(config)
    cell.sweep = {}
    if cell.paper:
      # The config.json of a run has the fields that its command set.
      cell.changed = changed or cell.changed
    with naming(unquoted(_folder(values))):
      assign(cell, {**overridden, **values})
      check(cell)
    # Folders are named by values as read: 0.10 and 0.1 are one cell.
    values = {path: _spec_text(value_of(cell, path)) for path in axes}
    name = _folder(values)
    if name.casefold() in cells:
      raise UserError(f"sweep: two combinations have the folder {name}")
    cells[name.casefold()] = Cell(name=name, values=values, config=cell)
  return Sweep(cells=list(cells.values()), seeds=seeds)


def check_seeds(numbers: Any, path: str) -> tuple[int, ...]:
  """Returns checked seeds; `path` is the field that gives them."""
  seeds = convert(numbers, Annotated[tuple[int, ...], Bounds(at_least=0)], path)
  _check_repeated(seeds, path)
  return seeds


def _check_repeated(values: Sequence[Any], path: str) -> None:
  for number, value in enumerate(values):
    if value in values[:number]:
      raise UserError(f"{path}={written(value)} occurs twice: name it once")


def read_axes(swept: Sequence[str]) -> dict[str, tuple[Text, ...]]:
  """Reads FIELD=VALUE,VALUE; commas within brackets separate nothing."""
  axes: dict[str, tuple[Text, ...]] = {}
  for text in swept:
    path, _, values = text.partition("=")
    words = split(values)
    if not path or not words or "" in words:
      form = "must be FIELD=VALUE,VALUE, as in --sweep=optimizer.lr=0.01,0.05"
      raise UserError(f"--sweep={unquoted(text)} {form}")
    if path in axes:
      raise UserError(f"--sweep={path}: given twice: name all values in one")
    axes[path] = tuple(map(Text, words))
    _check_repeated(axes[path], f"sweep.{path}")
  return axes


def _spec_text(value: Any) -> Any:
  """Writes names with options as text; other values stay as they are."""
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
