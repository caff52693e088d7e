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
import errno
import functools
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import filelock
import jax.numpy as jnp
import numpy as np
import pandas as pd

from splitjax import files
from splitjax.config.config import (
  Config,
  OptimizerConfig,
  flat,
  significant,
  within,
)
from splitjax.experiment import machine
from splitjax.experiment.console import say
from splitjax.experiment.network import make_optimizer
from splitjax.fields import naming
from splitjax.files import Damaged, Json
from splitjax.methods import METHODS
from splitjax.reports import numbers
from splitjax.types import UserError

CONFIG = "config.json"
GRID = "grid.json"
LOCK = ".lock"
DESCRIBED = "describe"
CHECKPOINTS = "checkpoints"
ROUNDS = "rounds.jsonl"
_ABOUT = "about.json"

SEEDS = "one run each"
"""The `seed` in the config.json of a folder with one run per seed."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers that file systems without locks give."""

_HARMLESS = {DESCRIBED, LOCK, f"{CONFIG}.partial"}
"""What may lie in a folder that no run owns yet."""


# What a folder holds.


def kind_of(workdir: Path) -> Literal["grid", "seeds", "run"] | None:
  """Tells what a folder holds; None if it holds nothing of this program."""
  if files.read(workdir / GRID) is not None:
    return "grid"
  if files.read(workdir / CONFIG) is None:
    return None
  return "seeds" if read_run(workdir)["config"]["seed"] == SEEDS else "run"


def runs_of(workdir: Path) -> Iterator[tuple[list[Path], Json]]:
  """Yields the runs that each cell has, or should have, and its values.

  What is no grid is one cell without values.
  """
  grid: Json = {"seeds": None, "cells": [{"name": "", "values": {}}]}
  if kind_of(workdir) == "grid":
    grid = read_run(workdir, GRID)
  for cell in grid["cells"]:
    path = workdir / cell["name"]
    names = [name.removeprefix("seed") for name in files.names(path)]
    numbers = {int(name) for name in names if name.isdecimal()}
    begun = {number for number in numbers if kind_of(path / f"seed{number}")}
    seeds = sorted(begun.union(grid["seeds"] or ()))
    yield [path / f"seed{number}" for number in seeds] or [path], cell["values"]


def folder(workdir: Path, key: str) -> Path:
  """Returns the folder of a run's method."""
  return workdir / "methods" / key


def read_run(workdir: Path, name: str = CONFIG) -> Json:
  """Reads config.json as it is: "config", and facts of the "data".

  With the name of grid.json: fields, seeds, and cells with name and values.
  """
  path = workdir / name
  tree = files.read_sealed(path, "restore it, or choose another folder")
  if tree is None:
    raise UserError(
      f"--workdir={workdir} holds no run (no {name}): train one first"
    )
  return tree


def read_config(workdir: Path, key: str = "") -> tuple[Config, Json]:
  """Returns the config of a run, and the facts of its data.

  For the method `key` alone, others that are not registered are left out. In a
  folder with one run per seed, the seed is 0. Raises UserError for what no
  config of today has.
  """
  run = read_run(workdir)
  settings = run["config"]
  if settings["seed"] == SEEDS:
    settings["seed"] = 0
  for other, spec in [*settings["methods"].items()] if key else ():
    if other != key and spec["name"] not in METHODS:
      del settings["methods"][other]
  try:
    return Config.from_dict(settings), run["data"]
  except UserError as error:
    raise UserError(
      f"{workdir / CONFIG}: {error}; if a name is yours, give the config"
      " file that registers it as --config=FILE, in Python as config=FILE; if"
      " another version of splitjax trained this run, read it with that one"
    ) from None


