"""What each mode of launch.py does and prints."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax.config import sweep, validation
from splitjax.experiment import (
  closing_text,
  describe,
  export,
  grid,
  reevaluate,
  reporting,
  runner,
)
from splitjax.experiment.signals import listening
from splitjax.experiment.storage import workdir as workdirs
from splitjax.reports import formats, report, tables
from splitjax.types import UserError


def exported(
  workdir: str | None, client: int | None, method: str | None
) -> str:
  """Exports a client and says where it lies.

  Args:
    workdir: the run's folder.
    client: its number.
    method: key of a method; None: every finished one.

  Raises:
    UserError: one of them is missing or unknown.
  """
  if workdir is None:
    raise UserError("--mode=export needs --workdir=FOLDER")
  if client is None:
    raise UserError("--mode=export needs --client=NUMBER, from 0 on")
  found = export.export_client(workdir, client, method)
  where = "\n".join(map(str, found))
  return f"{where}\n\nREADME.md in there says how to run it."


def text(
  mode: str,
  given: Mapping[str, Any] | None,
  workdir: str | None,
  *,
  seeds: Sequence[str] | None = None,
  overwrite: bool = False,
  as_json: bool = False,
  swept: Sequence[str] = (),
  overridden: Mapping[str, Any] = {},
) -> str:
  """Does what train, evaluate, report or describe is for.

  Args:
    mode: one of these.
    given: as in `cli.launch`, and so are the others.
    workdir: the run's folder.
    seeds: train once for each.
    overwrite: delete what another config left in the workdir.
    as_json: describe returns one JSON object.
    swept: FIELD=VALUE,VALUE each.
    overridden: field -> the value that the command line has given it.

  Returns:
    What it prints at its end; "" of all processes but the first.

  Raises:
    UserError: whatever cannot be.
    Stopped: the training was asked to stop.
  """
  if swept and given is None:
    raise UserError("--sweep needs --config=FILE, whose fields it varies")
  plan = None if given is None else sweep.plan(given, swept, overridden)
  if mode == "describe":
    return _described(_needed(mode, plan), workdir, as_json)
  if workdir is None:
    raise UserError(f"--mode={mode} needs --workdir=FOLDER")
  if mode == "train":
    results = _trained(_needed(mode, plan), workdir, seeds, overwrite)
  else:
    results = _again(mode, plan, workdir)
    workdir = f"{workdir}/evaluate" if mode == "evaluate" else workdir
  if not results:  # of several processes only the first has them
    return ""
  if "cells" in results:
    parts = [formats.terminal(tables.compare(grid.collect(results)))]
  else:
    parts = [report.table(results)]
  if mode == "train":
    parts.append(_farewell(workdir, _needed(mode, plan)))
  return "\n".join([*parts, f"\n{workdir}/report.md has it in full."])


def _farewell(workdir: str, plan: sweep.Plan) -> str:
  """Where everything lies."""
  if plan.cells[0].values:
    names = [cell.name for cell in plan.cells]
    return closing_text.of_grid(workdir, names, plan.cells[0].config)
  return closing_text.of_run(workdir, plan.cells[0].config)


def _trained(
  plan: sweep.Plan, workdir: str, seeds: Sequence[str] | None, overwrite: bool
) -> report.Results:
  """Trains what a config stands for."""
  numbers = plan.seeds if seeds is None else _numbers(seeds)
  first = plan.cells[0]
  with listening() as stop:
    options: Any = {"overwrite": overwrite, "stop": stop}
    if first.values:
      return grid.run(plan.cells, workdir, numbers, **options)
    if grid.is_grid(workdir):
      raise UserError(
        f"--workdir={workdir} holds a grid: sweep the same fields, or choose"
        " another"
      )
    if numbers is None:
      return runner.run(first.config, workdir, **options)
    return runner.run_seeds(first.config, workdir, numbers, **options)


def _again(mode: str, plan: sweep.Plan | None, workdir: str) -> report.Results:
  """Reports or evaluates what lies in a workdir."""
  if grid.is_grid(workdir):
    if mode == "report":
      return grid.report_again(workdir)
    return grid.evaluate_again(workdir, plan.cells if plan else None)
  if mode == "report":
    return reporting.report_again(workdir)
  if plan is None:
    return reevaluate.evaluate_again(workdir)
  if plan.cells[0].values:
    raise UserError(
      f"--workdir={workdir} holds a run, no grid: leave sweep out"
    )
  return reevaluate.evaluate_again(workdir, plan.cells[0].config)


def _described(plan: sweep.Plan, workdir: str | None, as_json: bool) -> str:
  """What a config is; of a grid which runs, and the first of them in full."""
  folder = None if workdir is None else Path(workdir) / workdirs.DESCRIBED
  facts = describe.describe(plan.cells[0].config, folder)
  names = [cell.name for cell in plan.cells]
  if names == [""]:
    return json.dumps(facts) if as_json else describe.text(facts)
  if as_json:
    return json.dumps({"cells": names, "seeds": plan.seeds, "first": facts})
  seeds = (
    f", seeds {', '.join(map(str, plan.seeds))} each" if plan.seeds else ""
  )
  listed = "\n".join(f"  {name}" for name in names)
  return (
    f"A grid of {len(names)} runs{seeds}:\n{listed}\n\nThe first:\n\n"
    f"{describe.text(facts)}"
  )


def _needed(mode: str, plan: sweep.Plan | None) -> sweep.Plan:
  if plan is None:
    raise UserError(f"--mode={mode} needs --config=FILE, one of configs/*.py")
  return plan


def _numbers(seeds: Sequence[str]) -> list[int]:
  """The seeds as numbers."""
  try:
    numbers = [int(seed) for seed in seeds]
  except ValueError:
    numbers = []
  if not numbers:
    raise UserError(
      f"--seeds={','.join(seeds)} must be different whole numbers, as in"
      " --seeds=0,1,2"
    )
  validation.check_seeds(numbers, "--seeds")
  return numbers
