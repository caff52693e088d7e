"""A grid: the runs of a sweep, each in its own workdir, and a common report.

WORKDIR/grid.json         fields, cells and seeds
WORKDIR/alpha=0.1,...     a cell's workdir, with one run or one run per seed
WORKDIR/report.md, .csv, .tex, .json
WORKDIR/accuracy_over_FIELD.png   for a sweep of one numeric field
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files, machine
from splitjax.config.sweep import Cell
from splitjax.experiment import reevaluate, reporting, runner
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop, never
from splitjax.experiment.setup.tasks import Tasks
from splitjax.experiment.storage import identity, ownership, workdirs
from splitjax.reports import grid_report, report
from splitjax.reports.report import Results
from splitjax.types import UserError, naming

GRID = "grid.json"


def run_grid(
  cells: Sequence[Cell],
  workdir: str | Path,
  numbers: Sequence[int] | None = None,
  *,
  stop: Stop = never,
) -> Results:
  """Runs every cell that is not finished and writes a report on all cells.

  Args:
    cells: cells of `sweep.plan`, each with a name.
    workdir: the output folder. Cells of earlier starts stay in the report if
      they differ from this grid in nothing but the values of swept fields.
    numbers: the seeds of every cell; None: the config's own seed.
    stop: see `runner.run`.

  Returns:
    A dict: "title", "fields", "cells" (each with name, values and results), and
    "missing", which lists what is not finished, such as "k=2", "k=2 seed 1" or
    "k=2 seed 1 harmony".

  Raises:
    UserError: see `runner.run`; or the workdir holds files but no grid, or
      a grid of another config.
  """
  workdir = Path(workdir)
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
    results: Results = {}
    for i, cell in enumerate(cells, 1):
      place = workdir / cell.name
      say(f"cell {i} of {len(cells)}: {cell.name}")
      options: Any = {"stop": stop, "built": built}
      if numbers is None:
        runner.run(cell.config, place, **options)
      else:
        runner.run_seeds(cell.config, place, numbers, **options)
      if machine.is_first_process():
        results = _publish(workdir, _read_report)
    return results


def is_grid(workdir: str | Path) -> bool:
  """Checks if a workdir holds a grid."""
  return (Path(workdir) / GRID).exists()


def report_again(workdir: str | Path) -> Results:
  """Writes the reports of all cells and of the grid again."""
  return _publish(Path(workdir), reporting.report_again)


def evaluate_again(
  workdir: str | Path,
  cells: Sequence[Cell] | None = None,
  only: Sequence[str] | None = None,
) -> Results:
  """Evaluates every finished cell again.

  Args:
    workdir: the grid's folder.
    cells: cells of a sweep over the same fields, or the only cell of a config
      without a sweep. The `eval` of their config is used for every cell of the
      grid. None: each cell of the grid keeps its own `eval`.
    only: the names of the cells that are evaluated; None: all.

  Raises:
    UserError: see `reevaluate.evaluate_again`; or the grid has other fields or
      lacks a cell of `only`.
  """
  workdir = Path(workdir)
  tree = workdirs.read_json(workdir / GRID)
  values = {cell["name"]: cell["values"] for cell in tree["cells"]}
  if cells and cells[0].values and list(cells[0].values) != tree["fields"]:
    other = _other_fields(tree["fields"], cells[0])
    raise UserError(f"--workdir={workdir} is a grid {other}: sweep the same")
  for name in (name for name in only or () if name not in values):
    raise UserError(
      f"--workdir={workdir} has no cell {name}: it has {', '.join(values)}"
    )

  def evaluate(place: Path) -> Results:
    config = cells[0].at(values[place.name]) if cells else None
    return reevaluate.evaluate_again(place, config)

  return _publish(workdir, evaluate, workdirs.EVALUATED, only)


def _earlier_cells(workdir: Path, cells: Sequence[Cell]) -> dict[str, Any]:
  """Returns the cells that earlier starts have begun: name -> swept values."""
  if not is_grid(workdir):
    if {path.name for path in workdir.glob("*")} - {workdirs.LOCK}:
      raise UserError(
        f"--workdir={workdir} exists and is no grid of this program: choose"
        " another"
      )
    return {}
  begun = {
    cell["name"]: cell["values"]
    for cell in workdirs.read_json(workdir / GRID)["cells"]
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
  files.write_json(workdir / GRID, tree)


def _read_report(place: Path) -> Results:
  """Returns a cell's report; raises Unfinished if it has none yet."""
  try:
    return report.read_report(place)
  except UserError as error:
    raise workdirs.Unfinished(str(error)) from None


def _publish(
  workdir: Path,
  results_of: Callable[[Path], Results],
  into: str = "",
  only: Sequence[str] | None = None,
) -> Results:
  """Writes the report on the finished cells into a subfolder.

  `results_of` maps a cell's workdir to its results; it may raise Unfinished.
  `only` names the cells; None: all.
  """
  tree = workdirs.read_json(workdir / GRID)
  # Collect the results of the cells that are finished.
  done, missing, why = [], [], ""
  for cell in tree["cells"]:
    name, place = cell["name"], workdir / cell["name"]
    if only is not None and name not in only:
      continue
    try:
      results = results_of(place)
    except workdirs.Unfinished as error:
      why = f" ({error})"
      missing.append(name)
      continue
    done.append({"name": name, "values": cell["values"], "results": results})
    methods = workdirs.read_saved(place)["config"]["methods"]
    left = workdirs.unfinished(place, methods, tree["seeds"])
    missing += [f"{name} {each}".strip() for each in left]
  if not done:
    raise UserError(f"--workdir={workdir}: no cell is finished yet{why}")
  whole = {
    "title": tree["title"],
    "fields": tree["fields"],
    "cells": done,
    "missing": missing,
  }
  place = workdir / into
  place.mkdir(exist_ok=True)
  names = [cell["name"] for cell in done]
  links = [f"../{name}/{into}" if into else name for name in names]
  notes = [f"not finished: {each}" for each in missing]
  if only is not None:
    notes.append(f"evaluated: {', '.join(only)} alone")
  grid_report.write_grid(whole, place, links, notes)
  return whole
