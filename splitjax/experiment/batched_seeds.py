"""Several seeds of a run side by side: a vmap around the round.

The seeds differ in partition, networks and every draw; the program is one.
Clients of all seeds are padded to common shapes, which changes no draw.
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
from splitjax.experiment import finalize, programs, resume
from splitjax.experiment import task as tasks
from splitjax.experiment import train as training
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import say
from splitjax.experiment.recorder import Recorder
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
  """Trains what is not finished of several seeds, and saves it as `run` does.

  `config` is that of all of them but for the seed, `workdir` has their folders
  seedN. The others are as of `run_seeds`.

  Raises:
    UserError: as `run`; the seeds cannot train side by side.
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
      if not overwrite and not _unfinished(folder, config):
        continue  # files that training reads may be missing
      task = tasks.build(dataclasses.replace(seeded, system=alone))
      own = ownership.owned(folder, seeded, task.facts, overwrite)
      task = task._replace(config=held.enter_context(own))
      if seeds:  # the same data: one copy on the device
        first = seeds[0].task
        task = task._replace(image=first.image, label=first.label)
        task = task._replace(pool=first.pool)
      seeds.append(Seed(number, task, folder, tasks.fresh_network(task)))
    for key in config.methods:
      mine = [s for s in seeds if key in _unfinished(s.workdir, config)]
      _train_method(mine, key, stop)


def _unfinished(workdir: Path, config: Config) -> list[str]:
  """The methods of a seed that are not finished."""
  return [k for k in config.methods if workdirs.read_about(workdir, k) is None]


def _train_method(seeds: Sequence[Seed], key: str, stop: Stop) -> None:
  """Trains one method of the seeds that have done as many rounds.

  The others train one after another later, from where they are.
  """
  if len(seeds) < 2:
    return
  own = [federations.make_federation(s.task, key) for s in seeds]
  _check_memory(seeds[0].task, own[0], len(seeds))
  with contextlib.ExitStack() as opened:
    # Open all seeds, go on with those at the most common round.
    pairs = []
    for seed, federation in zip(seeds, own, strict=True):
      note = f", seed {seed.number}"
      opening = resume.open_recorder(
        seed.task, federation, seed.full, seed.workdir, stop, note
      )
      pairs.append(opened.enter_context(opening))
    rounds = [recorder.done for recorder, _ in pairs]
    most = max(set(rounds), key=rounds.count)
    chosen = [i for i, done in enumerate(rounds) if done == most]
    if len(chosen) < 2:
      return
    seeds = [seeds[i] for i in chosen]
    recorders = [pairs[i][0] for i in chosen]
    state = _run_rounds(seeds, recorders, [pairs[i][1] for i in chosen])
  for i, recorder in enumerate(recorders):
    finalize.finalize(recorder, trees.take(state, i))


def _run_rounds(
  seeds: Sequence[Seed], recorders: Sequence[Recorder], states: Sequence[State]
) -> State:
  """Compiles, and runs the rounds; the last states, leaves [seeds, ...]."""
  numbers = ", ".join(str(seed.number) for seed in seeds)
  label = f"{recorders[0].labels[0]}, seeds {numbers}"
  say(f"{label}: compiling")
  own = [recorder.federation for recorder in recorders]
  padded = _padded(seeds, own)

  # Stack the seeds, and compile one round for all of them.
  state = jax.tree.map(lambda *x: jnp.stack(x), *states)
  by_cohort = zip(*(each.shards for each in padded), strict=True)
  shards = tuple(map(_stack, by_cohort))
  scales = [(each.plans[0].mean, each.plans[0].std) for each in own]
  together = _make_round(seeds[0].task, padded[0], scales)
  begun = time.monotonic()
  step = together.lower(state, shards).compile()
  seconds = (time.monotonic() - begun) / len(recorders)
  for recorder in recorders:
    recorder.seconds["compile"] += seconds

  def advance(state):
    state, metrics = step(state, shards)
    metrics = jax.device_get(metrics)
    return state, [trees.take(metrics, i) for i in range(len(seeds))]

  def evaluate(state, i):
    return programs.evaluate_rows(seeds[i].task, own[i], trees.take(state, i))

  return training.run_rounds(
    recorders, state, advance, evaluate, trees.take, label
  )


