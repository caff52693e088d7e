"""Runs trained side by side: one program for all, spread over devices.

The runs are seeds of a config, cells of a sweep, methods that differ in numeric
options, or a mixture. They may differ in partition, initial network, random
draws and hyper-parameters, which are arguments of the program
(`methods.hyper`). Runs that do not share a program train in another group or
alone.
"""

import contextlib
import dataclasses
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from splitjax.config.schema import Config
from splitjax.engine import memory
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop
from splitjax.experiment.parallel_runs import lowering, one_program, padding
from splitjax.experiment.parallel_runs.padding import Run
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import ownership, workdirs
from splitjax.experiment.train import resume
from splitjax.models import target
from splitjax.types import UserError


class PlannedRun(NamedTuple):
  """One of several configs to run.

  Attributes:
    name: a label: "seed 1" or "alpha=0.1, seed 1"; "" for a single run.
    config: the config, with the run's seed.
    workdir: the folder of this run.
  """

  name: str
  config: Config
  workdir: Path


def train(
  settings: Sequence[PlannedRun],
  count: int,
  *,
  strict: bool = False,
  overwrite: bool,
  stop: Stop,
) -> None:
  """Trains and saves the unfinished runs of several configs side by side.

  A run that shares no program with another is left to `runner.run`.

  Args:
    settings: the configs.
    count: the largest number of runs that train side by side.
    strict: all runs of a method must share one program and fit into memory.
    overwrite: see `runner.run`.
    stop: see `runner.run`.

  Raises:
    UserError: see `runner.run`; there are several processes; or `strict` is set
      and runs cannot train side by side.
    Stopped: see `runner.run`.
  """
  if jax.process_count() > 1:
    raise UserError(
      "runs side by side train in one process: leave system.seeds_batched and"
      " system.settings_batched out, or start one process, without"
      " --distributed and --coordinator_address"
    )
  known = (workdirs.trained(each.workdir, each.config) for each in settings)
  if not overwrite and all(all(each.values()) for each in known):
    return  # without data files, which may be missing
  with contextlib.ExitStack() as held:
    runs, built = list[Run](), tasks.Tasks()
    for each in settings:
      config = each.config
      task = built.take(on_one_device(config))
      own = ownership.owned(each.workdir, config, task.facts, overwrite)
      task = task._replace(config=held.enter_context(own))
      finished = workdirs.trained(each.workdir, task.config)
      for key in task.config.methods:
        made = training_setup.make_setup(task, key)
        done = finished[key]
        runs.append(Run(each.name, each.workdir, made, done))
    # Only runs of one kind can share a program.
    alike = dict[Hashable, list[Run]]()
    for run in runs:
      kind = run.setup.key if strict else _kind(run)
      alike.setdefault(kind, []).append(run)
    for group in alike.values():
      _train_alike(group, count, strict, stop)


def of_seeds(
  config: Config, workdir: Path, numbers: Sequence[int], prefix: str = ""
) -> list[PlannedRun]:
  """Returns a config's runs, one per seed, in folders seedN of a workdir."""
  return [
    PlannedRun(
      f"{prefix}seed {number}",
      dataclasses.replace(config, seed=number),
      workdir / f"seed{number}",
    )
    for number in numbers
  ]


