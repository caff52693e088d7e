"""Ownership of a workdir: one config, and one process at a time.

A workdir belongs to the config in its config.json. Settings of the machine
(paths of data, number of devices) may change later, but the digests of the
data may not. Methods can join later, as each has its own folder.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splitjax import files, machine
from splitjax.config.config import Config
from splitjax.experiment.console.progress import say
from splitjax.experiment.storage import identity, workdirs
from splitjax.types import UserError, naming


@contextlib.contextmanager
def owned(
  workdir: Path,
  config: Config,
  facts: dict,
  *,
  over_seeds: bool = False,
) -> Iterator[Config]:
  """Claims a workdir for a run, and locks it against other processes.

  `facts` describe the task's data. With `over_seeds` the workdir holds one
  folder per seed, each with a run.

  Yields:
    The config, with the methods of earlier starts in the workdir added.

  Raises:
    UserError: the workdir belongs to another config, has files but no run, or
      is used by another process.
  """
  mine: dict[str, Any] = {"config": config.to_dict(), "data": facts}
  if over_seeds:
    mine["config"]["seed"] = workdirs.SEEDS
  with contextlib.ExitStack() as held:
    if machine.is_first_process():
      _check_folder(workdir)
      held.enter_context(locked_workdir(workdir))
      _claim(workdir, config, mine)
    machine.wait_for_all("claimed")
    if not (workdir / workdirs.CONFIG).exists():
      raise UserError(
        f"--workdir={workdir} is not on a disk that all processes share:"
        " choose one that is"
      )
    yield _joined(workdir, config)


def _check_folder(workdir: Path) -> None:
  """Raises UserError where a workdir has files but no run of this program."""
  if workdir.exists() and not workdir.is_dir():
    raise UserError(f"--workdir={workdir} is a file: choose a folder")
  harmless = {workdirs.DESCRIBED, workdirs.LOCK, f"{workdirs.CONFIG}.partial"}
  names = {path.name for path in workdir.glob("*")}
  if workdirs.CONFIG not in names and names - harmless:
    raise UserError(
      f"--workdir={workdir} exists and is no run of this program: choose"
      " another"
    )


@contextlib.contextmanager
def locked_workdir(workdir: Path) -> Iterator[None]:
  """Makes a workdir if needed and locks it; UserError if it is in use."""
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(files.locked(workdir / workdirs.LOCK, wait=False))
    except files.Locked as error:
      raise UserError(
        f"--workdir={workdir}: {error} uses it: wait, stop that process, or"
        " choose another"
      ) from None
    except OSError as error:
      if error.errno not in files.NO_LOCKS:
        raise
      say(f"{workdir}: {error}; make sure that no second process uses it")
    yield


def _claim(workdir: Path, config: Config, mine: dict[str, Any]) -> None:
  """Writes config.json if it is missing or lacks methods or rounds.

  Raises UserError if the workdir belongs to another config.
  """
  path, known = workdir / workdirs.CONFIG, dict[str, Any]()
  if path.exists():
    saved = workdirs.read_own(workdir)
    difference = identity.difference(saved, mine)
    if difference is not None:
      why = f"belongs to another config ({difference})"
      name = config.data.name
      same = saved["config"]["data"]["name"] == name
      if same and difference.startswith("digest is"):
        why = f"was trained on other data: {name} has changed since"
      raise UserError(f"--workdir={workdir} {why}; choose a new folder")
    known = saved["config"]
  whole = _joined(workdir, config).to_dict()
  same = list(whole["methods"]) == list(known.get("methods", ()))
  if not same or whole["rounds"] != known["rounds"]:
    mine["config"] = {**whole, "seed": mine["config"]["seed"]}
    files.write_json(path, mine)


def _joined(workdir: Path, config: Config) -> Config:
  """Adds the methods of a workdir's run, if there is one, to a config."""
  if not (workdir / workdirs.CONFIG).exists():
    return config
  with naming(f"--workdir={workdir} has methods of earlier starts"):
    return identity.joined(config, workdirs.read_saved(workdir)["config"])
