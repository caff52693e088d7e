"""Runs a parsed command line: exit statuses, and errors in one line."""

import shlex
import sys

from splitjax import commands
from splitjax.commands import Command
from splitjax.engine import distributed, prepare
from splitjax.experiment.console.signals import CTRL_C, Stopped
from splitjax.files import blame
from splitjax.types import UserError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def join(
  address: str | None,
  processes: int | None,
  number: int | None,
  detect: bool,
  cpu_devices: int | None,
  cache: str,
) -> int:
  """Connects the processes of a run (see `distributed.initialize`).

  Returns the exit status, 2 after an error. `cpu_devices` and `cache` are the
  arguments of `prepare.set_up`.
  """
  try:
    prepare.keep_compiled(cache)
    # Processes that share a machine must say how many CPU devices each takes.
    if cpu_devices is not None or not (processes or detect):
      distributed.use_cores(cpu_devices)
    distributed.initialize(address, processes, number, detect=detect)
    distributed.check_platform()
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0


def launch(command: Command) -> int:
  """Runs a command and prints its result.

  Returns:
    The exit status: 0, also if SIGTERM ended the training early; 2 after an
    error, printed in one line (with `debug` it is raised); 130 after Ctrl-C.
  """
  try:
    if command.mode != "train" and distributed.is_distributed():
      raise UserError(
        f"--mode={command.mode} runs in one process: start it without the flags"
        " of several"
      )
    text = commands.text(command)
    if distributed.is_first_process():
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


def _one_line(error: Exception) -> str:
  """Formats an error as one line, with its place unless it is a UserError."""
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
  """Prints how to continue; returns the exit status."""
  if distributed.is_first_process():
    command = shlex.join(["python", *sys.argv])
    print(
      f"stopped by {stopped.asked} ({stopped}); the same command continues from"
      f" there: {command}",
      flush=True,
    )
  return INTERRUPTED if stopped.asked == CTRL_C else 0
