"""The data of a fleet's cohorts, and the batches that they train on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.data import feed
from splitjax.data.feed import BatchPlan
from splitjax.data.partitions import Parts, padded
from splitjax.fleet import orders
from splitjax.fleet.fleets import Fleet
from splitjax.fleet.orders import IN_TURN, Queue
from splitjax.types import Shard

if TYPE_CHECKING:
  from splitjax.methods.method import Method


def deal(
  method: "Method",
  fleet: Fleet,
  split: tuple[Array, Array],
  parts: Parts,
  plan: BatchPlan,
  queue: Queue,
  validation: Parts = (),
  groups: np.ndarray | None = None,
) -> tuple[tuple[BatchPlan, ...], tuple[Shard, ...], Queue]:
  """Returns each cohort's plan and data, and the queue of a method's clients.

  `split` are inputs [Z, ...] and labels [Z] int32; `parts` and `validation` are
  rows of it for each client. `plan` has the epochs of a round without its limit
  of steps. `groups` [N] int are those of the partition, if it has any. If the
  method's clients are served in turn, their order goes by these groups, or else
  by the label of most of a client's samples, in a tie the lowest.
  """
  sizes = np.array([len(part) for part in parts])
  epochs = feed.epochs(plan.epochs, plan.limit, sizes, plan.batch)
  plan = plan._replace(epochs=epochs)
  plans = []
  shards = []
  for cohort in fleet.cohorts:
    ids = list(cohort.ids)
    numbers = list(cohort.numbers)  # of padding clients, too
    of_cohort = plan.for_clients(sizes[ids].tolist())
    rows = [parts[number] for number in numbers]
    shard = feed.shards(*split, rows, method.backbone.classes, numbers)
    counts = np.asarray(shard.counts)[: len(ids)]
    if validation:
      held_back = jnp.asarray(padded(validation)[numbers])
      shard = shard._replace(validation=held_back)
    group = group_of(method, fleet, counts, ids)
    if group is None and groups is not None:
      group = groups[ids]
    if group is not None:
      of_places = np.array(group, np.int32)[cohort.places]
      shard = shard._replace(group=jnp.asarray(of_places))
    if method.topology in IN_TURN:
      steps, _ = of_cohort.of_round(sizes[ids])
      label = counts.argmax(axis=1) if groups is None else groups[ids]
      queue = queue._replace(steps=steps, label=label)
      table = orders.positions_of_steps(queue, of_cohort, len(numbers))
      shard = shard._replace(service_order=jnp.asarray(table))
    plans.append(of_cohort)
    shards.append(shard)
  return tuple(plans), tuple(shards), queue


def group_of(
  method: "Method", fleet: Fleet, counts: np.ndarray, ids: Sequence[int]
) -> np.ndarray | None:
  """Returns the groups [n] of clients `ids` with class counts [n, C], or None.

  They are places of `Method.cuts` in the backbone's cuts, or `Method.group`.
  """
  cuts = method.cuts(fleet)
  if cuts is None:
    return method.group(counts)
  return np.searchsorted(method.backbone.cuts, cuts[ids])
