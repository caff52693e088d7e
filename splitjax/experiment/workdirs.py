"""Names of the files in a run's folder, and what is believed of them.

  config.json            the run that owns the folder (of one seed, or of all)
  seedN/                 the run of a seed
  methods/KEY/
    checkpoints/ROUND/   the state after a round (`storage`)
    rounds.jsonl         a line for every round (`history.log_line`)
    numbers.csv, *.npz   the results
    about.json           digests of all results; written last
  evaluate/methods/KEY/  the results of a later evaluation

A grid has grid.json and a folder for each cell, with a run or its seeds.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.config import Config
from splitjax.files import Damaged, Json
from splitjax.types import UserError

CONFIG, GRID, LOCK = "config.json", "grid.json", ".lock"
DESCRIBED, EVALUATED = "describe", "evaluate"
ABOUT, ROUNDS, NUMBERS = "about.json", "rounds.jsonl", "numbers.csv"
CHECKPOINTS = "checkpoints"

SEEDS = "one run each"
"""The `seed` in the config.json of a folder with one run per seed."""


class Unfinished(UserError):
  """Raised if there is no finished method to report or evaluate."""


def folder(workdir: Path, key: str) -> Path:
  """Returns the folder of a run's method."""
  return Path(workdir) / "methods" / key


def is_grid(workdir: Path) -> bool:
  """Checks if a folder holds a grid."""
  return files.read(workdir / GRID) is not None


def is_run(workdir: Path) -> bool:
  """Checks if a folder holds a run, or one run per seed."""
  return files.read(workdir / CONFIG) is not None


def is_over_seeds(workdir: Path) -> bool:
  """Checks if a folder holds one run per seed."""
  return is_run(workdir) and read_run(workdir)["config"]["seed"] == SEEDS


def seeds_of(workdir: Path) -> list[Path]:
  """Returns the folders of single seeds' runs, begun or finished."""
  names = [name.removeprefix("seed") for name in files.names(workdir)]
  numbers = sorted(int(name) for name in names if name.isdecimal())
  runs = [workdir / f"seed{number}" for number in numbers]
  return [run for run in runs if is_run(run)]


# What a run is.


def _read(path: Path, entries: str) -> Json | None:
  """Reads a sealed file with some entries; None if it is not there."""
  tree = files.read_sealed(path, "restore it, or choose another folder")
  if tree is not None and not set(entries.split()) <= tree.keys():
    raise UserError(f"{path} is of no run of this program: choose another")
  return tree


def read_run(workdir: Path) -> Json:
  """Reads config.json: the config, and facts of the data.

  Raises Unfinished if there is none, and UserError if it is damaged.
  """
  run = _read(Path(workdir) / CONFIG, "config data")
  if run is None:
    text = f"holds no run (no {CONFIG}): train one first"
    raise Unfinished(f"--workdir={workdir} {text}")
  return run


def read_known(workdir: Path) -> Json:
  """Reads config.json; raises UserError for what no config of today has."""
  run = read_run(workdir)
  try:
    Config.from_dict({**run["config"], "seed": 0})
  except UserError as error:
    raise UserError(
      f"{Path(workdir) / CONFIG}: {error}; if a name is yours, give the config"
      " file that registers it as --config=FILE, in Python as config=FILE; if"
      " another version of splitjax trained this run, read it with that one"
    ) from None
  return run


def read_config(workdir: Path) -> tuple[Config, Json]:
  """Returns the config of a single run, and the facts of its data."""
  run = read_known(workdir)
  if run["config"]["seed"] == SEEDS:
    text = "holds one run per seed: name a seed's folder in it"
    raise UserError(f"--workdir={workdir} {text}")
  return Config.from_dict(run["config"]), run["data"]


def read_grid(workdir: Path) -> Json:
  """Reads grid.json: title, fields, seeds, and cells with name and values."""
  grid = _read(workdir / GRID, "title fields seeds cells")
  if grid is None:
    raise Unfinished(f"--workdir={workdir} holds no grid: train one first")
  for cell in grid["cells"]:
    if Path(cell["name"]).name != cell["name"]:
      text = f"the cell {cell['name']!r} is no name of a folder"
      raise UserError(f"{workdir / GRID}: {text}")
  return grid


