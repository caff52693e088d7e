"""Whose a workdir is: one config's, and one process's at a time.

A workdir belongs to the config in its config.json. What is the machine's (where
data lie, how many devices) is no part of it, what the data are is. Methods can
join later: each has a folder of its own.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.schema import Config
from splitjax.engine import distributed
from splitjax.experiment.progress import say
from splitjax.experiment.storage import fingerprint, identity
from splitjax.experiment.storage import workdir as workdirs
from splitjax.files import write_json
from splitjax.reports import tensorboard
from splitjax.types import UserError


@contextlib.contextmanager
def owned(
  workdir: Path,
  config: Config,
  facts: dict,
  overwrite: bool,
  *,
  over_seeds: bool = False,
) -> Iterator[Config]:
  """Makes a workdir this run's own, and no other process's meanwhile.

  Args:
    workdir: made if it is not there.
    config: the run.
    facts: of the data and of what the network starts from, `Task.facts`.
    overwrite: delete what another config left there.
    over_seeds: it is to hold one run per seed, in folders of its own.

  Yields:
    The config with the methods that earlier starts brought to the workdir, as
    config.json has it now, while no other process can claim it.

  Raises:
    UserError: it belongs to another config, or to nobody and is not empty, or
      another process is at work in it.
  """
  seed: Any = workdirs.SEEDS if over_seeds else config.seed
  mine: dict[str, Any] = {"config": config.to_dict(), "data": {**facts}}
  mine["config"]["seed"] = seed
  with distributed.all_agree():
    clear = _foreign(workdir, config, mine, overwrite)
    whole = config if clear else _joined(workdir, config)
  with contextlib.ExitStack() as held:
    with distributed.all_agree():
      if distributed.is_first_process():
        held.enter_context(locked_workdir(workdir))
        # Again: what was there may have changed until the lock was held.
        if _foreign(workdir, config, mine, overwrite):
          _clear_whole(workdir)
        whole = _joined(workdir, config)
        if list(whole.methods) != _methods(workdir):
          mine["config"] = {**whole.to_dict(), "seed": seed}
          write_json(workdir / workdirs.CONFIG, fingerprint.sealed(mine))
    with distributed.all_agree():
      if not (workdir / workdirs.CONFIG).exists():
        raise UserError(
          f"--workdir={workdir} is not on a disk that all processes see: choose"
          " one that is"
        )
    yield whole


def _methods(workdir: Path) -> list[str]:
  """The keys of a workdir's methods; of one that is nobody's none."""
  if not (workdir / workdirs.CONFIG).exists():
    return []
  return list(workdirs.read_saved(workdir)["config"]["methods"])


def _joined(workdir: Path, config: Config) -> Config:
  """A config with the methods of its workdir.

  Raises:
    UserError: they have labels that do not go together.
  """
  if not (workdir / workdirs.CONFIG).exists():
    return config
  try:
    return identity.joined(config, workdirs.read_saved(workdir)["config"])
  except UserError as error:
    raise UserError(
      f"--workdir={workdir} has methods of earlier starts: {error}"
    ) from None


@contextlib.contextmanager
def locked_workdir(workdir: Path) -> Iterator[None]:
  """Holds a workdir against other processes; it is made if need be.

  Raises:
    UserError: another process does.
  """
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(files.locked(workdir / workdirs.LOCK, wait=False))
    except files.Locked as error:
      raise UserError(
        f"--workdir={workdir}: {error} is at work in it: wait, stop that one,"
        " or choose another"
      ) from None
    except OSError as error:
      if error.errno not in files.NO_LOCKS:
        raise
      say(f"{workdir}: {error}; see to it that no second process works in it")
    yield


def _foreign(
  workdir: Path, config: Config, mine: dict[str, Any], overwrite: bool
) -> bool:
  """Whether a workdir has to be cleared first.

  Raises:
    UserError: as `claimed`.
  """
  if workdir.exists() and not workdir.is_dir():
    raise UserError(f"--workdir={workdir} is a file: choose a folder")
  theirs = (
    workdirs.whose(workdir) if (workdir / workdirs.CONFIG).exists() else None
  )
  if theirs is not None:
    mine["data"] |= identity.unread(config, mine["data"], theirs["data"])
    theirs["data"] = {
      **{k: v for k, v in mine["data"].items() if k in identity.ADDED},
      **theirs["data"],
    }
    differs = identity.difference(theirs, mine)
    if differs is None:
      return False
    if not overwrite:
      raise UserError(
        f"--workdir={workdir} belongs to another config ({differs}): choose"
        " another, or --overwrite it"
      )
    return True
  harmless = {workdirs.DESCRIBED, workdirs.LOCK, f"{workdirs.CONFIG}.partial"}
  if workdir.exists() and {p.name for p in workdir.iterdir()} - harmless:
    raise UserError(
      f"--workdir={workdir} exists and is no run of this program: choose"
      " another"
    )
  return False


def _clear_whole(workdir: Path) -> None:
  """As `_clear`, once nobody is at work in any seed of it."""
  with contextlib.ExitStack() as seeds:
    for each in workdirs.seeds_of(workdir):  # all of them before any is gone
      seeds.enter_context(locked_workdir(each))
    _clear(workdir)


def _clear(workdir: Path) -> None:
  """Deletes what a run leaves, and nothing else."""
  for name in (
    "methods",
    "evaluate",
    tensorboard.FOLDER,
    workdirs.EXPORTED,
    workdirs.DESCRIBED,
  ):
    shutil.rmtree(workdir / name, ignore_errors=True)
  for pattern in (
    "report.*",
    "*.png",
    "inside_*.npz",
    "metrics.jsonl",
    workdirs.CONFIG,
  ):
    for path in workdir.glob(pattern):
      path.unlink()
  for seed in workdirs.seeds_of(workdir):
    _clear(seed)
    if not {path.name for path in seed.iterdir()} - {workdirs.LOCK}:
      shutil.rmtree(seed)
