"""Runs that train together: what each is, and how they get common shapes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax.data.feed import Plan
from splitjax.experiment import training_setup
from splitjax.experiment.program_identity import hyper_parameters
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.methods import hyper
from splitjax.types import Method, Shard, UserError


class Run(NamedTuple):
  """One method of one config.

  Attributes:
    name: of the config, for people, such as "seed 1".
    workdir: its config's.
    task: its config's; those on the same data share it on the device.
    federation: the method in its task.
    finished: whether it has been trained before.
  """

  name: str
  workdir: Path
  task: Task
  federation: Federation
  finished: bool = False

  @property
  def title(self) -> str:
    """Its name and method, unique among the runs of a start."""
    return f"{self.name}: {self.federation.key}"

  @property
  def values(self) -> hyper.Values:
    """Its hyper-parameters."""
    return hyper_parameters(self.task.config, self.federation.key)


def padded(runs: Sequence[Run]) -> list[Federation]:
  """The federations of runs, padded to common shapes: this changes no draw.

  Raises:
    UserError: the runs differ in more than that.
  """
  own = [run.federation for run in runs]
  system = runs[0].task.config.system
  field = f"system.settings_batched={system.settings_batched}"
  if system.seeds_batched:
    field = "system.seeds_batched=True"

  # Depths and chunks must be as many.
  fleets = [federation.fleet.cohorts for federation in own]
  if len({tuple((c.depth, len(c.ids)) for c in each) for each in fleets}) > 1:
    raise UserError(
      f"{field}: fleet.allocation gives each seed other numbers of clients by"
      " depth; leave it out: they train one after another"
    )
  places = {tuple(len(cohort.places) for cohort in each) for each in fleets}
  if len(places) > 1:
    raise UserError(
      f"{field}: runs differ in the size of their chunks; set"
      " system.clients_per_chunk to a number"
    )

  # Batches must be as large; the most steps of any run are enough for all.
  plans: list[Plan] = []
  for every in zip(*(federation.plans for federation in own), strict=True):
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
    plans.append(every[0]._replace(steps=steps, equal=equal))

  # Rows of samples are padded to the largest client of any run.
  widths = [
    max(map(_width, every))
    for every in zip(*(federation.shards for federation in own), strict=True)
  ]
  return [
    federation._replace(
      plans=tuple(plans),
      shards=tuple(
        _widened(run.task, federation.method, *each)
        for each in zip(federation.shards, widths, plans, strict=True)
      ),
    )
    for run, federation in zip(runs, own, strict=True)
  ]


def static(plan: Plan) -> Plan:
  """What must be equal in the plans of runs that train side by side."""
  return plan._replace(steps=0, equal=False, mean=(), std=())


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
  return training_setup.with_turns(task, method, shard, plan)
