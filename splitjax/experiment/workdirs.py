"""The folder of a run: who owns it, and what is believed of its files.

  config.json            the run that owns the folder (of one seed, or of all)
  seedN/                 the run of a seed
  methods/KEY/
    checkpoints/ROUND/   the state after a round (`storage`)
    rounds.jsonl         a line for every round (`history.log_line`)
    numbers.csv, *.npz   the results
    about.json           digests of all results; written last
  evaluate/methods/KEY/  the results of a later evaluation

A grid has grid.json and a folder for each cell, with a run or its seeds. One
process at a time works in a folder, and always for the same run. What changes
no number may change later: settings of the machine, title and labels. Methods,
and with most schedules rounds, are added later.
"""

import contextlib
import dataclasses
import errno
import io
import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import filelock
import jax.numpy as jnp
import numpy as np
import pandas as pd

from splitjax import files
from splitjax.config.config import Config, OptimizerConfig, significant
from splitjax.config.tree import flat
from splitjax.experiment import machine
from splitjax.experiment.console import say
from splitjax.experiment.network import make_optimizer
from splitjax.files import Damaged, Json
from splitjax.reports import numbers
from splitjax.types import UserError, naming

CONFIG, GRID, LOCK = "config.json", "grid.json", ".lock"
DESCRIBED, EVALUATED = "describe", "evaluate"
ABOUT, ROUNDS, NUMBERS = "about.json", "rounds.jsonl", "numbers.csv"
CHECKPOINTS = "checkpoints"

SEEDS = "one run each"
"""The `seed` in the config.json of a folder with one run per seed."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers that file systems without locks give."""

_HARMLESS = {DESCRIBED, LOCK, f"{CONFIG}.partial"}
"""What may lie in a folder that no run owns yet."""


class Unfinished(UserError):
  """Raised if there is no finished method to report or evaluate."""


# What a folder holds.


def kind_of(workdir: Path) -> Literal["grid", "seeds", "run"] | None:
  """Tells what a folder holds; None if it holds nothing of this program."""
  if files.read(workdir / GRID) is not None:
    return "grid"
  if files.read(workdir / CONFIG) is None:
    return None
  return "seeds" if read_run(workdir)["config"]["seed"] == SEEDS else "run"


def seeds_of(workdir: Path) -> list[Path]:
  """Returns the folders of single seeds' runs, begun or finished."""
  names = [name.removeprefix("seed") for name in files.names(workdir)]
  seeds = sorted(int(name) for name in names if name.isdecimal())
  runs = [workdir / f"seed{seed}" for seed in seeds]
  return [run for run in runs if kind_of(run)]


def folder(workdir: Path, key: str) -> Path:
  """Returns the folder of a run's method."""
  return Path(workdir) / "methods" / key


def read_run(workdir: Path) -> Json:
  """Reads config.json as it is: "config", and facts of the "data"."""
  return _read(Path(workdir) / CONFIG, "run")


def read_grid(workdir: Path) -> Json:
  """Reads grid.json: title, fields, seeds, and cells with name and values."""
  return _read(Path(workdir) / GRID, "grid")


def _read(path: Path, what: str) -> Json:
  """Reads a sealed file; raises Unfinished if it is not there."""
  tree = files.read_sealed(path, "restore it, or choose another folder")
  if tree is None:
    raise Unfinished(
      f"--workdir={path.parent} holds no {what} (no {path.name}): train one"
      " first"
    )
  return tree


def read_config(workdir: Path) -> tuple[Config, Json]:
  """Returns the config of a run, and the facts of its data.

  In a folder with one run per seed, its seed is 0. Raises UserError for what no
  config of today has.
  """
  run = read_run(workdir)
  settings = run["config"]
  if settings["seed"] == SEEDS:
    settings = {**settings, "seed": 0}
  try:
    return Config.from_dict(settings), run["data"]
  except UserError as error:
    raise UserError(
      f"{Path(workdir) / CONFIG}: {error}; if a name is yours, give the config"
      " file that registers it as --config=FILE, in Python as config=FILE; if"
      " another version of splitjax trained this run, read it with that one"
    ) from None


def as_json(tree: Any) -> Any:
  """Returns a tree as JSON keeps it: tuples become lists."""
  return json.loads(json.dumps(tree, allow_nan=False))


# Who owns a folder.


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
  path = folder.resolve() / LOCK
  # Without flock, an error is better than a lock that outlives its process.
  lock = filelock.FileLock(
    path, timeout=0, fallback_to_soft=False, is_singleton=True
  )
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(lock)
      path.write_text(f"process {os.getpid()} on {platform.node()}")
    except filelock.Timeout:
      holder = (files.read(path) or b"").decode(errors="replace")
      raise UserError(
        f"--workdir={folder}: {holder or 'another process'} uses it: wait, stop"
        " that process, or choose another"
      ) from None
    except OSError as error:
      if error.errno not in _NO_LOCKS:
        raise files.unusable("locked", folder, error) from error
      say(f"{folder}: {error}; make sure that no second process uses it")
    yield


