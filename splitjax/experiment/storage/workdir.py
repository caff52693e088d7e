"""A run's folder: what lies where in it, and read from it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splitjax.config.schema import Config
from splitjax.experiment.storage import fingerprint
from splitjax.methods import METHODS
from splitjax.types import UserError


def finished(workdir: Path) -> list[str]:
  """The keys of a run's finished methods."""
  keys = read_saved(workdir)["config"]["methods"]
  return [k for k in keys if read_about(workdir, k) is not None]


def comparable(runs: Sequence[Path]) -> tuple[list[Path], list[str]]:
  """Runs of several seeds, and methods that all of these have finished.

  Of all such choices the one with the most networks, then with the most runs: a
  method that is being added waits until enough seeds have it, as a seed does
  for its methods.

  Args:
    runs: one per seed.

  Returns:
    Runs and keys; no keys where nothing is finished.
  """
  done = {run: finished(run) for run in runs}

  def having(keys: Iterable[str]) -> list[Path]:
    return [run for run in runs if set(keys) <= set(done[run])]

  def worth(keys: list[str]) -> tuple[int, int]:
    runs = len(having(keys)) if keys else 0
    return len(keys) * runs, runs

  keys = max(done.values(), key=worth, default=[])
  return having(keys), keys


def unfinished(
  workdir: Path, methods: Iterable[str], seeds: Iterable[int] | None
) -> list[str]:
  """What is left of a run, or of one run per seed; what was begun counts too.

  Args:
    workdir: of the run.
    methods: keys that it was started for.
    seeds: likewise; None for a single run.

  Returns:
    "seed 1" where nothing of that is finished, else "seed 1 harmony" for each
    method; of a single run "" or "harmony".
  """
  numbers = {int(run.name.removeprefix("seed")) for run in seeds_of(workdir)}
  numbers |= set(seeds or ())
  runs = {f"seed {n}": workdir / f"seed{n}" for n in sorted(numbers)}
  found = []
  for name, run in (runs or {"": workdir}).items():
    begun = sorted(path.name for path in folder(run, "").glob("*"))
    every = list(dict.fromkeys([*methods, *begun]))
    left = [k for k in every if not _about(run, k).exists()]
    whole = len(left) == len(every)
    found += [name] if whole else [f"{name} {key}".strip() for key in left]
  return found


def _about(run: Path, key: str) -> Path:
  return folder(run, key) / ABOUT


CONFIG, ABOUT = "config.json", "about.json"

SEEDS = "one run each"
"""Stands for the seed in the config of a workdir of several."""

DESCRIBED = "describe"
"""Folder of a workdir with the pictures of `--mode=describe`."""

CHECKPOINTS = "checkpoints"
"""Folder of a method with what is kept while it trains."""

EMBEDDINGS = "embeddings.npz"
"""File of a method with what the server makes of the clients' images."""

LOCK = ".lock"
"""File of a workdir that a run holds, there only meanwhile."""

EXPORTED = "export"
"""Folder of a workdir with the clients that were taken home."""


class Unfinished(UserError):
  """Nothing is there that could be looked at again, so far."""


def folder(workdir: Path, key: str) -> Path:
  """Where a method of a run lies."""
  return Path(workdir) / "methods" / key


def is_over_seeds(workdir: Path) -> bool:
  """Whether a workdir holds one run per seed."""
  path = Path(workdir) / CONFIG
  if not path.exists():
    return False
  saved = whose(Path(workdir))
  return saved is not None and saved["config"].get("seed") == SEEDS


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


def whose(workdir: Path) -> dict[str, Any] | None:
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
  saved = whose(Path(workdir))
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
