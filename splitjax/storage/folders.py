"""A run's folder: whose it is, what lies where in it.

A workdir belongs to the config in its config.json. What is the machine's (where
data lie, how many devices) is no part of it, what the data are is. Methods can
join later: each has a folder of its own.
"""

import contextlib
import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splitjax import hosts, tensorboard
from splitjax.config import Config
from splitjax.methods import METHODS
from splitjax.progress import say
from splitjax.storage import fingerprint, identity, lock
from splitjax.storage.files import write_json
from splitjax.types import UserError

CONFIG, ABOUT = "config.json", "about.json"

SEEDS = "one run each"
"""Stands for the seed in the config of a workdir of several."""

DESCRIBED = "describe"
"""Folder of a workdir with the pictures of `--mode=describe`."""

CHECKPOINTS = "checkpoints"
"""Folder of a method with what is kept while it trains."""

EMBEDDINGS = "embeddings.npz"
"""File of a method with what the server makes of the clients' images."""

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks answer."""

LOCK = ".lock"
"""File of a workdir that a run holds, there only meanwhile."""

EXPORTED = "export"
"""Folder of a workdir with the clients that were taken home."""


class Unfinished(UserError):
  """Nothing is there that could be looked at again, so far."""


def folder(workdir: Path, key: str) -> Path:
  """Where a method of a run lies."""
  return Path(workdir) / "methods" / key


@contextlib.contextmanager
def claimed(
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
    facts: of the data and of what the network starts from, `World.facts`.
    overwrite: delete what another config left there.
    over_seeds: it is to hold one run per seed, in folders of its own.

  Yields:
    The config with the methods that earlier starts brought to the workdir, as
    config.json has it now, while no other process can claim it.

  Raises:
    UserError: it belongs to another config, or to nobody and is not empty, or
      another process is at work in it.
  """
  seed: Any = SEEDS if over_seeds else config.seed
  mine: dict[str, Any] = {"config": config.to_dict(), "data": {**facts}}
  mine["config"]["seed"] = seed
  with hosts.together():
    clear = _foreign(workdir, config, mine, overwrite)
    whole = config if clear else _joined(workdir, config)
  with contextlib.ExitStack() as held:
    with hosts.together():
      if hosts.first():
        held.enter_context(_locked(workdir))
        # Again: what was there may have changed until the lock was held.
        if _foreign(workdir, config, mine, overwrite):
          with contextlib.ExitStack() as seeds:
            for each in seeds_of(workdir):  # all of them before any is gone
              seeds.enter_context(_locked(each))
            _clear(workdir)
        whole = _joined(workdir, config)
        if list(whole.methods) != _methods(workdir):
          mine["config"] = {**whole.to_dict(), "seed": seed}
          write_json(workdir / CONFIG, fingerprint.sealed(mine))
    with hosts.together():
      if not (workdir / CONFIG).exists():
        raise UserError(
          f"--workdir={workdir} is not on a disk that all processes see: choose"
          " one that is"
        )
    yield whole


def _methods(workdir: Path) -> list[str]:
  """The keys of a workdir's methods; of one that is nobody's none."""
  if not (workdir / CONFIG).exists():
    return []
  return list(read_saved(workdir)["config"]["methods"])


def _joined(workdir: Path, config: Config) -> Config:
  """A config with the methods of its workdir.

  Raises:
    UserError: they have labels that do not go together.
  """
  if not (workdir / CONFIG).exists():
    return config
  try:
    return identity.joined(config, read_saved(workdir)["config"])
  except UserError as error:
    raise UserError(
      f"--workdir={workdir} has methods of earlier starts: {error}"
    ) from None


@contextlib.contextmanager
def _locked(workdir: Path) -> Iterator[None]:
  """Holds the workdir, made if need be.

  Raises:
    UserError: another process does.
  """
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(lock.alone(workdir / LOCK, wait=False))
    except lock.Held as error:
      raise UserError(
        f"--workdir={workdir}: {error} is at work in it: wait, stop that one,"
        " or choose another"
      ) from None
    except OSError as error:
      if error.errno not in NO_LOCKS:
        raise
      say(f"{workdir}: {error}; see to it that no second process works in it")
    yield


