"""Training of several runs in one program: stacking, compiling, rounds."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.engine import sharding
from splitjax.engine.sharding import DIVIDED
from splitjax.experiment.console.signals import Stop
from splitjax.experiment.parallel_runs import lowering, padding
from splitjax.experiment.parallel_runs.padding import Run
from splitjax.experiment.setup import tasks
from splitjax.experiment.storage import round_log
from splitjax.experiment.train import finish, loop, resume
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers import measured
from splitjax.experiment.trainers.compile_cache import (
  announcing,
  hyper_parameters,
  once,
)
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.models import target
from splitjax.types import Shard, State


def train(runs: Sequence[Run], traced: bool, stop: Stop) -> None:
  """Trains and saves the runs of a group that are not finished.

  The program always has the size of the whole group, so that results are equal
  to the bit wherever an earlier start was killed. Runs that have done equally
  many rounds train together. In the places of the group's other runs, the
  program trains copies of one run's state, whose results are ignored.

  Args:
    runs: at least two runs that share a program.
    traced: whether hyper-parameters are arguments of the program; else they are
      constants, equal in all runs.
    stop: see `runner.run`.

  Raises:
    UserError: padding cannot make the runs' shapes equal; or see
      `train.loop.train`.
    Stopped: see `train.loop.train`.
  """
  first, count = runs[0], len(runs)
  spread = lowering.devices(first.setup.task.config.system, count)
  at_once = -(-count // spread) if lowering.vmapped() else 1
  left = next(run for run in runs if not run.finished)
  begun = resume.begun(left.workdir, left.setup.key)
  group = [run.title for run in runs]
  with contextlib.ExitStack() as opened:
    opened.enter_context(measured.chosen(first.setup, begun, at_once))
    recorders, states = dict[int, Recorder](), dict[int, State]()
    trainers = [Trainer(run.setup) for run in runs]
    for i, run in enumerate(runs):
      if run.finished:
        continue
      full = tasks.fresh_network(run.setup.task)
      note = run.name and f", {run.name}"
      opening = resume.open_recorder(
        trainers[i], full, run.workdir, stop, note, group, spread
      )
      recorders[i], state = opened.enter_context(opening)
      states[i] = _on_host(state)
    _rewrite_logs(recorders.values())
    # Runs that are ahead come first: a run behind may fail again (on_nan=stop).
    rounds = {recorder.done for recorder in recorders.values()}
    for done in sorted(rounds, reverse=True):
      mine = {i: r for i, r in recorders.items() if r.done == done}
      state = _run_rounds(runs, trainers, mine, states, traced)
      for i, recorder in mine.items():
        recorder.manager.wait()
        finish.save(recorder, trainers[i], _part(state, i))


def _rewrite_logs(recorders: Iterable[Recorder]) -> None:
  """Rewrites metrics.jsonl of each workdir, which its methods share."""
  shared = dict[Path, list[Recorder]]()
  for recorder in recorders:
    shared.setdefault(recorder.workdir, []).append(recorder)
  for workdir, mine in shared.items():
    logs = [recorder.log for recorder in mine]
    every = mine[0].task.config.methods
    round_log.rewrite_metrics(workdir, every, logs)


def _run_rounds(
  runs: Sequence[Run],
  trainers: Sequence[Trainer],
  recorders: dict[int, Recorder],
  states: dict[int, State],
  traced: bool,
) -> State:
  """Compiles and runs the rounds; returns the last states [runs, ...].

  Only the runs whose numbers are in `recorders` train. Their states, which are
  on the host, are removed from `states`.
  """
  members = list(recorders)
  mine = [runs[i] for i in members]
  label = _label(mine, list(recorders.values()))
  first = members[0]
  trainers[first].compile_evaluation(_wrapped(states[first]))
  program, (state, *rest) = _compiled(runs, recorders, states, traced, label)

  def advance(state):
    state, metrics = program(state, *rest)
    metrics = jax.device_get(metrics)
    return state, [trees.take(metrics, i) for i in members]

  def evaluate(state, k, rows, samples):
    return trainers[members[k]].evaluate(part(state, k), rows, samples)

  def part(state, k):
    return _part(state, members[k])

  return loop.run_rounds(
    list(recorders.values()), state, advance, evaluate, part, label
  )


def _compiled(
  runs: Sequence[Run],
  recorders: dict[int, Recorder],
  states: dict[int, State],
  traced: bool,
  label: str,
) -> tuple[Any, tuple]:
  """Compiles the round of all runs; returns it and its arguments on devices."""
  padded, task = padding.padded(runs), runs[0].setup.task

  # Each device gets the same number of runs. States are stacked on the host:
  # those of all runs need not fit on one device.
  mesh = sharding.make(lowering.devices(task.config.system, len(runs)))
  rows = [*range(len(runs))]
  rows += [0] * (-len(rows) % sharding.size(mesh))
  own = {i: states.pop(i) for i in recorders}
  other = next(iter(own.values()))
  stacked = jax.tree.map(
    lambda *x: np.stack(x), *(own.get(i, other) for i in rows)
  )
  del own, other
  by_cohort = zip(*(padded[i].shards for i in rows), strict=True)
  shards = tuple(
    Shard(*each[0][:2], *lowering.stacked([tuple(s[2:]) for s in each]))
    for each in by_cohort
  )
  plans = [runs[i].setup.plans[0] for i in rows]
  scales = [(plan.mean, plan.std) for plan in plans]
  scale = tuple(jnp.asarray(x) for x in zip(*scales, strict=True))
  values = [hyper_parameters(runs[i].setup) for i in rows]
  stacked = sharding.put(mesh, stacked, DIVIDED)
  given = _wrapped(stacked), shards, scale, lowering.stacked(values)
  del stacked
  if mesh is not None:
    specs = lowering.specs(len(shards))
    given = jax.device_put(given, sharding.sharding(mesh, specs))

  # Compile the round of all runs, or reuse a program with the same text.
  begun = time.monotonic()
  scaled = len(set(scales)) > 1
  how = {"scaled": scaled, "traced": traced}
  lowered = lowering.lower(padded[0], mesh, given, **how)
  title = next(iter(recorders.values())).title
  program = once("round", lowered, title, announcing(label)).program
  seconds = (time.monotonic() - begun) / len(recorders)
  for recorder in recorders.values():
    recorder.seconds["compile"] += seconds
  return program, given


def _label(runs: Sequence[Run], recorders: Sequence[Recorder]) -> str:
  labels = dict.fromkeys(recorder.labels[0] for recorder in recorders)
  names = [run.name for run in runs]
  if len(labels) == 1 and all(name.startswith("seed ") for name in names):
    return f"{next(iter(labels))}, seeds {', '.join(n[5:] for n in names)}"
  if len(runs) < 4:
    return "; ".join(recorder.title for recorder in recorders)
  return f"{len(runs)} runs at once, from {recorders[0].title}"


def _on_host(state: State) -> State:
  """Copies a state to NumPy arrays; the PRNG key becomes key data."""
  return jax.device_get(state._replace(key=jax.random.key_data(state.key)))


def _wrapped(state: State) -> State:
  """Converts a NumPy state, single or stacked, to JAX arrays and PRNG keys."""
  state = jax.tree.map(jnp.asarray, state)
  return state._replace(key=jax.random.wrap_key_data(state.key))


def _part(state: State, i: int) -> State:
  """Returns the state of one run, on one device."""
  return jax.device_put(trees.take(state, i), target.current().devices[0])
