"""Who works in a folder: one process at a time, and always the same run.

config.json claims a folder. What changes no number may change later: settings
of the machine, title and labels. Methods, and with most schedules rounds, are
added later; digests say whether the data are still the same.
"""

import contextlib
import errno
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import jax.numpy as jnp

from splitjax import files
from splitjax.config.config import Config, OptimizerConfig, significant
from splitjax.experiment import machine, workdirs
from splitjax.experiment.console import say
from splitjax.experiment.network import make_optimizer
from splitjax.files import Json
from splitjax.types import UserError, naming

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers that file systems without locks give."""


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
  """Holds a folder, which is made if needed, for this process.

  Training, evaluating and reporting hold a folder while they write to it; one
  that this process holds already may be held again.

  Raises:
    UserError: another process holds the folder, or something in it is a link.
  """
  with files.explained("made", folder):
    folder.mkdir(parents=True, exist_ok=True)
  files.refuse_links(folder)
  path = folder.resolve() / workdirs.LOCK
  # Without flock, an error is better than a lock that outlives its process.
  lock = filelock.FileLock(
    path, timeout=0, fallback_to_soft=False, is_singleton=True
  )
  with contextlib.ExitStack() as stack:
    try:
      lock.acquire()
      stack.callback(lock.release)
      path.write_text(f"process {os.getpid()} on {platform.node()}")
    except filelock.Timeout:
      holder = (files.read(path) or b"").decode(errors="replace")
      raise UserError(
        f"--workdir={folder}: {holder or 'another process'} uses it: wait, stop"
        " that process, or choose another"
      ) from None
    except OSError as error:
      if error.errno not in NO_LOCKS:
        raise files.unusable("locked", folder, error) from error
      say(f"{folder}: {error}; make sure that no second process uses it")
    yield


@contextlib.contextmanager
def claimed(
  workdir: Path,
  config: Config,
  facts: Json,
  *,
  over_seeds: bool = False,
) -> Iterator[Config]:
  """Holds a folder for a run, and claims it.

  Args:
    workdir: the folder.
    config: the run's config.
    facts: facts of the data, with their digests.
    over_seeds: whether the folder holds one folder per seed, each with a run.

  Yields:
    The config, with the methods of earlier starts in the folder added.

  Raises:
    UserError: another process holds the folder, another run owns it (the line
      names the first field that differs), or it has files but no run.
  """
  run = workdirs.as_json({"config": config.to_dict(), "data": facts})
  if over_seeds:
    run["config"]["seed"] = workdirs.SEEDS
  with contextlib.ExitStack() as stack:
    if machine.is_first_process():
      stack.enter_context(held(workdir))
      _claim(workdir, config, run)
    machine.wait_for_all("claimed")
    if not workdirs.is_run(workdir):
      raise UserError(
        f"--workdir={workdir} is not on a disk that all processes share:"
        " choose one that is"
      )
    yield _joined(workdir, config)


HARMLESS = (workdirs.DESCRIBED, workdirs.LOCK, f"{workdirs.CONFIG}.partial")
"""What may lie in a folder that no run owns yet."""


def check_empty(workdir: Path, what: str) -> None:
  """Raises UserError where a folder has files, but no `what`."""
  if set(files.names(workdir)) - {*HARMLESS}:
    raise UserError(
      f"--workdir={workdir} exists and is no {what} of this program: choose"
      " another"
    )


def _claim(workdir: Path, config: Config, run: Json) -> None:
  """Writes config.json, or compares it with the one that is there."""
  stored = None
  if workdirs.is_run(workdir):
    stored = workdirs.read_run(workdir)
    if differs := difference(stored, run):
      why = f"belongs to another config ({differs})"
      name = config.data.name
      if stored["config"]["data"]["name"] == name and "digest is" in differs:
        why = f"was trained on other data: {name} has changed since"
      raise UserError(f"--workdir={workdir} {why}; choose a new folder")
  else:
    check_empty(workdir, "run")
  seed = run["config"]["seed"]
  joined = _joined(workdir, config).to_dict() | {"seed": seed}
  run = workdirs.as_json({**run, "config": joined})
  if run != stored:
    files.write_sealed(workdir / workdirs.CONFIG, run)


def _joined(workdir: Path, config: Config) -> Config:
  """Adds to a config the methods of a folder's run, if there is one.

  Raises UserError where two methods then have the same label.
  """
  if not workdirs.is_run(workdir):
    return config
  present = config.to_dict()
  earlier = workdirs.read_known(workdir)["config"]["methods"]
  added = present["methods"].keys() - earlier.keys()
  order = [*present["methods"], *earlier] if added else earlier
  methods = {key: {**earlier, **present["methods"]}[key] for key in order}
  with naming(f"--workdir={workdir} has methods of earlier starts"):
    return Config.from_dict({**present, "methods": methods})


def difference(stored: Json, current: Json) -> str | None:
  """Describes the first field in which two runs differ; None if equal.

  Both are as in config.json. Only methods that both have are compared, as each
  trains by itself. `current` may have more rounds if this does not change the
  rounds that both have.
  """
  shared = (
    stored["config"]["methods"].keys() & current["config"]["methods"].keys()
  )
  runs = []
  for run in (stored, current):
    counts = significant(run["config"])
    counts["methods"] = {
      key: {k: v for k, v in counts["methods"][key].items() if k != "label"}
      for key in shared
    }
    fields = {k: v for k, v in counts.items() if k not in ("title", "rounds")}
    runs.append({"config": fields, "data": run["data"]})
  if differs := first_difference(runs[0], runs[1]):
    return differs
  old, new = (run["config"]["rounds"] for run in (stored, current))
  if old == new:
    return None
  rounds = f"rounds is {old} there and {new} here"
  if new < old:
    return rounds
  if current["config"]["faults"]["server_down"]:
    return f"{rounds}, and faults.server_down depends on it"
  chosen = OptimizerConfig(**current["config"]["optimizer"])
  rates: list[Any] = [
    make_optimizer(chosen, count).at(jnp.arange(old)).lr for count in (old, new)
  ]
  if jnp.array_equal(rates[0], rates[1]):
    return None
  return f"{rounds}, and optimizer.schedule={chosen.schedule} depends on it"


def unlike(stored: Config, current: Config) -> str | None:
  """Describes how two configs of equally many rounds differ; None if equal."""
  if stored.rounds != current.rounds:
    return f"rounds is {stored.rounds} there and {current.rounds} here"
  runs = [
    workdirs.as_json({"config": config.to_dict(), "data": {}})
    for config in (stored, current)
  ]
  return difference(*runs)


def first_difference(stored: Any, current: Any, path: str = "") -> str | None:
  """Describes the first field that differs: its path and both values."""
  if stored == current:
    return None
  if not (isinstance(stored, dict) and isinstance(current, dict)):
    return f"{path} is {stored!r} there and {current!r} here"
  names = sorted(stored.keys() | current.keys())
  name = next(n for n in names if stored.get(n) != current.get(n))
  top = not path and name in ("config", "data")
  inner = path if top else f"{path}.{name}".removeprefix(".")
  return first_difference(stored.get(name), current.get(name), inner)
