"""Several runs side by side: a vmap around the round, spread over devices.

The runs are seeds of a config, cells of a sweep, methods that differ in
numbers, or all of these. They differ in hyper-parameters, which are arguments
of the program (`methods.hyper`), in partition, networks and every draw. Runs
that are no such program train in another group, or one after another.
"""

import contextlib
import dataclasses
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from splitjax.config.schema import Config
from splitjax.engine import memory
from splitjax.experiment import (
  parallel_loop,
  parallel_padding,
  program_identity,
  programs,
  resume,
  training_setup,
)
from splitjax.experiment import task as tasks
from splitjax.experiment.build import abstract_state
from splitjax.experiment.parallel_padding import Run
from splitjax.experiment.progress import say
from splitjax.experiment.signals import Stop
from splitjax.experiment.storage import ownership
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.task import Task
from splitjax.methods import hyper
from splitjax.types import UserError


class Setting(NamedTuple):
  """One config of several.

  Attributes:
    name: for people, such as "seed 1" or "alpha=0.1, seed 1"; "": the only one.
    config: with its seed.
    workdir: its own.
  """

  name: str
  config: Config
  workdir: Path


def train(
  settings: Sequence[Setting],
  count: int,
  *,
  strict: bool = False,
  overwrite: bool,
  stop: Stop,
) -> None:
  """Trains what is not finished of several configs, and saves it as `run` does.

  Args:
    settings: the configs.
    count: how many runs train side by side, at most.
    strict: the same method of all must fit into one program and into memory.
    overwrite: as in `runner.run`.
    stop: as in `runner.run`.

  Raises:
    UserError: as `run`; if `strict`, runs that cannot train side by side.
    Stopped: as `run`.
  """
  if jax.process_count() > 1:
    raise UserError(
      "runs side by side train in one process: leave system.seeds_batched and"
      " system.settings_batched out, or start it without the flags of several"
    )
  if not (overwrite or any(_unfinished(x.config, x.workdir) for x in settings)):
    return  # files that training reads may be missing
  with contextlib.ExitStack() as held:
    runs, stored = list[Run](), dict[str, Task]()
    for each in settings:
      config = each.config
      alone = dataclasses.replace(config.system, devices=1)
      task = tasks.build(dataclasses.replace(config, system=alone))
      own = ownership.owned(each.workdir, config, task.facts, overwrite)
      task = task._replace(config=held.enter_context(own))
      # The same data: one copy on the device.
      same = f"{task.facts['digest']} {task.test_sets.pool}"
      first = stored.setdefault(same, task)
      task = task._replace(image=first.image, label=first.label)
      task = task._replace(pool=first.pool)
      left = _unfinished(task.config, each.workdir)
      for key in task.config.methods:
        made = training_setup.make_federation(task, key)
        done = key not in left
        runs.append(Run(each.name, each.workdir, task, made, done))
    # Runs of one kind may be one program; those of different kinds are not.
    alike = dict[Hashable, list[Run]]()
    for run in runs:
      kind = run.federation.key if strict else _kind(run)
      alike.setdefault(kind, []).append(run)
    for group in alike.values():
      _train_alike(group, count, strict, stop)


def of_seeds(
  config: Config, workdir: Path, numbers: Sequence[int], prefix: str = ""
) -> list[Setting]:
  """The runs of a config's seeds, in folders seedN of a workdir."""
  return [
    Setting(
      f"{prefix}seed {number}",
      dataclasses.replace(config, seed=number),
      workdir / f"seed{number}",
    )
    for number in numbers
  ]


def _unfinished(config: Config, workdir: Path) -> list[str]:
  """The methods of a run that are not finished."""
  return [k for k in config.methods if workdirs.read_about(workdir, k) is None]


