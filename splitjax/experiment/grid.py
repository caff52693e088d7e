"""A grid: runs of one config with other values, each in a folder of its own.

WORKDIR/grid.json         which folders, and what differs between them
WORKDIR/alpha=0.1,...     one run, or with seeds one per seed, as ever
WORKDIR/report.md, .csv, .tex, .json
WORKDIR/accuracy_over_FIELD.png   where a single field varies, a number
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.schema import Config
from splitjax.config.sweep import Cell
from splitjax.engine import distributed
from splitjax.experiment import reevaluate, reporting, runner
from splitjax.experiment.progress import overall, say
from splitjax.experiment.signals import Stop, never
from splitjax.experiment.storage import identity, ownership
from splitjax.experiment.storage import workdir as workdirs
from splitjax.reports import formats, page, records, report, tables
from splitjax.reports.figures import grid
from splitjax.reports.report import Results
from splitjax.types import UserError

GRID = "grid.json"


def run(
  cells: Sequence[Cell],
  workdir: str | Path,
  numbers: Sequence[int] | None = None,
  *,
  overwrite: bool = False,
  stop: Stop = never,
) -> Results:
  """Runs every cell that is not finished and writes one report over all.

  Args:
    cells: as `sweep.plan` makes them, each with a name.
    workdir: where everything goes. Cells of an earlier start of the same
      grid, with other values of the same fields, stay in the report.
    numbers: seeds, each cell is trained once for each; None: its own.
    overwrite: delete what another config left in a cell.
    stop: as in `experiment.run`.

  Returns:
    title, fields, per finished cell name, values and results, and what is
    missing: "k=2", "k=2 seed 1" or "k=2 seed 1 harmony".

  Raises:
    UserError: as `experiment.run`; a workdir that is no grid of this config.
  """
  workdir = Path(workdir)
  with contextlib.ExitStack() as held:
    with distributed.all_agree():
      present, gone = _there(cells, workdir, overwrite)
    for cell in cells:  # all of them before the first is trained
      try:
        runner.check(cell.config, workdir / cell.name, numbers, overwrite)
      except UserError as error:
        raise UserError(f"{cell.name}: {error}") from None
    with distributed.all_agree():
      if distributed.is_first_process():
        held.enter_context(ownership.locked_workdir(workdir))
        for name in gone:
          ownership.forget(workdir / name)
        _write(cells, workdir, present, numbers)
    return _run(cells, workdir, numbers, overwrite, stop)


def _run(
  cells: Sequence[Cell],
  workdir: Path,
  numbers: Sequence[int] | None,
  overwrite: bool,
  stop: Stop,
) -> Results:
  """Trains what is not finished, and reports after every cell."""
  runs = 1 if numbers is None else len(numbers)
  total = runs * sum(len(cell.config.methods) for cell in cells)
  with overall(total, not distributed.is_first_process()) as progress:
    for i, cell in enumerate(cells, 1):
      progress.cell = f"cell {i} of {len(cells)}: {cell.name}"
      place = workdir / cell.name
      if numbers is None:
        progress.begin()
        runner.run(cell.config, place, overwrite=overwrite, stop=stop)
      else:
        runner.run_seeds(
          cell.config, place, numbers, overwrite=overwrite, stop=stop
        )
      if distributed.is_first_process():
        _publish(workdir, _so_far)
  return _publish(workdir, _so_far) if distributed.is_first_process() else {}


def is_grid(workdir: str | Path) -> bool:
  """Whether a workdir holds the runs of a grid."""
  return (Path(workdir) / GRID).exists()


def report_again(workdir: str | Path) -> Results:
  """Writes the reports of all cells again, and the one over them.

  Raises:
    UserError: nothing finished lies there, or as `reporting.report_again`.
  """
  return _publish(Path(workdir), reporting.report_again)


def evaluate_again(
  workdir: str | Path, cells: Sequence[Cell] | None = None
) -> Results:
  """Evaluates every finished cell again, with other `eval` if given.

  Args:
    workdir: of the grid.
    cells: with configs that may differ in `eval`; those of the grid that they
      leave out, or all where they are no grid, take the first one's with their
      own values. None: the runs' own.

  Raises:
    UserError: as `again.evaluate_again`; cells of a grid over other fields.
  """
  tree = workdirs.read_json(Path(workdir) / GRID)
  if cells and cells[0].values:
    _same_fields(tree, cells, Path(workdir))
  known = {cell.name: cell.config for cell in cells or ()}
  values = {cell["name"]: cell["values"] for cell in tree["cells"]}

  def evaluate(place: Path) -> Results:
    config = known.get(place.name)
    if cells and config is None:
      config = _with(cells[0].config, values[place.name])
    return reevaluate.evaluate_again(place, config)

  return _publish(Path(workdir), evaluate, into="evaluate")


def _there(
  cells: Sequence[Cell], workdir: Path, overwrite: bool
) -> tuple[list[dict[str, Any]], list[str]]:
  """The begun cells of earlier starts, as grid.json has them.

  Returns:
    Those of this grid; and the names of those of another, to be overwritten.

  Raises:
    UserError: the folder is something else, or another grid's.
  """
  if (workdir / workdirs.CONFIG).exists():
    raise UserError(
      f"--workdir={workdir} holds a run without sweep: choose another"
    )
  if is_grid(workdir):
    old = workdirs.read_json(workdir / GRID)
    if not overwrite:
      _same_fields(old, cells, workdir)
    mine, present, gone = {cell.name for cell in cells}, [], []
    for cell in old["cells"]:
      if not (workdir / cell["name"]).exists():
        continue  # not begun: forgotten
      apart = _apart(cell, cells, workdir)
      if apart is None or cell["name"] in mine:  # which are checked later
        present.append(cell)
      elif overwrite:
        gone.append(cell["name"])
      else:
        raise UserError(
          f"--workdir={workdir} is a grid of another config ({apart}): choose"
          " another, or --overwrite it"
        )
    return present, gone
  if workdir.exists() and {p.name for p in workdir.iterdir()} - {workdirs.LOCK}:
    raise UserError(
      f"--workdir={workdir} exists and is no grid of this program: choose"
      " another"
    )
  return [], []


def _write(
  cells: Sequence[Cell],
  workdir: Path,
  present: list[dict[str, Any]],
  numbers: Sequence[int] | None,
) -> None:
  """Writes grid.json: the cells of this start, after those of earlier ones."""
  workdir.mkdir(parents=True, exist_ok=True)
  known = {cell["name"]: cell for cell in present}
  for cell in cells:
    known[cell.name] = {
      "name": cell.name,
      "values": files.plain(cell.values),
      "seeds": files.plain(numbers),
      "methods": list(cell.config.methods),
    }
  tree = {
    "title": cells[0].config.title,
    "fields": list(cells[0].values),
    "cells": list(known.values()),
  }
  files.write_json(workdir / GRID, tree)


def _same_fields(
  old: dict[str, Any], cells: Sequence[Cell], workdir: Path
) -> None:
  """Raises UserError where a workdir is a grid over other fields."""
  fields = list(cells[0].values)
  if old["fields"] != fields:
    raise UserError(
      f"--workdir={workdir} is a grid over {', '.join(old['fields'])}, not"
      f" over {', '.join(fields)}: choose another, or --overwrite it"
    )


def _apart(
  cell: dict[str, Any], cells: Sequence[Cell], workdir: Path
) -> str | None:
  """In what a cell of an earlier start differs from this grid, if it does."""
  if list(cell["values"]) != list(cells[0].values):
    return f"over {', '.join(cell['values'])}"
  place = workdir / cell["name"]
  if not (place / workdirs.CONFIG).exists():
    return None
  theirs = workdirs.read_saved(place)["config"]
  task = _with(cells[0].config, cell["values"])
  return identity.difference(  # a run's own seed or one per seed: no matter
    {"config": {**theirs, "seed": 0}, "data": {}},
    {"config": {**task.to_dict(), "seed": 0}, "data": {}},
  )


def _with(config: Config, values: dict[str, Any]) -> Config:
  """A config with the fields of another cell."""
  tree = config.to_dict()
  for path, value in values.items():
    *groups, name = path.split(".")
    place = tree
    for group in groups:
      place = place[group]
    place[name] = value
  return Config.from_dict(tree)


def _publish(
  workdir: Path, results_of: Callable[[Path], Results], into: str = ""
) -> Results:
  """Writes the report over the finished cells.

  Args:
    workdir: of the grid.
    results_of: a cell's folder -> its results; {} or Unfinished if there are
      none.
    into: folder below the workdir for the report.
  """
  tree = workdirs.read_json(workdir / GRID)
  done, missing = [], []
  for cell in tree["cells"]:
    name, place = cell["name"], workdir / cell["name"]
    try:
      found = results_of(place)
    except workdirs.Unfinished as error:
      say(f"left out: {error}")
      found = {}
    if not found:
      missing.append(name)
      continue
    done.append({"name": name, "values": cell["values"], "results": found})
    asked = cell.get("methods", ()), cell.get("seeds")
    left = workdirs.unfinished(place, *asked)
    missing += [f"{name} {each}".strip() for each in left]
  if not done:
    raise UserError(f"--workdir={workdir}: nothing is finished there yet")
  whole = {
    "title": tree["title"],
    "fields": tree["fields"],
    "cells": done,
    "missing": missing,
  }
  place = workdir / into
  place.mkdir(exist_ok=True)
  numbers = collect(whole)
  files.write_json(place / report.JSON, files.plain(whole))
  report.write_records(place, numbers, tree["title"], _missing(whole))
  drawn = [path.name for path in grid.draw(whole, place)]
  files.write_text(place / report.PAGE, _page(whole, numbers, into, drawn))
  return whole


def _missing(whole: Results) -> list[str]:
  """Sentences on what is not finished."""
  return [f"not finished: {each}" for each in whole["missing"]]


def _so_far(place: Path) -> Results:
  """What a cell's run has reported; {} where it will do so, or do so anew."""
  try:
    return report.read(place)
  except UserError:
    return {}


def collect(whole: Results) -> list[records.Record]:
  """Every number of a grid."""
  return [
    record
    for cell in whole["cells"]
    for record in records.collect(cell["results"], cell["values"])
  ]


def _page(
  whole: Results, found: list[records.Record], into: str, drawn: list[str]
) -> str:
  """The text of the grid's report.md."""
  names = [cell["name"] for cell in whole["cells"]]
  links = [f"../{name}/{into}" if into else name for name in names]
  parts = [
    f"# {whole['title'] or 'splitjax'}",
    formats.markdown(tables.compare(found)),
    "\n".join(f"- {s}" for s in [*records.remarks(found), *_missing(whole)]),
    *map(page.figure, drawn),
    "## Each cell",
    "\n".join(
      f"- [{name}]({link}/{report.PAGE})"
      for name, link in zip(names, links, strict=True)
    ),
  ]
  return "\n\n".join(parts) + "\n"