# Finished methods.


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
  """What about.json says of a finished method; JSON.

  Attributes:
    rounds: the rounds that it was trained for.
    methods: row in numbers.csv -> the method's name in METHODS.
    notes: sentences on the training for a reader of the report.
    tests: sentences on the test sets.
    hardware: the machine that it was trained on.
    thresholds: test set -> each client's threshold by the config's rule, nats;
      None for a method with one exit.
    evaluated: groups of the config that a later evaluation changed.
    files: name -> digest of every file that decides a number.
  """

  rounds: int = 0
  methods: dict[str, str]
  notes: list[str] = dataclasses.field(default_factory=list)
  tests: list[str]
  hardware: str = ""
  thresholds: dict[str, list[float]] | None = None
  evaluated: dict[str, Any] = dataclasses.field(default_factory=dict)
  files: dict[str, str] = dataclasses.field(default_factory=dict)


def write_results(
  method_dir: Path, about: About, contents: Mapping[str, bytes]
) -> None:
  """Writes a method's results to its folder; about.json makes them valid.

  Files of earlier results that have no content now are deleted.
  """
  reopen(method_dir)
  for name in files.names(method_dir):
    if name.endswith(".npz") and name not in contents:
      (method_dir / name).unlink()
  for name, content in contents.items():
    files.write(method_dir / name, content)
  digests = {name: files.digest(content) for name, content in contents.items()}
  log = files.read(method_dir / ROUNDS)
  if log is not None:
    digests[ROUNDS] = files.digest(log)
  about = dataclasses.replace(about, files=digests)
  files.write_sealed(method_dir / ABOUT, dataclasses.asdict(about))


def reopen(method_dir: Path) -> None:
  """Makes a method's results invalid, before it is trained or scored again."""
  with files.explained("written", method_dir):
    (method_dir / ABOUT).unlink(missing_ok=True)


def read_about(workdir: Path, key: str) -> About | None:
  """Reads about.json of a run's method; None if it is not finished.

  Raises Damaged if a file that decides a number is not what was written.
  """
  method_dir = folder(workdir, key)
  remedy = "train again, which makes it anew"
  body = files.read_sealed(method_dir / ABOUT, remedy)
  if body is None:
    return None
  about = About(**body)
  for name, written in about.files.items():
    if files.digest(files.read(method_dir / name) or b"") != written:
      raise Damaged(f"{method_dir / name} is not what was written: {remedy}")
  return about


def finished(workdir: Path, into: str = "") -> list[str]:
  """Returns the keys of a run's finished methods.

  With `into` they are those that have numbers in this folder of the workdir.
  """
  keys = read_run(workdir)["config"]["methods"]
  return [k for k in keys if read_about(workdir / into, k) is not None]


def comparable(
  runs: Sequence[Path], into: str = ""
) -> tuple[list[Path], list[str]]:
  """Chooses runs of several seeds, and methods that all of them have finished.

  All of them have equally many rounds. Of the choices with this property, the
  one with the most networks (runs x methods) is taken, then that with the most
  runs, then the most rounds: a method, or rounds, that are being added wait
  until enough seeds have them. Both are [] if no method is finished.
  """
  by_rounds: dict[int, dict[Path, list[str]]] = {}
  for run in runs:
    for key in finished(run, into):
      about = read_about(run / into, key)
      assert about is not None
      by_rounds.setdefault(about.rounds, {}).setdefault(run, []).append(key)
  chosen: tuple[list[Path], list[str]] = [], []
  largest = 0, 0, 0
  for rounds, by_run in by_rounds.items():
    for keys in by_run.values():
      having = [run for run in by_run if set(keys) <= set(by_run[run])]
      size = len(keys) * len(having), len(having), rounds
      if size > largest:
        chosen = (having, keys)
        largest = size
  return chosen


def unfinished(
  workdir: Path, methods: Iterable[str], seeds: Iterable[int] | None
) -> list[str]:
  """Names the unfinished parts of a run, or of one run per seed.

  The run was started for `methods`, and for `seeds` unless this is None. A seed
  without any finished method gives the text "seed 1", another one a text for
  each unfinished method, such as "seed 1 harmony"; a single run gives the same
  texts without the seed.
  """
  numbers = {int(run.name.removeprefix("seed")) for run in seeds_of(workdir)}
  numbers |= set(seeds or ())
  runs = {f"seed {n}": workdir / f"seed{n}" for n in sorted(numbers)}
  out = []
  for name, run in (runs or {"": workdir}).items():
    keys = list(dict.fromkeys([*methods, *files.names(folder(run, ""))]))
    lacking = [k for k in keys if files.read(folder(run, k) / ABOUT) is None]
    if len(lacking) == len(keys):
      out.append(name)
    else:
      out += [f"{name} {key}".strip() for key in lacking]
  return out


def as_json(tree: Any) -> Any:
  """Returns a tree as JSON keeps it: tuples become lists."""
  return json.loads(json.dumps(tree, allow_nan=False))