def _train_alike(
  runs: Sequence[Run], count: int, strict: bool, stop: Stop
) -> None:
  """Trains runs of one kind, in groups of one program.

  Runs that an earlier start left keep their group, its finished runs too. What
  finds no other trains later, by itself.
  """
  if len(runs) < 2:
    return
  most = _that_fit(runs[0], min(count, len(runs)), strict)
  placed = _train_as_before(runs, most, stop)
  left = list(runs)
  while any(_new(run, placed) for run in left):
    # Those of one program, in groups of one size: each size is compiled.
    same, traced = _of_one_program(left)
    chosen = [run for run, fits in zip(left, same, strict=True) if fits]
    left = [run for run, fits in zip(left, same, strict=True) if not fits]
    size = -(-len(chosen) // -(-len(chosen) // most))
    new = [run for run in chosen if _new(run, placed)]
    for i in range(0, len(new) - 1, size):
      if len(group := new[i : i + size]) > 1:
        parallel_loop.train(group, traced, stop)


def _new(run: Run, placed: set[str]) -> bool:
  """Whether a run is neither finished nor one of an earlier start's groups."""
  return not run.finished and run.title not in placed


def _train_as_before(runs: Sequence[Run], most: int, stop: Stop) -> set[str]:
  """Trains what an earlier start left, in its groups; returns their titles.

  Groups of more than `most` runs are not kept.
  """
  known, placed = {run.title: run for run in runs}, set[str]()
  before = dict.fromkeys(
    resume.group_of(run.workdir, run.federation.key)
    for run in runs
    if not run.finished
  )
  for titles in before:
    if 1 < len(titles) <= most and known.keys() - placed >= set(titles):
      group = [known[title] for title in titles]
      same, traced = _of_one_program(group)
      if all(same):
        placed |= set(titles)
        parallel_loop.train(group, traced, stop)
  return placed


def _kind(run: Run) -> Hashable:
  """What runs must have in common to be one program, beside branches."""
  federation = run.federation
  return (
    program_identity.identity(run.task, federation._replace(plans=())),
    tuple(map(parallel_padding.static, federation.plans)),
    jax.tree.structure(federation.shards),
    run.task.facts["digest"],
    run.task.config.checkpoint,
    federation.method.traits.rows,
  )


def _of_one_program(runs: Sequence[Run]) -> tuple[list[bool], bool]:
  """Which of these runs take the branches of the first.

  Returns also whether their hyper-parameters can be arguments of the program: a
  method whose code needs the numbers themselves trains equal ones side by side.
  """
  task, federation = runs[0].task, runs[0].federation
  values = [run.values for run in runs]
  trace = hyper.Trace(values[0])
  places = [len(cohort.places) for cohort in federation.fleet.cohorts]
  state = abstract_state(task.config, task.network, federation.key, places)

  def one(state, shards, arrays):
    numbers = hyper.numbers(trace, arrays)
    own = parallel_loop.with_numbers(task, federation, numbers)
    step = programs.make_round(task, own, vmapped=parallel_loop.vmapped())
    return step(state, shards)

  try:
    jax.eval_shape(one, state, federation.shards, dict(values[0]))
  except Exception:  # whatever a method raises that meets no number
    return [each == values[0] for each in values], False
  conditions = trace.conditions.values()
  return [hyper.fits(conditions, each) for each in values], True


def memory_needed(config: Config, key: str, count: int) -> tuple[int, int]:
  """Bytes of a device while so many runs of a method train, and the devices."""
  alone = dataclasses.replace(config.system, devices=1)
  task = tasks.build(dataclasses.replace(config, system=alone))
  need = training_setup.need(task, training_setup.make_federation(task, key))
  spread = parallel_loop.devices(config, count)
  return _bytes(need, count, spread), spread


def _bytes(need: memory.Need, count: int, devices: int) -> int:
  mine = -(-count // devices)
  rounds = mine if parallel_loop.vmapped() else 1
  return need.data + mine * need.state + rounds * need.round


def _that_fit(run: Run, wanted: int, strict: bool) -> int:
  """How many runs like this fit into memory; a line says if not all.

  Raises:
    UserError: not all do, and `strict`.
  """
  need = training_setup.need(run.task, run.federation)
  devices = parallel_loop.devices(run.task.config, wanted)
  room = memory.capacity()
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
  say(f"{run.federation.key}: {text}: {fit} at a time")
  return fit
