"""Several seeds of a run side by side: a vmap around the round.

The seeds differ in who holds what, in their networks and in every draw; the
program is one. Clients of all seeds are padded to common shapes, which changes
no draw: what they are is data.
"""

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.config.schema import Config
from splitjax.data.feed import Plan
from splitjax.engine import memory
from splitjax.experiment import federation as federations
from splitjax.experiment import finalize, resume
from splitjax.experiment import recorder as recording
from splitjax.experiment import task as tasks
from splitjax.experiment import train as training
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import say
from splitjax.experiment.recorder import Recorder, RunFiles, TrainingStart
from splitjax.experiment.signals import Stop
from splitjax.experiment.storage import ownership
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.task import Task
from splitjax.types import Method, Segment, Shard, State, UserError


class Seed(NamedTuple):
  """One seed's run.

  Attributes:
    number: the seed.
    task: its own.
    workdir: its own.
    full: its fresh network.
  """

  number: int
  task: Task
  workdir: Path
  full: Segment


def train(
  config: Config,
  workdir: Path,
  numbers: Sequence[int],
  *,
  overwrite: bool,
  stop: Stop,
) -> None:
  """Trains what is not finished of several seeds, and keeps it as `run` does.

  Args:
    config: of all of them but for the seed.
    workdir: its folders seedN are theirs.
    numbers: the seeds.
    overwrite: as of `run`.
    stop: as of `run`.

  Raises:
    UserError: as `run`; the seeds cannot go side by side.
    Stopped: as `run`.
  """
  if config.system.devices not in (None, 1) or jax.process_count() > 1:
    raise UserError(
      f"system.devices={config.system.devices}: system.seeds_batched=True"
      " trains on one device; set it to 1, or train seeds one after another"
    )
  alone = dataclasses.replace(config.system, devices=1)
  with contextlib.ExitStack() as held:
    seeds = list[Seed]()
    for number in numbers:
      seeded = dataclasses.replace(config, seed=number)
      folder = workdir / f"seed{number}"
      if not overwrite and not _left(folder, config):
        continue  # its files may be gone
      task = tasks.build(dataclasses.replace(seeded, system=alone))
      own = ownership.owned(folder, seeded, task.facts, overwrite)
      task = task._replace(config=held.enter_context(own))
      if seeds:  # of the same data, one copy on the device will do
        first = seeds[0].task
        task = task._replace(image=first.image, label=first.label)
        task = task._replace(pool=first.pool)
      seeds.append(Seed(number, task, folder, tasks.fresh_network(task)))
    for key in config.methods:
      mine = [s for s in seeds if key in _left(s.workdir, config)]
      _train_method(mine, key, stop)


def _left(workdir: Path, config: Config) -> list[str]:
  """The methods of a seed that are not finished."""
  return [k for k in config.methods if workdirs.read_about(workdir, k) is None]


def _train_method(seeds: Sequence[Seed], key: str, stop: Stop) -> None:
  """Trains one method of the seeds that stand at the same round.

  The others go on one after another, later: nothing that they have is lost.
  """
  if len(seeds) < 2:  # one alone is as fast as it gets
    return
  own = [federations.make_federation(seed.task, key) for seed in seeds]
  _check_memory(seeds[0].task, own[0], len(seeds))
  with contextlib.ExitStack() as opened:
    keepers = [
      opened.enter_context(
        contextlib.closing(resume.manager(seed.task, key, seed.workdir))
      )
      for seed in seeds
    ]
    starts = [
      resume.begin(seed.task, federation, key, seed.full, manager)
      for seed, federation, manager in zip(seeds, own, keepers, strict=True)
    ]
    rounds = [start.round for start in starts]
    at = max(set(rounds), key=rounds.count)
    chosen = [i for i, round in enumerate(rounds) if round == at]
    if len(chosen) < 2:
      return
    seeds, own = [seeds[i] for i in chosen], [own[i] for i in chosen]
    starts = [starts[i] for i in chosen]
    keepers = [keepers[i] for i in chosen]
    common = _alike(seeds, own)
    recorders = []
    for seed, federation, manager, start in zip(
      seeds, own, keepers, starts, strict=True
    ):
      events = recording.begin_logs(
        seed.workdir, seed.task.config, key, start.lines
      )
      whose = resume.whose(seed.task, federation)
      run_files = RunFiles(
        seed.workdir / recording.METRICS, events, manager, whose, stop
      )
      name = f", seed {seed.number}"
      recorders.append(
        Recorder(seed.task, federation, key, start, run_files, name)
      )
    state = _pass_rounds(seeds, own, common, starts, recorders)
    for manager in keepers:
      manager.wait()
  for i, (seed, recorder) in enumerate(zip(seeds, recorders, strict=True)):
    finalize.finalize(recorder, trees.take(state, i), seed.workdir)