def _make_round(
  task: Task, federation: Federation, scales: Sequence[tuple]
) -> Any:
  """The round of all seeds: a jitted (states, shards) -> (states, Metrics).

  `task` is that of one of them, `federation` its own, padded. `scales` are mean
  and std of each: where samples are held out these differ from seed to seed,
  and are arguments of the vmapped round.
  """
  axes: Any = [
    (None, None, *(0 for _ in shard[2:])) for shard in federation.shards
  ]
  axes = tuple(Shard(*each) for each in axes)
  if len(set(scales)) == 1:
    one = programs.make_round(task, federation, vmapped=True)
    return jax.jit(jax.vmap(one, in_axes=(0, axes)), donate_argnums=0)

  def scaled(state, shards, mean, std):
    plans = tuple(p._replace(mean=mean, std=std) for p in federation.plans)
    own = programs.make_round(
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


def _padded(
  seeds: Sequence[Seed], own: Sequence[Federation]
) -> list[Federation]:
  """The federations, padded to common shapes.

  Raises:
    UserError: the seeds differ in more than that.
  """
  # Depths and chunks must be as many.
  fleets = [federation.fleet.cohorts for federation in own]
  if len({tuple((c.depth, len(c.ids)) for c in each) for each in fleets}) > 1:
    raise UserError(
      "system.seeds_batched=True: fleet.allocation gives each seed other"
      " numbers of clients by depth; train them one after another"
    )
  places = {tuple(len(cohort.places) for cohort in each) for each in fleets}
  if len(places) > 1:
    raise UserError(
      "system.seeds_batched=True: seeds differ in the size of their chunks; set"
      " system.clients_per_chunk to a number"
    )

  # Batches must be as large; the most steps of any seed are enough for all.
  plans: list[Plan] = []
  for every in zip(*(federation.plans for federation in own), strict=True):
    sizes = {plan.batch for plan in every}
    if len(sizes) > 1:
      batches = " and ".join(map(str, sorted(sizes)))
      numbers = [seed.number for seed in seeds]
      raise UserError(
        f"system.seeds_batched=True: seeds {numbers} differ in batch"
        f" ({batches}) and cannot train side by side; leave it False, or choose"
        " a batch_size that every client fills"
      )
    steps = max(plan.steps for plan in every)
    equal = all(plan.equal and plan.steps == steps for plan in every)
    plans.append(every[0]._replace(steps=steps, equal=equal))

  # Rows of samples are padded to the largest client of any seed.
  widths = [
    max(map(_width, every))
    for every in zip(*(federation.shards for federation in own), strict=True)
  ]
  return [
    federation._replace(
      plans=tuple(plans),
      shards=tuple(
        _widened(seed.task, federation.method, *each)
        for each in zip(federation.shards, widths, plans, strict=True)
      ),
    )
    for seed, federation in zip(seeds, own, strict=True)
  ]


def _width(shard: Shard) -> int:
  """The places that a cohort's rows need, those held back included."""
  return max(x.shape[1] for x in jax.tree.leaves((shard.rows, shard.held)))


def _widened(
  task: Task, method: Method, shard: Shard, width: int, plan: Plan
) -> Shard:
  """A cohort's shard with room for `width` samples of each client."""
  more = width - shard.rows.shape[1]
  rows = jnp.pad(shard.rows, ((0, 0), (0, more)), constant_values=-1)
  shard = shard._replace(rows=rows)
  if method.traits.validates:
    more = width - shard.held.shape[1]
    held = jnp.pad(shard.held, ((0, 0), (0, more)), constant_values=-1)
    shard = shard._replace(held=held)
  return federations.with_turns(task, method, shard, plan)


def _check_memory(task: Task, federation: Federation, count: int) -> None:
  """Raises UserError where so many seeds do not fit."""
  need = federations.need(task, federation)
  wanted = need.data + count * (need.state + need.round)
  if wanted > memory.capacity():
    raise UserError(
      f"system.seeds_batched=True: {count} seeds need about"
      f" {wanted / 1e9:.1f} GB of {memory.capacity() / 1e9:.1f} GB: leave it"
      " False, or lower system.clients_per_chunk"
    )
