"""A grid: the runs of a sweep, each in its own workdir, and a common report.

WORKDIR/grid.json         fields, cells and seeds
WORKDIR/alpha=0.1,...     a cell's workdir, with one run or one run per seed
WORKDIR/numbers.csv, report.md, .csv, .tex, and figures over the fields
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files, machine
from splitjax.config.sweep import Cell
from splitjax.experiment import reevaluate, reporting, runner
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop, never
from splitjax.experiment.setup.tasks import Tasks
from splitjax.experiment.storage import identity, ownership, workdirs
from splitjax.reports.results import NONE, Results
from splitjax.types import UserError, naming


def run_grid(
  cells: Sequence[Cell],
  workdir: str | Path,
  numbers: Sequence[int] | None = None,
  *,
  stop: Stop = never,
  figures: reporting.Figures = "report",
) -> Results:
  """Runs every cell that is not finished and writes a report on all cells.

  Args:
    cells: cells of `sweep.plan`, each with a name.
    workdir: the output folder. Cells of earlier starts stay in the report if
      they differ from this grid in nothing but the values of swept fields.
    numbers: the seeds of every cell; None: the config's own seed.
    stop: see `runner.run`.
    figures: see `runner.run`.

  Returns:
    The results of all finished cells.

  Raises:
    UserError: see `runner.run`; or the workdir holds files but no grid, or
      a grid of another config.
  """
  workdir, results = Path(workdir), NONE
  inner: reporting.Figures = "all" if figures == "all" else "none"
  with contextlib.ExitStack() as stack:
    known = _earlier_cells(workdir, cells)
    # All cells are checked before the first trains.
    built = Tasks()
    for cell in cells:
      first = cell.config.seed if numbers is None else numbers[0]
      with naming(cell.name):
        built.of(dataclasses.replace(cell.config, seed=first))
    if machine.is_first_process():
      stack.enter_context(ownership.locked_workdir(workdir))
      _write(cells, workdir, known, numbers)
    # A cell is an ordinary run; the common report follows after each cell.
    for i, cell in enumerate(cells, 1):
      place = workdir / cell.name
      say(f"cell {i} of {len(cells)}: {cell.name}")
      options: Any = {"stop": stop, "built": built, "figures": inner}
      if numbers is None:
        runner.run(cell.config, place, **options)
      else:
        runner.run_seeds(cell.config, place, numbers, **options)
      if machine.is_first_process():
        shown = figures if i == len(cells) else "none"
        results = reporting.report(workdir, parts=False, figures=shown)
    return results


def evaluate_again(
  workdir: str | Path,
  cells: Sequence[Cell] | None = None,
  only: Sequence[str] | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Evaluates every finished cell again.

  Args:
    workdir: the grid's folder.
    cells: cells of a sweep over the same fields, or the only cell of a config
      without a sweep. The `eval` of their config is used for every cell of the
      grid. None: each cell of the grid keeps its own `eval`.
    only: the names of the cells that are evaluated; None: all.
    figures: see `runner.run`.

  Raises:
    UserError: see `reevaluate.evaluate_again`; or the grid has other fields or
      lacks a cell of `only`.
  """
  workdir = Path(workdir)
  tree = workdirs.read_json(workdir / workdirs.GRID)
  values = {cell["name"]: cell["values"] for cell in tree["cells"]}
  if cells and cells[0].values and list(cells[0].values) != tree["fields"]:
    other = _other_fields(tree["fields"], cells[0])
    raise UserError(f"--workdir={workdir} is a grid {other}: sweep the same")
  for name in (name for name in only or () if name not in values):
    raise UserError(
      f"--workdir={workdir} has no cell {name}: it has {', '.join(values)}"
    )

  inner: reporting.Figures = "all" if figures == "all" else "none"
  for name in values if only is None else only:
    config = cells[0].at(values[name]) if cells else None
    with contextlib.suppress(workdirs.Unfinished):
      reevaluate.evaluate_again(workdir / name, config, figures=inner)
  return reporting.report(
    workdir, workdirs.EVALUATED, only=only, parts=False, figures=figures
  )


def _earlier_cells(workdir: Path, cells: Sequence[Cell]) -> dict[str, Any]:
  """Returns the cells that earlier starts have begun: name -> swept values."""
  if not workdirs.is_grid(workdir):
    if {path.name for path in workdir.glob("*")} - {workdirs.LOCK}:
      raise UserError(
        f"--workdir={workdir} exists and is no grid of this program: choose"
        " another"
      )
    return {}
  begun = {
    cell["name"]: cell["values"]
    for cell in workdirs.read_json(workdir / workdirs.GRID)["cells"]
    if (workdir / cell["name"] / workdirs.CONFIG).exists()
  }
  differs = _difference(workdir, begun, cells[0])
  if differs is not None:
    raise UserError(
      f"--workdir={workdir} is a grid {differs}: choose a new folder"
    )
  return begun


def _difference(workdir: Path, begun: dict[str, Any], cell: Cell) -> str | None:
  """Describes how the grid of `begun` cells differs from the grid of `cell`.

  All cells of a grid share one config, so only the first cell of `begun` is
  compared. Returns None if the grids are the same.
  """
  if not begun:
    return None
  name, values = next(iter(begun.items()))
  if list(values) != list(cell.values):
    return _other_fields(values, cell)
  saved = workdirs.read_saved(workdir / name)["config"]
  mine = cell.at(values).to_dict()
  # The config of a cell over seeds has no seed.
  theirs, ours = (
    {"config": {**config, "seed": 0}, "data": {}} for config in (saved, mine)
  )
  differs = identity.difference(theirs, ours)
  return differs and f"of another config ({differs})"


def _other_fields(fields: Iterable[str], cell: Cell) -> str:
  return f"over {', '.join(fields)}, not over {', '.join(cell.values)}"


def _write(
  cells: Sequence[Cell],
  workdir: Path,
  known: dict[str, Any],
  numbers: Sequence[int] | None,
) -> None:
  """Writes grid.json: the cells of earlier starts (`known`), then `cells`."""
  every = known | {cell.name: files.plain(cell.values) for cell in cells}
  tree = {
    "title": cells[0].config.title,
    "fields": list(cells[0].values),
    "seeds": files.plain(numbers),
    "cells": [{"name": n, "values": v} for n, v in every.items()],
  }
  files.write_json(workdir / workdirs.GRID, tree)
