"""The runs of a group, and their padding to common shapes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.data.feed import BatchPlan
from splitjax.engine.faults import Schedule
from splitjax.experiment.setup import training_setup
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.types import Shard, UserError


class Run(NamedTuple):
  """One method of one config.

  Attributes:
    name: the config's label, such as "seed 1".
    workdir: the config's folder.
    setup: the method's setup. Runs with equal data share the data's arrays on
      the device.
    finished: true if an earlier start finished the run.
  """

  name: str
  workdir: Path
  setup: TrainingSetup
  finished: bool = False

  @property
  def title(self) -> str:
    """The run's name and method, unique among the runs of a start."""
    return f"{self.name}: {self.setup.key}"


def padded(runs: Sequence[Run]) -> list[TrainingSetup]:
  """Pads the setups of runs to common shapes; random draws stay the same.

  Raises:
    UserError: the runs differ in more than padding can make equal.
  """
  own = [run.setup for run in runs]
  system = runs[0].setup.task.config.system
  field = f"system.settings_batched={system.settings_batched}"
  if system.seeds_batched:
    field = "system.seeds_batched=True"

  # The runs must read the same images.
  if len({setup.task.facts["digest"] for setup in own}) > 1:
    raise UserError(
      f"{field}: data.domain gives each seed other images; leave {field} out,"
      " and the seeds train one after another"
    )
  # Cohorts must have the same depths, numbers of clients and padded sizes.
  fleets = [setup.fleet.cohorts for setup in own]
  kinds = {tuple((c.family, c.depth, len(c.ids)) for c in x) for x in fleets}
  if len(kinds) > 1:
    raise UserError(
      f"{field}: fleet.allocation gives each seed other numbers of clients by"
      f" depth; leave {field} out, and the seeds train one after another"
    )
  places = {tuple(len(cohort.places) for cohort in each) for each in fleets}
  if len(places) > 1:
    raise UserError(
      f"{field}: runs differ in the size of their chunks; set"
      " system.clients_per_chunk to a number"
    )

  # Batch sizes must be equal; the most steps of any run are enough for all.
  plans: list[BatchPlan] = []
  for every in zip(*(setup.plans for setup in own), strict=True):
    sizes = {plan.batch for plan in every}
    if len(sizes) > 1:
      batches = " and ".join(map(str, sorted(sizes)))
      names = " and ".join(run.name for run in runs)
      raise UserError(
        f"{field}: {names} differ in batch ({batches}) and cannot train side by"
        " side; leave it out, or choose a batch_size that every client fills"
      )
    assert len(set(map(static, every))) == 1, every
    steps = max(plan.steps for plan in every)
    equal = all(plan.equal and plan.steps == steps for plan in every)
    epochs = max(plan.epochs for plan in every)
    plans.append(every[0]._replace(steps=steps, equal=equal, epochs=epochs))

  # Rows of samples are padded to the largest client of any run.
  widths = [
    max(map(_width, every))
    for every in zip(*(setup.shards for setup in own), strict=True)
  ]
  return [
    setup._replace(
      plans=tuple(plans),
      shards=tuple(
        _widened(setup, *each)
        for each in zip(setup.shards, widths, plans, strict=True)
      ),
    )
    for setup in _equally_faulty(own)
  ]


def static(plan: BatchPlan) -> BatchPlan:
  """Returns the parts of a plan that must be equal in runs side by side."""
  epochs = plan.epochs if plan.limit is None else 0
  return plan._replace(steps=0, equal=False, mean=(), std=(), epochs=epochs)


def _equally_faulty(setups: list[TrainingSetup]) -> list[TrainingSetup]:
  """Adds tables of faults, so that all runs have tables of the same kinds.

  A deadline, for example, may cut clients short in one run and leave them out
  in another, which are two kinds of fault. A run that lacks the table of a kind
  gets a table in which no fault is planned.
  """
  found = [Schedule(*each.shards[0].schedule) for each in setups]
  usual: dict[str, Any] = {"dropout": False, "server_down": False}
  usual["straggler"] = np.float32(1)
  for kind in list(usual):
    if all(getattr(each, kind) is None for each in found):
      del usual[kind]
  if not usual:
    return setups

  def filled(shard: Shard, rounds: int) -> Shard:
    schedule, size = Schedule(*shard.schedule), (len(shard.number), rounds)
    for kind, value in usual.items():
      if getattr(schedule, kind) is None:
        schedule = schedule._replace(**{kind: jnp.full(size, value)})
    return shard._replace(schedule=schedule)

  return [
    each._replace(
      shards=tuple(filled(x, each.task.config.rounds) for x in each.shards)
    )
    for each in setups
  ]


def _width(shard: Shard) -> int:
  """Returns the larger width of a cohort's tables `rows` and `held`."""
  return max(x.shape[1] for x in jax.tree.leaves((shard.rows, shard.held)))


def _widened(
  setup: TrainingSetup, shard: Shard, width: int, plan: BatchPlan
) -> Shard:
  """Pads the rows of a cohort's shard to `width` samples of each client."""
  more = width - shard.rows.shape[1]
  rows = jnp.pad(shard.rows, ((0, 0), (0, more)), constant_values=-1)
  shard = shard._replace(rows=rows)
  if setup.method.traits.validates:
    more = width - shard.held.shape[1]
    held = jnp.pad(shard.held, ((0, 0), (0, more)), constant_values=-1)
    shard = shard._replace(held=held)
  return training_setup.with_turns(setup.task, setup.method, shard, plan)
