"""Runs of a config: of one seed, of several, and of the cells of a sweep.

WORKDIR/                   a run
WORKDIR/seedN/             a run of each seed
WORKDIR/alpha=0.1,.../     a cell of a grid, with one run or one run per seed
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.config import Config
from splitjax.config.sweep import Cell, check_seeds
from splitjax.experiment import machine, reporting, summary, workdirs
from splitjax.experiment.console import Stop, say
from splitjax.experiment.task import Task, build
from splitjax.experiment.train import train
from splitjax.fields import naming
from splitjax.files import Damaged, Json
from splitjax.reports.results import Results
from splitjax.types import UserError


def run(
  config: Config | Task | Any,
  workdir: str | Path,
  *,
  stop: Stop | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Trains every method of a config and writes report, figures and states.

  A method that is finished in the workdir is not trained again; one that was
  interrupted resumes from its newest sound checkpoint. Finished methods of
  earlier starts that the config leaves out stay in the report.

  Args:
    config: the run's config, or the task that `build` made of it; a nested dict
      is checked first.
    workdir: the folder for everything that is written.
    stop: a function called after every round; an answer that is not false, such
      as "SIGTERM", ends the run early, with a checkpoint and no report.
    figures: "none" draws nothing; "report" draws the figures of the report;
      "all" draws those of a grid's cells and of seeds, too.

  Returns:
    The results. With several processes only the first one has their numbers.

  Raises:
    UserError: the config is bad, data are missing, or the workdir belongs to
      another config or is in use by another process; these are found before
      anything is compiled. Or a checkpoint cannot be written.
    Stopped: a stop was requested; the same call resumes.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="toy")
    >>> c.data.name, c.rounds, c.eval.every = "digits", 2, 1
    >>> results = splitjax.run(c, "runs/first")
    >>> results.rows
    ['splitgp']
  """
  task = config if isinstance(config, Task) else build(config)
  config = task.config
  workdir = files.expanded(workdir)
  with workdirs.claimed(workdir, config, task.facts) as with_earlier:
    # The config with the methods of earlier starts; those of `config` train.
    task = task._replace(config=with_earlier)
    if machine.is_first_process():
      summary.write_clients(task, workdir)
      if figures != "none":
        summary.pictures(task, workdir)
    for key in config.methods:
      if _is_finished(workdir, key, config.rounds):
        say(f"{key}: finished before, not trained again")
      else:
        train(task, key, workdir, stop)

    for key in workdirs.finished(workdir):
      if key not in config.methods:
        say(f"{key}: trained by an earlier start, stays in the report")
    return reporting.report_again(workdir, figures=figures)


def _is_finished(workdir: Path, key: str, rounds: int) -> bool:
  """Checks if a method's results are there; damaged ones are made again."""
  try:
    about = workdirs.read_about(workdir, key)
  except Damaged as damage:
    say(f"{damage}: made again from the last checkpoint")
    return False
  return about is not None and about.rounds >= rounds


