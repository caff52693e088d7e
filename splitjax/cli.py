"""What launch.py does, without flags: exit statuses, errors in one line."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax import commands
from splitjax.engine import distributed
from splitjax.experiment.signals import CTRL_C, Stopped
from splitjax.registry import flat, unknown
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
  distributed.keep_compiled(path)


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
      distributed.use_cores(cpu_devices)
    distributed.initialize(address, processes, number, detect=detect)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0


def no_field(path: str, given: Mapping[str, Any]) -> str:
  """The message for a field that a config has not, with those it has.

  Args:
    path: of the field, with points.
    given: the config as a nested dict.
  """
  known = flat(dict(given))
  group = path.rpartition(".")[0]
  beside = [each for each in known if each.rpartition(".")[0] == group]
  return unknown("--config", path, beside if group and beside else known)


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
  overridden: Mapping[str, Any] = {},
) -> int:
  """Runs a mode and prints its result.

  Args:
    mode: train, evaluate, report, describe or export.
    given: the config as a nested dict; None where the workdir's own will do.
      Reporting and exporting go by the workdir's.
    workdir: the run's folder; describe leaves pictures in it, if given.
    seeds: train once for each.
    overwrite: delete what another config left in the workdir.
    as_json: describe prints one JSON object.
    client: number of the client to export.
    method: key of the method to export; None: every finished one.
    swept: FIELD=VALUE,VALUE each, see `sweep`.
    overridden: field -> the value that the command line has given it.

  Returns:
    The exit status: 0, also where SIGTERM ended a training early; 2 after a
    one-line error, 130 after Ctrl-C.
  """
  try:
    _check_flags(mode, seeds, overwrite, as_json, client, method, swept)
    if mode != "train" and distributed.is_distributed():
      raise UserError(
        f"--mode={mode} is done by one process: start it without the flags of"
        " several"
      )
    if mode == "export":
      said = commands.exported(workdir, client, method)
    else:
      said = commands.text(
        mode,
        None if mode == "report" else given,
        workdir,
        seeds=seeds,
        overwrite=overwrite,
        as_json=as_json,
        swept=swept,
        overridden=overridden,
      )
    if distributed.is_first_process():
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
  if distributed.is_first_process():
    command = shlex.join(["python", *sys.argv])
    print(
      f"stopped by {stopped.asked} ({stopped}); the same command goes on from"
      f" there: {command}",
      flush=True,
    )
  return INTERRUPTED if stopped.asked == CTRL_C else 0


def _check_flags(
  mode, seeds, overwrite, as_json, client, method, swept
) -> None:
  """Raises UserError where a flag was given that its mode has no use for."""
  for flag, used, meant in (
    ("--seeds", seeds is not None, ("train",)),
    ("--overwrite", overwrite, ("train",)),
    ("--format=json", as_json, ("describe",)),
    ("--sweep", bool(swept), ("train", "describe", "evaluate")),
    ("--client", client is not None, ("export",)),
    ("--method", method is not None, ("export",)),
  ):
    if used and mode not in meant:
      raise UserError(f"{flag} has no meaning with --mode={mode}: leave it out")