def _foreign(
  workdir: Path, config: Config, mine: dict[str, Any], overwrite: bool
) -> bool:
  """Whether a workdir has to be cleared first.

  Raises:
    UserError: as `claim`.
  """
  if workdir.exists() and not workdir.is_dir():
    raise UserError(f"--workdir={workdir} is a file: choose a folder")
  theirs = _config(workdir) if (workdir / CONFIG).exists() else None
  if theirs is not None:
    mine["data"] |= identity.unread(config, mine["data"], theirs["data"])
    theirs["data"] = {
      **{k: v for k, v in mine["data"].items() if k in identity.ADDED},
      **theirs["data"],
    }
    there = identity.difference(theirs, mine)
    if there is None:
      return False
    if not overwrite:
      raise UserError(
        f"--workdir={workdir} belongs to another config ({there}): choose"
        " another, or --overwrite it"
      )
    return True
  harmless = {DESCRIBED, LOCK, f"{CONFIG}.partial"}
  if workdir.exists() and {p.name for p in workdir.iterdir()} - harmless:
    raise UserError(
      f"--workdir={workdir} exists and is no run of this program: choose"
      " another"
    )
  return False


def is_over_seeds(workdir: Path) -> bool:
  """Whether a workdir holds one run per seed."""
  path = Path(workdir) / CONFIG
  if not path.exists():
    return False
  saved = _config(Path(workdir))
  return saved is not None and saved["config"].get("seed") == SEEDS


def _clear(workdir: Path) -> None:
  """Deletes what a run leaves, and nothing else."""
  for name in (
    "methods",
    "evaluate",
    tensorboard.FOLDER,
    EXPORTED,
    DESCRIBED,
  ):
    shutil.rmtree(workdir / name, ignore_errors=True)
  for pattern in ("report.*", "*.png", "metrics.jsonl", CONFIG):
    for path in workdir.glob(pattern):
      path.unlink()
  for seed in seeds_of(workdir):
    _clear(seed)
    if not {path.name for path in seed.iterdir()} - {LOCK}:
      shutil.rmtree(seed)


def seeds_of(workdir: Path) -> list[Path]:
  """The runs of single seeds in a workdir, begun or finished."""
  found = (path.parent for path in workdir.glob(f"seed*/{CONFIG}"))
  return sorted(p for p in found if p.name.removeprefix("seed").isdecimal())


def read_json(path: Path) -> Any:
  """JSON that this program wrote.

  Raises:
    UserError: it is damaged.
  """
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise UserError(
      f"{path} is damaged ({error}): restore it, or choose another workdir"
    ) from None


def _config(workdir: Path) -> dict[str, Any] | None:
  """What config.json holds, config and data; None if it is not this program's.

  One that an older program wrote has no seal.

  Raises:
    UserError: it is damaged.
  """
  path = workdir / CONFIG
  tree = read_json(path)
  if not (isinstance(tree, dict) and {"config", "data"} <= tree.keys()):
    return None
  try:
    if "seal" in tree:
      tree = fingerprint.opened(tree)
    if not all(isinstance(tree[part], dict) for part in ("config", "data")):
      raise fingerprint.Damaged("it holds no config")
  except fingerprint.Damaged as damage:
    raise UserError(
      f"{path} is damaged ({damage}): restore it, or choose another workdir"
    ) from None
  return tree


def read_saved(workdir: Path) -> dict[str, Any]:
  """What config.json holds, of a run or of several seeds: config and data.

  Raises:
    Unfinished: there is none.
    UserError: it is damaged, or has a method that is not known here.
  """
  path = Path(workdir) / CONFIG
  if not path.exists():
    raise Unfinished(
      f"--workdir={workdir} holds no run (no {CONFIG}): train one first"
    )
  saved = _config(Path(workdir))
  if saved is None:
    raise UserError(f"{path} is not this program's: is the path right?")
  if strangers := _strangers(saved["config"].get("methods")):
    raise UserError(
      f"{path}: method {strangers[0]!r} is not known: give"
      " the config file that registers it as --config=FILE"
    )
  return saved


def read_config(workdir: Path) -> tuple[Config, dict]:
  """The config of a workdir, and the facts of its data.

  Raises:
    Unfinished: there is none.
    UserError: as `read_saved`, or there are several runs.
  """
  saved = read_saved(workdir)
  if saved["config"].get("seed") == SEEDS:
    raise UserError(
      f"--workdir={workdir} holds one run per seed: name a seed's folder in it"
    )
  return Config.from_dict(saved["config"]), saved["data"]


def _strangers(methods: Any) -> list[str]:
  """Names of methods, as config.json has them, that are in no registry."""
  specs = methods.values() if isinstance(methods, dict) else ()
  names = [spec.get("name") for spec in specs if isinstance(spec, dict)]
  return [n for n in names if isinstance(n, str) and n not in METHODS]


def read_about(workdir: Path, key: str) -> dict | None:
  """What is known of a finished method; None if it is not finished.

  Raises:
    UserError: it is damaged.
  """
  path = folder(workdir, key) / ABOUT
  if not path.exists():
    return None
  try:
    return fingerprint.opened(read_json(path))
  except fingerprint.Damaged as damage:
    raise UserError(
      f"{path} is damaged ({damage}): restore it, or delete {path.parent} to"
      " train the method again"
    ) from None
