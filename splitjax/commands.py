"""Runs a parsed command line; prints its errors and returns an exit status.

The packages for training and figures are imported inside the functions that use
them, so that an error in a flag or a config is reported at once.
"""

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax import machine
from splitjax.config import sweep, validation
from splitjax.experiment.console.signals import CTRL_C, Stopped, listening
from splitjax.fields import literal
from splitjax.files import blame, expanded
from splitjax.types import UserError, naming

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


@dataclasses.dataclass(frozen=True)
class Command:
  """The parsed command line; launch.py describes its flags.

  Attributes:
    config: the config as a nested dict; None: the config stored in the workdir.
      --mode=report always uses the stored config.
    workdir: output folder of a run. If it is given, --mode=describe writes
      figures there.
    swept: one text FIELD=VALUE,VALUE per swept field, see `sweep.plan`.
    overridden: field -> the value that the command line sets.
    file: path of the config file if it is a user's, else None.
    runs: finished workdirs that --mode=report compares.
    figures: which reports get figures: none, report or all.
    debug: if true, errors show their whole traceback.
  """

  mode: str
  config: Mapping[str, Any] | None = None
  workdir: str | None = None
  seeds: Sequence[str] | None = None
  as_json: bool = False
  swept: Sequence[str] = ()
  overridden: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  file: str | None = None
  runs: Sequence[str] = ()
  figures: Any = "report"
  debug: bool = False


def launch(command: Command) -> int:
  """Runs a command and prints its result.

  Returns:
    The exit status: 0, also if SIGTERM ended the training early; 2 after an
    error, which is printed in one line; 130 after Ctrl-C. With `debug` an error
    is raised instead.
  """
  try:
    check_flags(command)
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
    print(f"error: {_one_line(error)}", file=sys.stderr)
    return 2
  return 0


def check_flags(command: Command) -> None:
  """Raises UserError if flags contradict each other or the mode."""
  if command.mode != "train" and machine.is_distributed():
    raise UserError(
      f"--mode={command.mode} runs in one process: start it without the flags"
      " of several"
    )
  if command.runs and command.mode != "report":
    word = command.runs[0]
    remedy = f": the flag is --mode={word}" if word in MODES else ""
    raise UserError(f"unknown argument {word!r}{remedy}")
  swept = [text.partition("=")[0] for text in command.swept]
  for flag, given, used in (
    ("--seeds", command.seeds is not None, ("train",)),
    ("--format=json", command.as_json, ("describe",)),
    ("--sweep=seed", "seed" in swept, ("train", "describe")),
    ("--sweep", bool(command.swept), ("train", "describe", "evaluate")),
    *(
      (f"--config.{field}", True, ("train", "describe", "evaluate"))
      for field in command.overridden
    ),
  ):
    if given and command.mode not in used:
      raise UserError(
        f"{flag} has no meaning with --mode={command.mode}: leave it out"
      )
  if command.seeds is not None and "seed" in (*command.overridden, *swept):
    raise UserError(
      f"--seeds={','.join(command.seeds)}: the command line sets the seed"
      " another time; leave one of them out"
    )


def _one_line(error: Exception) -> str:
  """Formats an error as one line.

  For a UserError or an OSError the line has only the message. If the device's
  memory is full, the line names a remedy. For any other error it has the type,
  the message and the place in the code.
  """
  if isinstance(error, UserError | OSError):  # such as a full disk
    return str(error)
  if "RESOURCE_EXHAUSTED" in str(error):
    reason = str(error).partition("\n")[0]
    return (
      f"the device's memory is full ({reason}): lower"
      " --config.system.clients_per_chunk or --config.eval.batch_size"
    )
  return blame(error)


def _stopped(stopped: Stopped) -> int:
  """Prints how to continue the run; returns the exit status."""
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
    raise UserError(f"--mode={command.mode} needs --workdir=FOLDER")
  return expanded(command.workdir)


def _plan(command: Command) -> sweep.Sweep:
  if command.config is None:
    raise UserError(
      f"--mode={command.mode} needs --config=FILE, or a name such as"
      " quickstart, fmnist_small or harmony_figure2:small"
    )
  return sweep.plan(command.config, command.swept, command.overridden)


def _check_first(plan: sweep.Sweep) -> None:
  """Makes the checks that need no data, before the training libraries load."""
  from splitjax.experiment.setup import checks

  for cell in plan.cells:
    with naming(cell.name):
      checks.check_first(cell.config)


def _train(command: Command) -> str:
  """Trains all unfinished runs and writes their reports."""
  plan, workdir = _plan(command), _workdir(command)
  numbers, first = plan.seeds, plan.cells[0]
  if command.seeds is not None:
    numbers = [literal(seed) for seed in command.seeds]
    validation.check_seeds(numbers, "--seeds")
  _check_first(plan)
  from splitjax.experiment import grid, reporting, runner
  from splitjax.experiment.console.progress import say
  from splitjax.experiment.storage import workdirs

  say(f"devices: {reporting.devices()}")
  with listening() as stop:
    options: Any = {"stop": stop, "figures": command.figures}
    if first.values:
      results = grid.run_grid(plan.cells, workdir, numbers, **options)
    elif workdirs.is_grid(workdir):
      raise UserError(
        f"--workdir={workdir} holds a grid: sweep the same fields, or choose"
        " another"
      )
    elif numbers is None:
      results = runner.run(first.config, workdir, **options)
    else:
      results = runner.run_seeds(first.config, workdir, numbers, **options)
  return _show(command, results)


def _report(command: Command) -> str:
  """Rewrites the reports of a workdir from saved results, or compares runs."""
  if len(command.runs) == 1 and command.workdir is None:
    command = dataclasses.replace(command, workdir=command.runs[0], runs=())
  from splitjax.experiment import reporting

  if command.runs:
    into = None if command.workdir is None else _workdir(command)
    return reporting.report_folders(command.runs, into, command.figures)
  results = reporting.report_again(_workdir(command), figures=command.figures)
  return _show(command, results)


def _evaluate(command: Command) -> str:
  if command.swept and command.config is None:
    raise UserError("--sweep needs --config=FILE, whose fields it varies")
  cells = None if command.config is None else _plan(command).cells
  workdir = _workdir(command)
  from splitjax.experiment import grid, reevaluate
  from splitjax.experiment.storage import workdirs

  figures = command.figures
  if workdirs.is_grid(workdir):
    only = [cell.name for cell in cells or ()] if command.swept else None
    results = grid.evaluate_again(workdir, cells, only, figures)
  elif cells and cells[0].values:
    raise UserError(
      f"--workdir={workdir} holds a single run, not a grid: remove the sweep"
    )
  else:
    config = cells[0].config if cells else None
    results = reevaluate.evaluate_again(workdir, config, figures=figures)
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
  _check_first(plan)
  from splitjax.experiment.describe import describe, description
  from splitjax.experiment.storage import workdirs

  folder = None
  if command.workdir is not None:
    folder = _workdir(command) / workdirs.DESCRIBED
  facts = describe.describe_run(plan.cells[0].config, folder)
  facts["runs"] = len(plan.cells) * len(plan.seeds or (0,))
  names = [cell.name for cell in plan.cells]
  if names == [""]:
    return (
      json.dumps(facts) if command.as_json else description.describe_text(facts)
    )
  if command.as_json:
    return json.dumps({"cells": names, "seeds": plan.seeds, "first": facts})
  return description.text_of_grid(names, plan.seeds or (), facts)


MODES = {
  "train": _train,
  "evaluate": _evaluate,
  "report": _report,
  "describe": _describe,
}
"""Mode -> the function that runs it and returns the text to print."""
