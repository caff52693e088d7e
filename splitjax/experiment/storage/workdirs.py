"""Names of the files in a run's folder, and readers of the JSON files."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splitjax.config import tree
from splitjax.config.config import Config
from splitjax.options import registry_of
from splitjax.types import UserError

# Files and folders of a workdir. LOCK exists while a process uses the workdir.
CONFIG, METRICS, LOCK = "config.json", "metrics.jsonl", ".lock"
DESCRIBED, EVALUATED = "describe", "evaluate"
GRID = "grid.json"

# Files and folders of a method in its workdir.
ABOUT, ROUNDS, CHECKPOINTS = "about.json", "rounds.jsonl", "checkpoints"

SEEDS = "one run each"
"""The `seed` in the config.json of a workdir of several seeds."""


class Unfinished(UserError):
  """Raised if there is no finished method to report or evaluate."""


def folder(workdir: Path, key: str) -> Path:
  """Returns the folder of a run's method."""
  return Path(workdir) / "methods" / key


def is_grid(workdir: Path) -> bool:
  """Checks if a workdir holds a grid."""
  return (Path(workdir) / GRID).exists()


def seeds_of(workdir: Path) -> list[Path]:
  """Returns folders of single seeds' runs in a workdir, begun or finished."""
  runs = (path.parent for path in workdir.glob(f"seed*/{CONFIG}"))
  known = (p for p in runs if p.name.removeprefix("seed").isdecimal())
  return sorted(known, key=lambda path: int(path.name.removeprefix("seed")))


def is_over_seeds(workdir: Path) -> bool:
  """Checks if a workdir holds one run per seed."""
  if not (Path(workdir) / CONFIG).exists():
    return False
  return read_own(workdir)["config"]["seed"] == SEEDS


def finished(workdir: Path, into: str = "") -> list[str]:
  """Returns the keys of a run's finished methods.

  With `into` they are those that have numbers in this folder of the workdir.
  """
  keys = read_own(workdir)["config"]["methods"]
  return [k for k in keys if read_about(workdir / into, k) is not None]


def trained(workdir: Path, config: Config) -> dict[str, bool]:
  """Tells for each method of a config if it has done config.rounds rounds."""
  none = {"rounds": 0}
  about = {key: read_about(workdir, key) or none for key in config.methods}
  return {k: each["rounds"] >= config.rounds for k, each in about.items()}


def comparable(
  runs: Sequence[Path], into: str = ""
) -> tuple[list[Path], list[str]]:
  """Chooses runs of several seeds, and methods that all of them have finished.

  All chosen methods have equally many rounds in all chosen runs. Of the choices
  with this property, the one with the most networks (runs x methods) is taken.
  A tie is decided by the most runs, then by the most rounds. A method that is
  being added is thus left out until enough seeds have finished it. The same
  holds for rounds that are being added. `into` is as in `finished`. Returns
  runs and keys of methods, both [] if no method is finished.
  """
  rounds = {
    (run, key): (read_about(run / into, key) or {}).get("rounds", 0)
    for run in runs
    for key in finished(run, into)
  }
  choices: list[tuple[int, int, int, list, list]] = [(0, 0, 0, [], [])]
  for count in set(rounds.values()):
    done = {
      run: [k for r, k in rounds if r == run and rounds[r, k] == count]
      for run in runs
    }
    for keys in filter(None, done.values()):
      having = [run for run in runs if set(keys) <= set(done[run])]
      size = len(keys) * len(having), len(having), count
      choices.append((*size, having, keys))
  *_, having, keys = max(choices, key=lambda each: each[:3])
  return having, keys


def unfinished(
  workdir: Path, methods: Iterable[str], seeds: Iterable[int] | None
) -> list[str]:
  """Names the unfinished parts of a run, or of one run per seed.

  The run was started for `methods`, and for `seeds` unless this is None.

  Returns:
    A seed without any finished method gives the text "seed 1". Another seed
    gives a text for each unfinished method, such as "seed 1 harmony". A single
    run gives the same texts without the seed: "" or "harmony".
  """
  numbers = {int(run.name.removeprefix("seed")) for run in seeds_of(workdir)}
  numbers |= set(seeds or ())
  runs = {f"seed {n}": workdir / f"seed{n}" for n in sorted(numbers)}
  out = []
  for name, run in (runs or {"": workdir}).items():
    begun = sorted(path.name for path in folder(run, "").glob("*"))
    keys = list(dict.fromkeys([*methods, *begun]))
    left = [k for k in keys if not (folder(run, k) / ABOUT).exists()]
    nothing = len(left) == len(keys)
    out += [name] if nothing else [f"{name} {key}".strip() for key in left]
  return out


def read_json(path: Path) -> Any:
  """Reads JSON that this program wrote; raises UserError if damaged."""
  try:
    return json.loads(path.read_bytes())
  except ValueError as error:
    raise UserError(
      f"{path} is damaged ({error}): restore it, or choose another workdir"
    ) from None


def read_own(workdir: Path) -> dict[str, Any]:
  """Reads config.json of a run or of several seeds: the config and data facts.

  Raises Unfinished if there is none, and UserError if it is damaged.
  """
  path = Path(workdir) / CONFIG
  if not path.exists():
    raise Unfinished(
      f"--workdir={workdir} holds no run (no {CONFIG}): train one first"
    )
  found = read_json(path)
  known = isinstance(found, dict) and found.keys() == {"config", "data"}
  if not (known and isinstance(found["config"], dict)):
    raise UserError(f"{path} is of no run of this program: choose another")
  return found


def read_saved(workdir: Path) -> dict[str, Any]:
  """Reads config.json; raises UserError for a name that is not registered."""
  path = Path(workdir) / CONFIG
  saved = read_own(workdir)
  for field, registry, name in tree.named_in(saved["config"]):
    if name is not None and name not in registry_of(registry):
      raise UserError(
        f"{path}: {field}={name!r} is not known: give the config file that"
        " registers it as --config=FILE, in Python as config=FILE"
      )
  return saved


def read_config(workdir: Path) -> tuple[Config, dict]:
  """Returns the config of a single run, and the facts of its data."""
  saved = read_saved(workdir)
  if saved["config"]["seed"] == SEEDS:
    raise UserError(
      f"--workdir={workdir} holds one run per seed: name a seed's folder in it"
    )
  return Config.from_dict(saved["config"]), saved["data"]


def read_about(workdir: Path, key: str) -> dict | None:
  """Reads the record of a finished method; None if it is not finished."""
  path = folder(workdir, key) / ABOUT
  if not path.exists():
    return None
  return read_json(path)
