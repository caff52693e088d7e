"""The modes of the command line: what each runs, and how each ends.

The packages for training and figures are imported inside the functions that use
them, so that an error in a config is reported at once.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from splitjax.config.sweep import Cell, Sweep
from splitjax.experiment.console import CTRL_C, Stopped, listening
from splitjax.files import blame, expanded, printable
from splitjax.types import UserError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


class Command(NamedTuple):
  """A parsed command line; `cli` describes its flags.

  Attributes:
    mode: key of MODES.
    plan: the checked runs of the config; None: the config that the workdir
      keeps, which report always uses.
    workdir: output folder of a run. If it is given, describe writes figures
      there.
    seeds: seeds of --seeds.
    swept: whether the command line names values of fields.
    file: path of the config file if it is a user's.
    runs: finished workdirs that report compares.
    figures: which reports get figures: none, report or all.
    as_json: whether describe prints JSON.
    debug: if true, errors show their whole traceback.
  """

  mode: str
  plan: Sweep | None = None
  workdir: Path | None = None
  seeds: tuple[int, ...] | None = None
  swept: bool = False
  file: str | None = None
  runs: Sequence[str | Path] = ()
  figures: Any = "report"
  as_json: bool = False
  debug: bool = False


def launch(command: Command) -> int:
  """Runs a command and prints its result.

  Returns:
    The exit status: 0, also if SIGTERM ended the training early; 2 after an
    error, which is printed in one line; 130 after Ctrl-C. With `debug` an error
    is raised instead.
  """
  from splitjax import machine

  try:
    if command.mode != "train" and machine.is_distributed():
      text = "runs in one process: start it without the flags of several"
      raise UserError(f"--mode={command.mode} {text}")
    text = MODES[command.mode](command)
    if machine.is_first_process():
      print(text)
  except Stopped as stopped:
    return _stopped(stopped)
  except KeyboardInterrupt:
    message = "interrupted"
    if command.mode == "train":
      message += ": the same command continues from the newest checkpoint"
    print(message, file=sys.stderr)
    return INTERRUPTED
  except Exception as error:
    if command.debug:
      raise
    return fail(error)
  return 0


def fail(error: Exception) -> int:
  """Prints an error as one line; returns the exit status."""
  print(f"error: {one_line(error)}", file=sys.stderr)
  return 2


def one_line(error: Exception) -> str:
  """Formats an error as one line.

  For a UserError or an OSError the line has only the message. If the device's
  memory is full, the line names a remedy. For any other error it has the type,
  the message and the place in the code.
  """
  if isinstance(error, UserError | OSError):  # such as a full disk
    return printable(error)
  if "RESOURCE_EXHAUSTED" in str(error):
    reason = str(error).partition("\n")[0]
    remedy = "--config.system.clients_per_chunk or --config.eval.batch_size"
    return f"the device's memory is full ({reason}): lower {remedy}"
  return blame(error)


def _stopped(stopped: Stopped) -> int:
  """Prints how to continue the run; returns the exit status."""
  from splitjax import machine

  if machine.is_first_process():
    command = shlex.join(["python", *sys.argv])
    print(
      f"stopped by {stopped.asked} ({stopped}); the same command continues from"
      f" there: {command}",
      flush=True,
    )
  return INTERRUPTED if stopped.asked == CTRL_C else 0


def _workdir(command: Command) -> Path:
  if command.workdir is None:
    raise UserError(f"--workdir: --mode={command.mode} needs --workdir=FOLDER")
  return command.workdir


def _plan(command: Command) -> Sweep:
  """Returns the runs of the config."""
  if command.plan is None:
    raise UserError(f"--config: --mode={command.mode} needs --config=FILE")
  return command.plan


def _train(command: Command) -> str:
  """Trains all unfinished runs and writes their reports."""
  workdir, plan = _workdir(command), _plan(command)
  numbers, first = command.seeds or plan.seeds, plan.cells[0]
  from splitjax.experiment import reporting, runs, workdirs
  from splitjax.experiment.console import say

  say(f"devices: {reporting.devices()}")
  with listening() as stop:
    options: Any = {"stop": stop, "figures": command.figures}
    if first.values:
      results = runs.run_grid(plan.cells, workdir, numbers, **options)
    elif workdirs.is_grid(workdir):
      text = "holds a grid: sweep the same fields, or choose another"
      raise UserError(f"--workdir={workdir} {text}")
    elif numbers is None:
      results = runs.run(first.config, workdir, **options)
    else:
      results = runs.run_seeds(first.config, workdir, numbers, **options)
  return _show(command, results)


def _report(command: Command) -> str:
  """Rewrites the reports of a workdir from saved results, or compares runs."""
  runs = [expanded(run) for run in command.runs]
  if len(runs) == 1 and command.workdir is None:
    command, runs = command._replace(workdir=runs[0]), []
  from splitjax.experiment import reporting

  if runs:
    return reporting.report_folders(runs, command.workdir, command.figures)
  again = reporting.report_again(_workdir(command), figures=command.figures)
  return _show(command, again)


def _evaluate(command: Command) -> str:
  workdir = _workdir(command)
  cells: Sequence[Cell] = () if command.plan is None else command.plan.cells
  from splitjax.experiment import evaluate, workdirs

  figures = command.figures
  if workdirs.is_grid(workdir):
    only = [cell.name for cell in cells] if command.swept else None
    results = evaluate.evaluate_grid(workdir, cells or None, only, figures)
  elif cells and cells[0].values:
    text = "holds a single run, not a grid: remove the sweep"
    raise UserError(f"--workdir={workdir} {text}")
  else:
    config = cells[0].config if cells else None
    results = evaluate.evaluate_again(workdir, config, figures=figures)
  return _show(command, results, workdirs.EVALUATED)


def _show(command: Command, results: Any, into: str = "") -> str:
  """Formats results for the terminal.

  Returns "" if there are none: only the first process of a run has results.
  """
  from splitjax.experiment import reporting

  where = _workdir(command), into, command.file
  return reporting.summary(results, *where) if results.runs else ""


def _describe(command: Command) -> str:
  """Describes a config; for a grid, lists all cells and describes the first."""
  plan = _plan(command)
  from splitjax.experiment import describe, workdirs

  folder = None
  if command.workdir is not None:
    folder = command.workdir / workdirs.DESCRIBED
  facts = describe.describe_run(plan.cells[0].config, folder)
  facts["runs"] = len(plan.cells) * len(plan.seeds or (0,))
  names = [cell.name for cell in plan.cells]
  if names != [""]:
    facts = {"cells": names, "seeds": plan.seeds, "first": facts}
  return json.dumps(facts) if command.as_json else describe.describe_text(facts)


MODES = {
  "train": _train,
  "evaluate": _evaluate,
  "report": _report,
  "describe": _describe,
}
"""Mode -> the function that runs it and returns the text to print."""