# Who owns a folder.


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
  """Holds a folder, which is made if needed, for this process.

  Training, evaluating and reporting hold a folder while they write to it; one
  that this process holds already may be held again. Raises UserError if another
  process holds it, or if something in it is a link.
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
  """Holds a folder for a run, and claims it by its config.json.

  `facts` are those of the data, with their digests. With `over_seeds` the
  folder holds one folder per seed, each with a run. Yields the config, with the
  methods of earlier starts in the folder added.

  Raises:
    UserError: another process holds the folder, another run owns it (the line
      names the first field that differs), or it has files but no run.
  """
  with contextlib.ExitStack() as stack:
    if machine.is_first_process():
      stack.enter_context(held(workdir))
    stored = read_run(workdir) if kind_of(workdir) else None
    if stored:
      settings = config.to_dict()
      present = settings["methods"]
      earlier = stored["config"]["methods"]
      # Methods that are new come first, with those beside them.
      order = present if present.keys() - earlier.keys() else {}
      settings["methods"] = order | earlier | present
      with naming(f"--workdir={workdir} has methods of earlier starts"):
        config = Config.from_dict(settings)
    if machine.is_first_process():
      run = files.plain({"config": config.to_dict(), "data": facts})
      if config.data.dir:  # a later command may start in another folder
        place = files.expanded(config.data.dir).absolute()
        run["config"]["data"]["dir"] = str(place)
      if over_seeds:
        run["config"]["seed"] = SEEDS
      if not stored:
        check_empty(workdir, "run")
      elif differs := difference(stored, run):
        why = f"belongs to another config ({differs})"
        if differs.startswith("digest is"):
          why = f"was trained on other data: {config.data.name} has changed"
        raise UserError(f"--workdir={workdir} {why}; choose a new folder")
      if run != stored:
        files.write_sealed(workdir / CONFIG, run)
    machine.wait_for_all("claimed")
    if not kind_of(workdir):
      raise UserError(
        f"--workdir={workdir} is not on a disk that all processes share:"
        " choose one that is"
      )
    yield config


def check_empty(workdir: Path, what: str) -> None:
  """Raises UserError where a folder has files, but no `what`."""
  if set(files.names(workdir)) - _HARMLESS:
    raise UserError(
      f"--workdir={workdir} exists and is no {what} of this program: choose"
      " another"
    )


def difference(
  stored: Json, current: Json, *, free: Sequence[str] = ()
) -> str | None:
  """Describes the first field in which two runs differ; None if equal.

  Both are as in config.json, and may differ in the `free` fields. Only methods
  that both have are compared, as each trains by itself. `current` may have more
  rounds if this does not change the rounds that both have.
  """
  there = stored["config"]
  here = current["config"]
  shared = there["methods"].keys() & here["methods"].keys()
  named = ["title", "rounds", *free]
  for key in there["methods"] | here["methods"]:
    named.append(f"methods.{key}.label" if key in shared else f"methods.{key}")
  differs = first_difference(significant(there), significant(here), named)
  differs = differs or first_difference(stored["data"], current["data"])
  old = there["rounds"]
  new = here["rounds"]
  if differs or old == new or "rounds" in free:
    return differs
  rounds = f"rounds is {old} there and {new} here"
  if old > new:
    return rounds
  if here["faults"]["server_down"]:
    return f"{rounds}, and faults.server_down depends on it"
  chosen = OptimizerConfig(**here["optimizer"])
  rates = [
    make_optimizer(chosen, count).at(jnp.arange(old)).lr for count in (old, new)
  ]
  if jnp.array_equal(rates[0], rates[1]):
    return None
  return f"{rounds}, and optimizer.schedule={chosen.schedule} depends on it"


def first_difference(
  stored: Json, current: Json, free: Sequence[str] = ()
) -> str | None:
  """Describes the first field that differs, but for those that are `free`."""
  there = flat(stored)
  here = flat(current)
  for field in sorted(there.keys() | here.keys()):
    values = there.get(field), here.get(field)
    if values[0] != values[1] and not within(field, free):
      return "{} is {!r} there and {!r} here".format(field, *values)
  return None


# Finished methods.


class About(NamedTuple):
  """What about.json says of a finished method; JSON."""

  rounds: int = 0  #: that it was trained for
  methods: Mapping[str, str] = {}  #: row in numbers.csv -> name in METHODS
  notes: Sequence[str] = ()  #: on the training, for a reader of the report
  tests: Sequence[str] = ()  #: on the test sets, likewise
  seconds: Mapping[str, float] = {}  #: wall time of the training by activity
  #: test set -> each client's threshold by the config's rule, nats; None for a
  #: method with one exit
  thresholds: dict[str, list[float]] | None = None
  evaluated: Json = {}  #: groups of the config that an evaluation changed
  files: Mapping[str, str] = {}  #: name -> digest of what decides a number


def write_results(
  method_dir: Path,
  about: About,
  table: pd.DataFrame,
  arrays: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
  """Writes a method's numbers and arrays; about.json makes them valid.

  `arrays` are by file name; earlier files of those that are empty are deleted.
  """
  reopen(method_dir)
  files.write(method_dir / numbers.NUMBERS, numbers.as_csv(table))
  written = [ROUNDS, numbers.NUMBERS]
  for name, leaves in arrays.items():
    if leaves:
      save = functools.partial(np.savez_compressed, allow_pickle=False)
      files.write(method_dir / name, functools.partial(save, **leaves))
      written.append(name)
    else:
      (method_dir / name).unlink(missing_ok=True)
  contents = {name: files.read(method_dir / name) for name in written}
  digests = {k: files.digest(x) for k, x in contents.items() if x is not None}
  files.write_sealed(
    method_dir / _ABOUT, about._replace(files=digests)._asdict()
  )


def reopen(method_dir: Path) -> None:
  """Makes a method's results invalid, before it is trained or scored again."""
  with files.explained("written", method_dir):
    (method_dir / _ABOUT).unlink(missing_ok=True)


def read_about(workdir: Path, key: str) -> About | None:
  """Reads about.json of a run's method; None if it is not finished.

  Raises Damaged if a file that decides a number is not what was written.
  """
  method_dir = folder(workdir, key)
  remedy = "train again, which makes it anew"
  body = files.read_sealed(method_dir / _ABOUT, remedy)
  if body is None:
    return None
  about = About(**body)
  for name, written in about.files.items():
    if files.digest(files.read(method_dir / name) or b"") != written:
      raise Damaged(f"{method_dir / name} is not what was written: {remedy}")
  return about


def finished(run: Path, into: str = "") -> dict[str, About]:
  """Reads about.json of a run's finished methods by key; {} if it has none.

  With `into` they are those of the evaluation in this folder of the run.
  """
  keys = read_run(run)["config"]["methods"] if kind_of(run) == "run" else ()
  stored = {key: read_about(run / into, key) for key in keys}
  return {key: about for key, about in stored.items() if about is not None}
