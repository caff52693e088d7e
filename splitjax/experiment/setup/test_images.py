"""Which images each client's networks see in an evaluation, and the way back.

A client sees its own test samples, the first of them in an evaluation of a
part. Clients of a cohort that hold the same network give the same answers:
where it is less work, they share the samples of the split among them. Either is
data of one compiled program.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from splitjax.data import TestSets, test_part
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.types import Array, Exits


class Shown(NamedTuple):
  """What clients see, and what of it is whose.

  Attributes:
    rows: [N, chunks, B] int32 of the task's pool.
    first: [N] int32, of each client the chunks that are computed.
    mine: [N, M, 2] int32: a client's test sample is that of another client in a
      column; None: they are its own first M columns.
    sharing: the clients that share the split.
  """

  rows: Array | np.ndarray
  first: np.ndarray
  mine: np.ndarray | None = None
  sharing: Sequence[int] = ()

  def of(self, exits: Exits, size: int, answers: tuple[str, ...]) -> Exits:
    """The exits [N, size] of the clients' own test samples, on the host.

    `answers` are the sides that answer, as in `types.Traits`.
    """
    if self.mine is None:
      return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :size], exits)
    who, column = np.moveaxis(self.mine, -1, 0)
    found = jax.tree.map(lambda leaf: np.asarray(leaf)[who, column], exits)
    forget_exit(found, self.sharing, answers)
    return found


def forget_exit(
  exits: Exits, sharing: Sequence[int], answers: tuple[str, ...]
) -> None:
  """Erases the exits of clients that share, if these do not answer."""
  if "client" not in answers:
    for leaf in exits[:3]:
      leaf[[*sharing]] = np.nan if leaf.dtype.kind == "f" else -1
    if exits.probabilities is not None:
      exits.probabilities[[*sharing], :, 0] = np.nan


def tested(task: Task, samples: int | None) -> TestSets:
  """The test sets, or so many samples of each client."""
  whole = task.test_sets
  return whole if samples is None else test_part.first(whole, samples)


def chunks(task: Task, samples: int | None) -> np.ndarray:
  """[N] int32: the chunks that have a client's own samples, or so many."""
  real = tested(task, samples).rows >= 0
  last = (np.arange(1, real.shape[1] + 1) * real).max(axis=1)
  return -(-last // task.shown.shape[-1]).astype(np.int32)


def shares(setup: TrainingSetup, c: int, samples: int | None) -> bool:
  """Whether the clients of a cohort, not personalised, share the split.

  That is where they are alike and its samples are fewer than all of theirs.
  """
  task = setup.task
  method, ids = setup.method, list(setup.fleet.cohorts[c].ids)
  if not method.aggregation.alike or method.traits.pick is not None:
    return False
  _, most, size = task.shown.shape
  count = -(-len(task.pool) // size)
  return count <= min(len(ids) * most, chunks(task, samples)[ids].sum() - 1)


def show(
  setup: TrainingSetup,
  samples: int | None,
  *,
  personal: bool,
) -> Shown:
  """What clients see for so many test samples of each; None: for all."""
  task = setup.task
  first, sets = chunks(task, samples), tested(task, samples)
  cohorts = setup.fleet.cohorts
  shared = [
    c for c in range(len(cohorts)) if not personal and shares(setup, c, samples)
  ]
  if not shared:
    return Shown(task.shown, first)
  rows = np.array(task.shown)
  clients, size = len(rows), rows.shape[-1]
  own = np.arange(sets.rows.shape[1])
  mine = np.stack(np.broadcast_arrays(np.arange(clients)[:, None], own), -1)
  mine = mine.astype(np.int32)
  split = np.arange(len(task.pool))
  for c in shared:
    # Chunk i of the split goes to one of the cohort's clients, evenly over all
    # and so over the devices that hold them.
    ids = np.array(cohorts[c].ids)
    count = -(-len(split) // size)
    turn = np.arange(count) * len(ids) // count
    place = np.arange(count) - np.searchsorted(turn, turn)
    first[ids] = np.bincount(turn, minlength=len(ids))
    rows[ids[turn], place] = np.resize(split, (count, size))
    where = np.stack(
      [ids[turn][split // size], place[split // size] * size + split % size], -1
    )
    mine[ids] = where[np.maximum(sets.rows[ids], 0)]  # padding: sample 0
  sharing = [n for c in shared for n in cohorts[c].ids]
  return Shown(rows, first, mine, sharing)
