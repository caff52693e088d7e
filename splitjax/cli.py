"""What launch.py does, without flags: one function per mode."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax import (
  again,
  describe,
  experiment,
  export,
  farewell,
  feasible,
  grid,
  hosts,
  sizes,
  sweep,
)
from splitjax.reports import report, sheet, typeset
from splitjax.signals import CTRL_C, Stopped, listening
from splitjax.storage import folders
from splitjax.types import UserError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def keep_compiled(folder: str) -> None:
  """Keeps compiled programs in a folder; "" keeps none.

  Where the folder cannot be made, nothing is kept: a run does not need it.
  """
  path = Path(folder).expanduser() if folder else None
  if path is not None:
    try:
      path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      print(f"--compilation_cache={folder}: {error}", file=sys.stderr)
      path = None
  hosts.keep_compiled(path)


def join(
  address: str | None,
  processes: int | None,
  number: int | None,
  detect: bool,
  cpu_devices: int | None,
) -> int:
  """Finds devices and processes of a run; the exit status, 2 after an error."""
  try:
    if cpu_devices is not None or not (processes or detect):
      # Of several processes some may share a machine: they say how many.
      hosts.use_cores(cpu_devices)
    hosts.join(address, processes, number, detect=detect)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0


def launch(
  mode: str,
  given: Mapping[str, Any] | None,
  workdir: str | None,
  *,
  seeds: Sequence[str] | None = None,
  overwrite: bool = False,
  as_json: bool = False,
  client: int | None = None,
  method: str | None = None,
  swept: Sequence[str] = (),
) -> int:
  """Runs a mode and prints its result.

  Args:
    mode: train, evaluate, report, describe or export.
    given: the config as a nested dict; None where the workdir's own will do.
    workdir: the run's folder; describe leaves pictures in it, if given.
    seeds: train once for each.
    overwrite: delete what another config left in the workdir.
    as_json: describe prints one JSON object.
    client: number of the client to export.
    method: key of the method to export; None: every finished one.
    swept: FIELD=VALUE,VALUE each, see `sweep`.

  Returns:
    The exit status: 0, also where SIGTERM ended a training early; 2 after a
    one-line error, 130 after Ctrl-C.
  """
  try:
    _check_flags(mode, given, seeds, overwrite, as_json, client, method, swept)
    if mode != "train" and hosts.several():
      raise UserError(
        f"--mode={mode} is done by one process: start it without the flags of"
        " several"
      )
    if mode == "export":
      said = _exported(workdir, client, method)
    else:
      said = _text(mode, given, workdir, seeds, overwrite, as_json, swept)
    if hosts.first():
      print(said)
  except Stopped as stopped:
    return _goodbye(stopped)
  except KeyboardInterrupt:
    print(
      "interrupted at once: the same command goes on from the newest checkpoint"
      if mode == "train"
      else "interrupted",
      file=sys.stderr,
    )
    return INTERRUPTED
  except (UserError, OSError) as error:  # a full disk, a path below a file
    print(f"error: {error}", file=sys.stderr)
    return 2
  except RuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    reason = str(error).partition("\n")[0]
    print(
      f"error: the device's memory is full ({reason}): lower"
      " --config.system.clients_per_chunk or --config.eval.batch_size",
      file=sys.stderr,
    )
    return 2
  return 0


def _goodbye(stopped: Stopped) -> int:
  """Says how to go on; the exit status."""
  if hosts.first():
    command = shlex.join(["python", *sys.argv])
    print(
      f"stopped by {stopped.asked} ({stopped}); the same command goes on from"
      f" there: {command}",
      flush=True,
    )
  return INTERRUPTED if stopped.asked == CTRL_C else 0


def _check_flags(
  mode, given, seeds, overwrite, as_json, client, method, swept
) -> None:
  """Raises UserError where a flag was given that its mode has no use for."""
  for flag, used, modes in (
    ("--seeds", seeds is not None, ("train",)),
    ("--overwrite", overwrite, ("train",)),
    ("--format=json", as_json, ("describe",)),
    ("--config", given is not None, ("train", "describe", "evaluate")),
    ("--sweep", bool(swept), ("train", "describe", "evaluate")),
    ("--client", client is not None, ("export",)),
    ("--method", method is not None, ("export",)),
  ):
    if used and mode not in modes:
      raise UserError(f"{flag} has no meaning with --mode={mode}: leave it out")


def _exported(
  workdir: str | None, client: int | None, method: str | None
) -> str:
  """Exports a client and says where it lies."""
  if workdir is None:
    raise UserError("--mode=export needs --workdir=FOLDER")
  if client is None:
    raise UserError("--mode=export needs --client=NUMBER, from 0 on")
  found = export.export_client(workdir, client, method)
  where = "\n".join(map(str, found))
  return f"{where}\n\nREADME.md in there says how to run it."


def _text(mode, given, workdir, seeds, overwrite, as_json, swept) -> str:
  """What a mode prints at its end."""
  if given is not None and "networks" in given:
    return _sizes(mode, given, workdir, as_json)
  if swept and given is None:
    raise UserError("--sweep needs --config=FILE, whose fields it varies")
  plan = None if given is None else sweep.plan(given, swept)
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
    parts = [typeset.terminal(sheet.make(grid.records(results)))]
  else:
    parts = [report.table(results)]
  if mode == "train":
    parts.append(_farewell(workdir, _needed(mode, plan)))
  return "\n".join([*parts, f"\n{workdir}/report.md has it in full."])


def _farewell(workdir: str, plan: sweep.Plan) -> str:
  """Where everything lies."""
  if plan.cells[0].values:
    names = [cell.name for cell in plan.cells]
    return farewell.of_grid(workdir, names, plan.cells[0].config)
  return farewell.text(workdir, plan.cells[0].config)


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
      return experiment.run(first.config, workdir, **options)
    return experiment.run_seeds(first.config, workdir, numbers, **options)


def _again(mode: str, plan: sweep.Plan | None, workdir: str) -> report.Results:
  """Reports or evaluates what lies in a workdir."""
  if grid.is_grid(workdir):
    if mode == "report":
      return grid.report_again(workdir)
    return grid.evaluate_again(workdir, plan.cells if plan else None)
  if mode == "report":
    return again.report_again(workdir)
  if plan is None:
    return again.evaluate_again(workdir)
  if plan.cells[0].values:
    raise UserError(
      f"--workdir={workdir} holds a run, no grid: leave sweep out"
    )
  return again.evaluate_again(workdir, plan.cells[0].config)


def _described(plan: sweep.Plan, workdir: str | None, as_json: bool) -> str:
  """What a config is; of a grid which runs, and the first of them in full."""
  folder = None if workdir is None else Path(workdir) / folders.DESCRIBED
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


def _sizes(mode, given, workdir, as_json) -> str:
  """What describe prints of a config that has networks in place of a run."""
  timed = "latency" in given
  if mode != "describe" or (workdir is not None and not timed):
    raise UserError(
      "--config: it counts parameters and is no run; use it with"
      " --mode=describe" + (", without --workdir" if not timed else "")
    )
  if timed:
    folder = None if workdir is None else Path(workdir) / folders.DESCRIBED
    told = feasible.describe(given, folder)
    return json.dumps(told) if as_json else feasible.text(told)
  facts = sizes.sizes(given)
  return json.dumps(facts) if as_json else sizes.text(facts)


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
  if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
    raise UserError(
      f"--seeds={','.join(seeds)} must be different whole numbers, as in"
      " --seeds=0,1,2"
    )
  return numbers
