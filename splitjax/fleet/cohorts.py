"""The data of a fleet's cohorts, and the batches that they train on."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.data.feed import BatchPlan
from splitjax.data.partitions import Parts, padded
from splitjax.fleet import orders
from splitjax.fleet.fleets import Fleet
from splitjax.fleet.orders import IN_TURN, Queue
from splitjax.types import Shard, Tree

if TYPE_CHECKING:
  from splitjax.methods.method import Method

_int32 = functools.partial(jnp.asarray, dtype=jnp.int32)


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
  rows of it for each client. `groups` [N] int are those of the partition, if it
  has any. If the method's clients are served in turn, their order goes by these
  groups, or else by the label of most of a client's samples, in a tie the
  lowest.
  """
  image, label = split
  host_label = np.asarray(label)
  count = functools.partial(np.bincount, minlength=method.backbone.classes)
  counts = np.stack([count(host_label[part]) for part in parts])  # [N, C]
  sizes = counts.sum(axis=1)
  plans = []
  shards = []
  for cohort in fleet.cohorts:
    ids = list(cohort.ids)
    with_padding = list(cohort.numbers)
    of_cohort = plan.for_clients(sizes[ids].tolist())
    group = group_of(method, fleet, counts[ids], ids)
    if group is None and groups is not None:
      group = groups[ids]
    held_back: Tree = ()
    if validation:
      held_back = _int32(padded(validation)[with_padding])
    order: Tree = ()
    if method.topology in IN_TURN:  # all clients are in this cohort
      steps, _ = of_cohort.of_round(sizes[ids])
      served = counts[ids].argmax(axis=1) if groups is None else groups[ids]
      queue = queue._replace(steps=steps, group=served)
      width = len(with_padding)
      order = _int32(orders.positions_of_steps(queue, of_cohort, width))
    plans.append(of_cohort)
    shards.append(
      Shard(
        image=image,
        label=label,
        rows=_int32(padded([parts[number] for number in with_padding])),
        size=_int32(sizes[with_padding]),
        counts=_int32(counts[with_padding]),
        number=_int32(with_padding),
        service_order=order,
        group=() if group is None else _int32(group[cohort.places]),
        validation=held_back,
      )
    )
  return tuple(plans), tuple(shards), queue


def group_of(
  method: "Method", fleet: Fleet, counts: np.ndarray, ids: Sequence[int]
) -> np.ndarray | None:
  """Returns the groups [n] of clients `ids` with class counts [n, C], or None.

  A client's group is the index of its cut in `backbone.cuts`, or if the method
  has no cuts, `Method.group`.
  """
  cuts = method.cuts(fleet)
  if cuts is None:
    return method.group(counts)
  return np.searchsorted(method.backbone.cuts, cuts[ids])
