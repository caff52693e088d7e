"""A run's folder: whose it is, what lies where in it.

A workdir belongs to the config in its config.json. What is the machine's (where
data lie, how many devices) is no part of it, what the data are is.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from splitjax import hosts
from splitjax.backbones import pretrained
from splitjax.config import Config
from splitjax.data import own
from splitjax.files import write_json
from splitjax.types import UserError

CONFIG, ABOUT = "config.json", "about.json"

SEEDS = "one run each"
"""Stands for the seed in the config of a workdir of several."""

DESCRIBED = "describe"
"""Folder of a workdir with the pictures of `--mode=describe`."""

EXPORTED = "export"
"""Folder of a workdir with the clients that were taken home."""


def folder(workdir: Path, key: str) -> Path:
  """Where a method of a run lies."""
  return Path(workdir) / "methods" / key


def claim(
  workdir: Path,
  config: Config,
  facts: dict,
  overwrite: bool,
  *,
  over_seeds: bool = False,
) -> None:
  """Makes a workdir this run's own.

  Args:
    workdir: made if it is not there.
    config: the run.
    facts: of the data and of what the network starts from, `World.facts`.
    overwrite: delete what another config left there.
    over_seeds: it is to hold one run per seed, in folders of its own.

  Raises:
    UserError: it belongs to another config, or to nobody and is not empty.
  """
  mine: dict[str, Any] = {"config": config.to_dict(), "data": {**facts}}
  if over_seeds:
    mine["config"]["seed"] = SEEDS
  with hosts.together():
    clear = _foreign(workdir, config, mine, overwrite)
  # As the first process sees it: the others' view may be older.
  (clear,) = hosts.of_first([clear])
  with hosts.together():
    if hosts.first():
      if clear:
        _clear(workdir)
      workdir.mkdir(parents=True, exist_ok=True)
      if clear or not (workdir / CONFIG).exists():
        write_json(workdir / CONFIG, mine)
  with hosts.together():
    if not (workdir / CONFIG).exists():
      raise UserError(
        f"--workdir={workdir} is not on a disk that all processes see: choose"
        " one that is"
      )


def _foreign(
  workdir: Path, config: Config, mine: dict[str, Any], overwrite: bool
) -> bool:
  """Whether a workdir has to be cleared first.

  Raises:
    UserError: as `claim`.
  """
  if workdir.exists() and not workdir.is_dir():
    raise UserError(f"--workdir={workdir} is a file: choose a folder")
  theirs = _read(workdir / CONFIG) if (workdir / CONFIG).exists() else None
  if theirs is not None and theirs.keys() == mine.keys():
    mine["data"] |= _unread(config, mine["data"], theirs["data"])
    a, b = ({**t, "config": _identity(t["config"])} for t in (theirs, mine))
    if a == b:
      return False
    if not overwrite:
      raise UserError(
        f"--workdir={workdir} belongs to another config"
        f" ({_difference(a, b)}): choose another, or --overwrite it"
      )
    return True
  if workdir.exists() and {p.name for p in workdir.iterdir()} - {DESCRIBED}:
    raise UserError(
      f"--workdir={workdir} exists and is no run of this program: choose"
      " another"
    )
  return False


def _unread(config: Config, facts: dict, theirs: dict) -> dict:
  """The digest of a checkpoint that was not read, all being trained.

  A file that is gone counts as the one that there was: nothing starts from it.
  """
  path = config.backbone.options.get("pretrained")
  if path is None or "pretrained" in facts:
    return {}
  if Path(path).exists():
    return {"pretrained": pretrained.digest(path)}
  return {k: v for k, v in theirs.items() if k == "pretrained"}


def is_over_seeds(workdir: Path) -> bool:
  """Whether a workdir holds one run per seed."""
  path = Path(workdir) / CONFIG
  if not path.exists():
    return False
  return _read(path).get("config", {}).get("seed") == SEEDS


def alike(one: Config, two: Config) -> bool:
  """Whether two configs are the same run, wherever their files lie."""
  return _identity(one.to_dict()) == _identity(two.to_dict())


def _identity(config: dict) -> dict:
  """A config's dict without what is the machine's: where files lie, devices.

  What the data are, and a checkpoint, is told by their digests. Fields that an
  older program did not know have their defaults.
  """
  seed = config.get("seed")
  try:
    config = Config.from_dict({**config, "seed": 0}).to_dict()
  except UserError:
    pass  # of another program: it will differ, and the difference is named
  data = {**config.get("data", {}), "dir": None, "device_budget_gb": None}
  if str(data.get("name")).startswith(own.PREFIX):
    data["name"] = own.PREFIX
  backbone = dict(config.get("backbone", {}))
  if backbone.get("pretrained") is not None:
    backbone["pretrained"] = "PATH"
  system = {**config.get("system", {}), "devices": None}
  if not system.get("deterministic"):
    system["clients_per_chunk"] = "auto"
  return {
    **config,
    "seed": seed,
    "data": data,
    "backbone": backbone,
    "system": system,
  }


def _clear(workdir: Path) -> None:
  """Deletes what a run leaves, and nothing else."""
  for name in ("methods", "evaluate", EXPORTED, DESCRIBED):
    shutil.rmtree(workdir / name, ignore_errors=True)
  for pattern in ("report.*", "*.png", "metrics.jsonl", CONFIG):
    for path in workdir.glob(pattern):
      path.unlink()
  for folder in workdir.glob("seed*"):
    if (folder / CONFIG).exists():
      _clear(folder)
      if not any(folder.iterdir()):
        folder.rmdir()


def _read(path: Path) -> dict:
  """A JSON object that this program wrote.

  Raises:
    UserError: it is damaged.
  """
  try:
    tree = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise UserError(
      f"{path} is damaged ({error}): restore it, or choose another workdir"
    ) from None
  return tree if isinstance(tree, dict) else {}


def _difference(theirs: Any, mine: Any, where: str = "") -> str:
  """Names the first field in which two trees differ."""
  if isinstance(theirs, dict) and isinstance(mine, dict):
    for name in sorted(theirs.keys() | mine.keys()):
      a, b = theirs.get(name), mine.get(name)
      if a != b:
        inner = (
          where
          if not where and name in ("config", "data")
          else (f"{where}.{name}" if where else name)
        )
        return _difference(a, b, inner)
  return f"{where} is {theirs!r} there and {mine!r} here"


def read_config(workdir: Path) -> tuple[Config, dict]:
  """The config of a workdir, and the facts of its data.

  Raises:
    UserError: there is none.
  """
  path = Path(workdir) / CONFIG
  if not path.exists():
    raise UserError(
      f"--workdir={workdir} holds no run (no {CONFIG}): train one first"
    )
  saved = _read(path)
  return Config.from_dict(saved["config"]), saved["data"]


def read_about(workdir: Path, key: str) -> dict | None:
  """What is known of a finished method; None if it is not finished."""
  path = folder(workdir, key) / ABOUT
  return _read(path) if path.exists() else None