def run_seeds(
  config: Config | Any,
  workdir: str | Path,
  seeds: Sequence[int],
  *,
  stop: Stop | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Runs a config once per seed, in workdir/seedN, and reports over seeds.

  Arguments and errors are those of `run`; the seed of the config is replaced by
  `seeds`, and a number that is no seed or is repeated is a UserError.

  Example:
    >>> import splitjax
    >>> c = splitjax.default(method="splitgp", backbone="toy")
    >>> c.data.name, c.rounds, c.eval.every = "digits", 2, 1
    >>> results = splitjax.run_seeds(c, "runs/seeds", (0, 1))
    >>> results.seeds
    [0, 1]
  """
  config = Config.from_dict(config)
  workdir = files.expanded(workdir)
  seeds = check_seeds(seeds, "seed")
  task = build(dataclasses.replace(config, seed=seeds[0]))
  # These facts may differ by seed: the first three may describe a seed's own
  # training samples; the seed chooses the clients' names and draws devices.
  of_seeds = ("mean", "std", "partition", "names", "depth")
  facts = {k: v for k, v in task.facts.items() if k not in of_seeds}
  with workdirs.claimed(workdir, config, facts, over_seeds=True):
    if machine.is_first_process() and figures != "none":
      summary.pictures(task, workdir)
    for i, seed in enumerate(seeds, 1):
      say(f"seed {seed} ({i} of {len(seeds)})")
      if seed != task.config.seed:
        task = build(dataclasses.replace(config, seed=seed))
      run(task, workdir / f"seed{seed}", stop=stop, figures=_inner(figures))
    return reporting.report_again(workdir, figures=figures)


def run_grid(
  cells: Sequence[Cell],
  workdir: str | Path,
  seeds: Sequence[int] | None = None,
  *,
  stop: Stop | None = None,
  figures: reporting.Figures = "report",
) -> Results:
  """Runs every cell that is not finished and writes a report on all cells.

  Args:
    cells: cells of `sweep.plan`, each with a name. Those of earlier starts stay
      in the report.
    workdir: the folder of the grid.
    seeds: those of every cell; None: the config's own seed.
    stop: see `run`.
    figures: see `run`.

  Raises:
    UserError: see `run`; or the folder holds files but no grid, or a grid that
      differs in more than the values of swept fields.
  """
  workdir = files.expanded(workdir)
  grid = _grid(cells, workdir, seeds)
  # All cells are checked before the first trains; then their data are dropped.
  for cell in cells:
    seed = cell.config.seed if seeds is None else seeds[0]
    with naming(cell.name):
      build(dataclasses.replace(cell.config, seed=seed))
  with contextlib.ExitStack() as stack:
    if machine.is_first_process():
      stack.enter_context(workdirs.held(workdir))
      files.write_sealed(workdir / workdirs.GRID, grid)
    # A cell is an ordinary run; the common report follows after each cell.
    for i, cell in enumerate(cells, 1):
      say(f"cell {i} of {len(cells)}: {cell.name}")
      path = workdir / cell.name
      options: Any = {"stop": stop, "figures": _inner(figures)}
      if seeds is None:
        run(cell.config, path, **options)
      else:
        run_seeds(cell.config, path, seeds, **options)
      shown = figures if i == len(cells) else "none"
      results = reporting.report_again(workdir, figures=shown)
  return results


def _inner(figures: reporting.Figures) -> reporting.Figures:
  """Returns which figures a seed's or a cell's own report gets."""
  return "all" if figures == "all" else "none"


def _grid(
  cells: Sequence[Cell], workdir: Path, seeds: Sequence[int] | None
) -> Json:
  """Makes the content of grid.json: the cells of earlier starts, then `cells`.

  Raises UserError if the folder holds files but no grid, or another one.
  """
  fields = list(cells[0].values)
  started = dict[str, Json]()
  if workdirs.kind_of(workdir) == "grid":
    stored = workdirs.read_run(workdir, workdirs.GRID)
    for cell in stored["cells"]:
      if workdirs.kind_of(workdir / cell["name"]):
        started[cell["name"]] = cell["values"]
  else:
    workdirs.check_empty(workdir, "grid")
  # All cells of a grid share one config, so only one of them is compared.
  if started:
    theirs = workdirs.read_run(workdir / next(iter(started)))["config"]
    ours = files.plain(cells[0].config.to_dict())
    # The swept fields are compared as if they were a fact of the data.
    differs = workdirs.difference(
      {"config": theirs, "data": {"sweep": stored["fields"]}},
      {"config": ours, "data": {"sweep": fields}},
      free=("seed", *fields),
    )
    if differs:
      raise UserError(
        f"--workdir={workdir} is a grid of another config ({differs}): choose a"
        " new folder"
      )
  started |= {cell.name: files.plain(cell.values) for cell in cells}
  return {
    "fields": fields,
    "seeds": files.plain(seeds),
    "cells": [{"name": name, "values": x} for name, x in started.items()],
  }
