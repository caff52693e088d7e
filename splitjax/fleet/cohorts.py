"""The data of a fleet's cohorts, and the batches that they train on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.data import feed
from splitjax.data.feed import BatchPlan
from splitjax.data.partitions import padded
from splitjax.fleet.fleets import Fleet
from splitjax.fleet.orders import Queue, with_service_order
from splitjax.types import Shard

if TYPE_CHECKING:
  from splitjax.methods.method import Method


def deal(
  method: "Method",
  fleet: Fleet,
  split: tuple[Array, Array],
  parts: Sequence[np.ndarray],
  plan: BatchPlan,
  queue: Queue,
  *,
  validation: Sequence[np.ndarray] = (),
  groups: np.ndarray | None = None,
) -> tuple[tuple[BatchPlan, ...], tuple[Shard, ...]]:
  """Returns the plan and the data of each cohort of a method's clients.

  `split` are inputs [Z, ...] and labels [Z] int32. `parts` and `validation` are
  rows of it, an array for each client. `plan` has the epochs of a round without
  its limit of steps. `groups` [N] int are those of the partition, if any.
  """
  sizes = np.array([len(part) for part in parts])
  epochs = feed.epochs(plan.epochs, plan.limit, sizes, plan.batch)
  plan = plan._replace(epochs=epochs)
  plans = []
  shards = []
  for cohort in fleet.cohorts:
    of_cohort = plan.for_clients(sizes[list(cohort.ids)].tolist())
    numbers = list(cohort.numbers)  # of padding clients, too
    rows = [parts[number] for number in numbers]
    shard = feed.shards(*split, rows, method.backbone.classes, numbers)
    if validation:
      held_back = jnp.asarray(padded(validation)[numbers])
      shard = shard._replace(validation=held_back)
    if groups is not None:
      shard = shard._replace(group=jnp.asarray(groups[numbers], np.int32))
    shard = with_service_order(method, shard, of_cohort, fleet, queue, groups)
    plans.append(of_cohort)
    shards.append(shard)
  return tuple(plans), tuple(shards)