@contextlib.contextmanager
def claimed(
  workdir: Path, config: Config, facts: Json, *, over_seeds: bool = False
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
  with contextlib.ExitStack() as stack:
    if machine.is_first_process():
      stack.enter_context(held(workdir))
    joined = _joined(workdir, config)
    if machine.is_first_process():
      run = as_json({"config": joined.to_dict(), "data": facts})
      if over_seeds:
        run["config"]["seed"] = SEEDS
      _claim(workdir, run)
    machine.wait_for_all("claimed")
    if not kind_of(workdir):
      raise UserError(
        f"--workdir={workdir} is not on a disk that all processes share:"
        " choose one that is"
      )
    yield joined


def _joined(workdir: Path, config: Config) -> Config:
  """Adds to a config the methods of a folder's run, if there is one.

  Raises UserError where two methods then have the same label.
  """
  if not kind_of(workdir):
    return config
  settings = config.to_dict()
  present = settings["methods"]
  earlier = read_config(workdir)[0].to_dict()["methods"]
  added = present.keys() - earlier.keys()
  order = [*present, *earlier] if added else earlier
  settings["methods"] = {key: {**earlier, **present}[key] for key in order}
  with naming(f"--workdir={workdir} has methods of earlier starts"):
    return Config.from_dict(settings)


def _claim(workdir: Path, run: Json) -> None:
  """Writes config.json, or compares it with the one that is there."""
  stored = None
  if kind_of(workdir):
    stored = read_run(workdir)
    if differs := difference(stored, run):
      why = f"belongs to another config ({differs})"
      name = run["config"]["data"]["name"]
      if stored["config"]["data"]["name"] == name and "digest is" in differs:
        why = f"was trained on other data: {name} has changed since"
      raise UserError(f"--workdir={workdir} {why}; choose a new folder")
  else:
    check_empty(workdir, "run")
  if run != stored:
    files.write_sealed(workdir / CONFIG, run)


def check_empty(workdir: Path, what: str) -> None:
  """Raises UserError where a folder has files, but no `what`."""
  if set(files.names(workdir)) - _HARMLESS:
    raise UserError(
      f"--workdir={workdir} exists and is no {what} of this program: choose"
      " another"
    )


def difference(stored: Json, current: Json) -> str | None:
  """Describes the first field in which two runs differ; None if equal.

  Both are as in config.json. Only methods that both have are compared, as each
  trains by itself. `current` may have more rounds if this does not change the
  rounds that both have.
  """
  configs = [run["config"] for run in (stored, current)]
  shared = configs[0]["methods"].keys() & configs[1]["methods"].keys()

  def fields_of(config: Json) -> Json:
    fields = dict[str, Any]()
    for path, value in significant(config).items():
      group, _, option = path.partition(".")
      counts = group != "methods" or option.partition(".")[0] in shared
      labels = path in ("title", "rounds") or option.endswith(".label")
      if counts and not labels:
        fields[path] = value
    return fields

  differs = first_difference(*map(fields_of, configs))
  differs = differs or first_difference(stored["data"], current["data"])
  if differs:
    return differs
  old, new = (config["rounds"] for config in configs)
  rounds = f"rounds is {old} there and {new} here"
  if old >= new:
    return None if old == new else rounds
  if configs[1]["faults"]["server_down"]:
    return f"{rounds}, and faults.server_down depends on it"
  chosen = OptimizerConfig(**configs[1]["optimizer"])
  rates = [
    make_optimizer(chosen, count).at(jnp.arange(old)).lr for count in (old, new)
  ]
  if jnp.array_equal(rates[0], rates[1]):
    return None
  return f"{rounds}, and optimizer.schedule={chosen.schedule} depends on it"


def first_difference(stored: Json, current: Json) -> str | None:
  """Describes the first field that differs: its path and both values."""
  there = flat(stored)
  here = flat(current)
  for field in sorted(there.keys() | here.keys()):
    values = there.get(field), here.get(field)
    if values[0] != values[1]:
      return "{} is {!r} there and {!r} here".format(field, *values)
  return None


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
    seconds: wall time of the training by activity.
    thresholds: test set -> each client's threshold by the config's rule, nats;
      None for a method with one exit.
    evaluated: groups of the config that a later evaluation changed.
    files: name -> digest of every file that decides a number.
  """

  rounds: int = 0
  methods: dict[str, str] = dataclasses.field(default_factory=dict)
  notes: list[str] = dataclasses.field(default_factory=list)
  tests: list[str] = dataclasses.field(default_factory=list)
  hardware: str = ""
  seconds: dict[str, float] = dataclasses.field(default_factory=dict)
  thresholds: dict[str, list[float]] | None = None
  evaluated: dict[str, Any] = dataclasses.field(default_factory=dict)
  files: dict[str, str] = dataclasses.field(default_factory=dict)


def write_results(
  method_dir: Path,
  about: About,
  table: pd.DataFrame,
  arrays: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
  """Writes a method's numbers and arrays; about.json makes them valid.

  `arrays` are by file name. Files of earlier arrays are deleted.
  """
  reopen(method_dir)
  contents = {NUMBERS: numbers.as_csv(table).encode()}
  for name, leaves in arrays.items():
    if leaves:
      file = io.BytesIO()
      np.savez_compressed(file, allow_pickle=False, **leaves)
      contents[name] = file.getvalue()
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


def finished(workdir: Path, into: str = "") -> dict[str, About]:
  """Reads about.json of a run's finished methods, by their keys.

  With `into` they are those of the evaluation in this folder of the workdir.
  """
  keys = read_run(workdir)["config"]["methods"]
  stored = {key: read_about(workdir / into, key) for key in keys}
  return {key: about for key, about in stored.items() if about is not None}
