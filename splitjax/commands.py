"""The modes of the command line: what each runs, and how each ends.

The packages for training and figures are imported inside the functions that use
them, so that an error in a config is reported at once.
"""

import json
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from splitjax.config.sweep import Sweep
from splitjax.experiment.console import CTRL_C, Stopped, listening
from splitjax.files import expanded, printable, reason
from splitjax.types import UserError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


class Command(NamedTuple):
  """A parsed command line; `cli` describes its flags."""

  mode: str  #: key of MODES
  plan: Sweep = Sweep([], None)  #: the checked runs of train and describe
  workdir: Path | None = None
  seeds: tuple[int, ...] | None = None  #: of --seeds
  changes: Mapping[str, Any] = {}  #: field -> value, of evaluate
  evaluation: str = "evaluate"  #: name of an evaluation's folder
  file: str | None = None  #: the config file, if it is a user's
  runs: Sequence[str | Path] = ()  #: finished workdirs that report compares
  figures: Any = "report"  #: which reports have figures: none, report or all
  as_json: bool = False  #: whether describe prints JSON
  debug: bool = False  #: whether errors show their whole traceback


def launch(command: Command) -> int:
  """Runs a command and prints its result.

  Returns:
    The exit status: 0, also if SIGTERM ended the training early; 2 after an
    error, which is printed in one line; 130 after Ctrl-C. With `debug` an error
    is raised instead.
  """
  from splitjax.experiment import machine

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
  """Prints an error as one line; returns the exit status.

  The line has the message of a UserError or an OSError, such as a full disk. If
  the device's memory is full, it names a remedy. For any other error it has the
  type, the message and the place in the code.
  """
  if isinstance(error, UserError | OSError):
    text = printable(error)
  elif "RESOURCE_EXHAUSTED" in str(error):
    reason = str(error).partition("\n")[0]
    remedy = "--config.system.clients_per_chunk or --config.eval.batch_size"
    text = f"the device's memory is full ({reason}): lower {remedy}"
  else:
    text = blame(error)
  print(f"error: {text}", file=sys.stderr)
  return 2


_LIBRARIES = (
  str(Path(__file__).parent),
  *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
  "<frozen",
)
"""Prefixes of the file names of code that is not the user's."""


def blame(error: BaseException) -> str:
  """Formats an error in one line, with a file name and a line number.

  File and line are taken from the last frame of user code in the traceback, or
  from its last frame if it has none of user code.
  """
  frames = traceback.extract_tb(error.__traceback__)
  users = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
  frame = (users or frames)[-1]
  line = f"{Path(frame.filename).name}, line {frame.lineno}"
  return f"{reason(error)} ({line}); --debug shows the whole traceback"


def _stopped(stopped: Stopped) -> int:
  """Prints how to continue the run; returns the exit status."""
  from splitjax.experiment import machine

  if machine.is_first_process():
    command = shlex.join(["python", *sys.argv])
    print(
      f"stopped by {stopped.asked} ({stopped}); the same command continues from"
      f" there: {command}",
      flush=True,
    )
  return INTERRUPTED if stopped.asked == CTRL_C else 0


def _train(command: Command) -> str:
  """Trains all unfinished runs and writes their reports."""
  workdir = command.workdir or Path()
  seeds = command.seeds or command.plan.seeds
  cell = command.plan.cells[0]
  from splitjax.experiment import reporting, runs, workdirs
  from splitjax.experiment.console import say

  say(f"devices: {reporting.devices()}")
  with listening() as stop:
    options: Any = {"stop": stop, "figures": command.figures}
    if cell.values:
      cells = command.plan.cells
      results = runs.run_grid(cells, workdir, seeds, **options)
    elif workdirs.kind_of(workdir) == "grid":
      text = "holds a grid: sweep the same fields, or choose another"
      raise UserError(f"--workdir={workdir} {text}")
    elif seeds is None:
      results = runs.run(cell.config, workdir, **options)
    else:
      results = runs.run_seeds(cell.config, workdir, seeds, **options)
  return _show(command, workdir, results)


def _report(command: Command) -> str:
  """Rewrites the reports of a workdir from saved results, or compares runs."""
  from splitjax.experiment import reporting

  folders = [expanded(run) for run in command.runs]
  if len(folders) > 1 or folders and command.workdir is not None:
    into = command.workdir
    return reporting.report_folders(folders, into, command.figures)
  workdir = folders[0] if folders else command.workdir or Path()
  again = reporting.report_again(workdir, figures=command.figures)
  return _show(command, workdir, again)


def _evaluate(command: Command) -> str:
  """Evaluates the networks of a workdir again."""
  from splitjax.experiment import evaluate_again

  workdir = command.workdir or Path()
  results = evaluate_again(
    workdir,
    command.changes,
    name=command.evaluation,
    figures=command.figures,
  )
  return _show(command, workdir, results, command.evaluation)


def _show(command: Command, workdir: Path, results: Any, into: str = "") -> str:
  """Formats results for the terminal.

  Returns "" if there are none: only the first process of a run has results.
  """
  from splitjax.experiment import reporting

  if not results.runs:
    return ""
  return reporting.summary(results, workdir, into, command.file)


def _describe(command: Command) -> str:
  """Describes a config; for a grid, lists all cells and describes the first."""
  from splitjax.experiment import describe, workdirs

  cells = command.plan.cells
  seeds = command.plan.seeds
  folder = command.workdir and command.workdir / workdirs.DESCRIBED
  facts = describe.describe_run(cells[0].config, folder)
  facts["runs"] = len(cells) * len(seeds or (0,))
  if cells[0].name:
    names = [cell.name for cell in cells]
    facts = {"cells": names, "seeds": seeds, "first": facts}
  return json.dumps(facts) if command.as_json else describe.describe_text(facts)


MODES = {
  "train": _train,
  "evaluate": _evaluate,
  "report": _report,
  "describe": _describe,
}
"""Mode -> the function that runs it and returns the text to print."""