def _pass_rounds(
  seeds: Sequence[Seed],
  own: Sequence[Federation],
  common: Sequence[Federation],
  starts: Sequence[TrainingStart],
  recorders: Sequence[Recorder],
) -> State:
  """Compiles, and runs the rounds; the last states, leaves [seeds, ...]."""
  numbers = ", ".join(str(seed.number) for seed in seeds)
  label = f"{recorders[0].labels[0]}, seeds {numbers}"
  say(f"{label}: compiling")
  state = jax.tree.map(lambda *x: jnp.stack(x), *(s.state for s in starts))
  shards = tuple(
    _stack([federation.shards[c] for federation in common])
    for c in range(len(common[0].shards))
  )
  scales = [
    (federation.plans[0].mean, federation.plans[0].std) for federation in own
  ]
  together = _make_round(seeds[0].task, common[0], scales)
  begun = time.monotonic()
  step = together.lower(state, shards).compile()
  for recorder in recorders:
    recorder.history.seconds["compile"] += (time.monotonic() - begun) / len(
      recorders
    )
  looks = {}

  def advance(state):
    state, told = step(state, shards)
    told = jax.device_get(told)
    return state, [trees.take(told, i) for i in range(len(seeds))]

  def look(state, i):
    task, federation = seeds[i].task, own[i]
    given = federation.shards, task.pool, task.shown, task.aside
    same = federation.plans, str(jax.tree.map(jnp.shape, given))
    if same not in looks:  # compiled once for seeds of equal shapes
      looks[same] = training.make_evaluators(task, federation)
    mine = trees.take(state, i)
    return training.evaluate_rows(task, federation, looks[same], mine)

  first = starts[0]._replace(state=state)
  return training.pass_rounds(
    recorders, first, advance, look, trees.take, label
  )


def _make_round(
  task: Task, federation: Federation, scales: Sequence[tuple]
) -> Any:
  """The round of all seeds: a jitted (states, shards) -> (states, Metrics).

  Args:
    task: the task of one of them.
    federation: its course, padded.
    scales: mean and std of each. Where samples are held out these differ from
      seed to seed, and are arguments of the vmapped round.
  """
  axes: Any = [
    (None, None, *(0 for _ in shard[2:])) for shard in federation.shards
  ]
  axes = tuple(Shard(*each) for each in axes)
  if len(set(scales)) == 1:
    one = training.make_round(task, federation, vmapped=True)
    return jax.jit(jax.vmap(one, in_axes=(0, axes)), donate_argnums=0)

  def scaled(state, shards, mean, std):
    plans = tuple(p._replace(mean=mean, std=std) for p in federation.plans)
    own = training.make_round(
      task, federation._replace(plans=plans), vmapped=True
    )
    return own(state, shards)

  mean, std = (jnp.asarray(each) for each in zip(*scales, strict=True))
  every = jax.vmap(scaled, in_axes=(0, axes, 0, 0))
  return jax.jit(
    lambda state, shards: every(state, shards, mean, std), donate_argnums=0
  )


def _stack(shards: Sequence[Shard]) -> Shard:
  """A cohort's shards of all seeds: leaves [seeds, N, ...], one data set."""
  own = jax.tree.map(lambda *x: jnp.stack(x), *(tuple(s[2:]) for s in shards))
  return Shard(*shards[0][:2], *own)


def _alike(
  seeds: Sequence[Seed], own: Sequence[Federation]
) -> list[Federation]:
  """The courses, padded to common shapes.

  Raises:
    UserError: the seeds differ in more than that.
  """
  fleets = (federation.fleet.cohorts for federation in own)
  places = {tuple(len(cohort.places) for cohort in each) for each in fleets}
  if len(places) > 1:
    raise UserError(
      "system.seeds_batched=True: seeds differ in the size of their chunks; set"
      " system.clients_per_chunk to a number"
    )
  plans: list[Plan] = []
  for every in zip(*(federation.plans for federation in own), strict=True):
    sizes = {plan.batch for plan in every}
    if len(sizes) > 1:
      told = " and ".join(map(str, sorted(sizes)))
      numbers = [seed.number for seed in seeds]
      raise UserError(
        f"system.seeds_batched=True: seeds {numbers} differ in batch ({told})"
        " and cannot go side by side; leave it False, or choose a batch_size"
        " that every client fills"
      )
    steps = max(plan.steps for plan in every)
    equal = all(plan.equal and plan.steps == steps for plan in every)
    plans.append(every[0]._replace(steps=steps, equal=equal))
  widths = [
    max(shard.rows.shape[1] for shard in every)
    for every in zip(*(federation.shards for federation in own), strict=True)
  ]
  return [
    federation._replace(
      plans=tuple(plans),
      shards=tuple(
        _widened(seed.task.config, federation.method, *each)
        for each in zip(federation.shards, widths, plans, strict=True)
      ),
    )
    for seed, federation in zip(seeds, own, strict=True)
  ]


def _widened(
  config: Config, method: Method, shard: Shard, width: int, plan: Plan
) -> Shard:
  """A cohort's shard with room for `width` samples of each client."""
  more = width - shard.rows.shape[1]
  rows = jnp.pad(shard.rows, ((0, 0), (0, more)), constant_values=-1)
  return federations.with_turns(config, method, shard._replace(rows=rows), plan)


def _check_memory(task: Task, federation: Federation, count: int) -> None:
  """Raises UserError where so many seeds will not fit."""
  need = federations.need(task, federation)
  wanted = need.data + count * (need.state + need.round)
  if wanted > memory.capacity():
    raise UserError(
      f"system.seeds_batched=True: {count} seeds need about"
      f" {wanted / 1e9:.1f} GB of {memory.capacity() / 1e9:.1f} GB: leave it"
      " False, or lower system.clients_per_chunk"
    )