def _train_alike(
  runs: Sequence[Run], count: int, strict: bool, stop: Stop
) -> None:
  """Trains runs of one kind in groups that share a program.

  A group that an earlier start left unfinished stays together, finished runs
  included. A run that shares no program with another trains later, alone.
  """
  if len(runs) < 2 or all(run.finished for run in runs):
    return
  most = _that_fit(runs[0], min(count, len(runs)), strict)
  texts, groups = _texts(runs), dict[tuple[str, bool], list[Run]]()
  placed = _train_as_before(runs, texts, most, stop)
  # Groups of one program get equal sizes, as each size is compiled.
  for run in runs:
    groups.setdefault(texts[run.title], []).append(run)
  for (_, traced), chosen in groups.items():
    size = -(-len(chosen) // -(-len(chosen) // most))
    new = [r for r in chosen if not r.finished and r.title not in placed]
    for i in range(0, len(new) - 1, size):
      if len(group := new[i : i + size]) > 1:
        one_program.train(group, traced, stop)


def _texts(runs: Sequence[Run]) -> dict[str, tuple[str, bool]]:
  """Returns `lowering.round_text` of each run's padded setup, by run title."""
  known, texts = dict[str, tuple[str, bool]](), {}
  for run, setup in zip(runs, padding.padded(runs), strict=True):
    config = {**setup.task.config.to_dict(), "seed": 0}
    told = json.dumps([setup.key, config], sort_keys=True)
    if told not in known:
      known[told] = lowering.round_text(setup)
    texts[run.title] = known[told]
  return texts


def _train_as_before(
  runs: Sequence[Run],
  texts: dict[str, tuple[str, bool]],
  most: int,
  stop: Stop,
) -> set[str]:
  """Trains the groups of runs that earlier starts left unfinished.

  A group is given up if it has more than `most` runs, if one of these is not in
  `runs`, or if they no longer share a program. Returns the titles of the runs
  in the groups that were trained.
  """
  known, placed = {run.title: run for run in runs}, set[str]()
  before = dict.fromkeys(
    tuple(resume.begun(run.workdir, run.setup.key).get("group", ()))
    for run in runs
    if not run.finished
  )
  for titles in before:
    if 1 < len(titles) <= most and known.keys() - placed >= set(titles):
      if len({texts[title] for title in titles}) == 1:
        _, traced = texts[titles[0]]
        placed |= set(titles)
        one_program.train([known[title] for title in titles], traced, stop)
  return placed


def _kind(run: Run) -> Hashable:
  """Returns facts in which runs must agree to be padded to common shapes."""
  setup, fleet = run.setup, run.setup.fleet
  return (
    *(
      (c.family, c.depth, len(c.ids), c.padding, c.chunk) for c in fleet.cohorts
    ),
    (fleet.participants, fleet.participation),
    tuple(map(padding.static, setup.plans)),
    jax.tree.structure(setup.shards),
    setup.task.facts["digest"],
    setup.task.config.checkpoint,
    setup.task.config.rounds,
    setup.method.traits.rows,
  )


def on_one_device(config: Config) -> Config:
  """Returns a config with system.devices=1, for a run beside other runs."""
  alone = dataclasses.replace(config.system, devices=1)
  return dataclasses.replace(config, system=alone)


def memory_needed(setup: TrainingSetup, count: int) -> tuple[int, int]:
  """Returns bytes per device for `count` runs, and the number of devices."""
  spread = lowering.devices(setup.task.config.system, count)
  return _bytes(training_setup.need(setup), count, spread), spread


def _bytes(need: memory.Need, count: int, devices: int) -> int:
  mine = -(-count // devices)
  rounds = mine if lowering.vmapped() else 1
  return need.data + mine * need.state + rounds * need.round


def _that_fit(run: Run, wanted: int, strict: bool) -> int:
  """Returns how many of `wanted` runs fit in memory; prints a line if fewer do.

  Raises:
    UserError: not all fit, and `strict` is set.
  """
  need = training_setup.need(run.setup)
  devices = lowering.devices(run.setup.task.config.system, wanted)
  room = target.current().capacity
  fit = wanted
  while fit > 1 and _bytes(need, fit, min(devices, fit)) > room:
    fit -= 1
  if fit == wanted:
    return wanted
  all_ = _bytes(need, wanted, devices)
  text = f"{wanted} runs side by side need about {all_ / 1e9:.1f} GB of"
  text = f"{text} {room / 1e9:.1f} GB on a device"
  if strict:
    raise UserError(
      f"system.seeds_batched=True: {text}: leave it False, or lower"
      " system.clients_per_chunk"
    )
  say(f"{run.setup.key}: {text}: {fit} at a time")
  return fit
