"""The images that each client's networks see in an evaluation.

A client sees its own test samples, or in a partial evaluation only the first
few of them. Clients of a cohort that hold the same network give the same
answers. If it is less work, such clients divide the test split among them: each
classifies a part, and the answers for a client's samples are looked up. One
compiled program serves both cases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from splitjax import evaluation
from splitjax.data import TestSets
from splitjax.evaluation.exits import Exits
from splitjax.evaluation.subject import Subject
from splitjax.experiment.task import Task


class Shown(NamedTuple):
  """The images that each client classifies, and where its answers are.

  `answers` [N, M, 2] int32 has the row and the column in which the exits have
  the answer for test sample m of client n; the row is that of the client that
  computed it. None: they are the first M columns of the client's own row.
  """

  rows: Array | np.ndarray  #: [N, chunks, B] int32, rows of the task's pool
  chunks: np.ndarray  #: [N] int32, how many of them a client classifies
  answers: np.ndarray | None = None
  sharing: Sequence[int] = ()  #: clients that divide the test split

  def of(self, exits: Exits, size: int, sides: tuple[str, ...]) -> Exits:
    """Returns the exits [N, size] for clients' own test samples, on the host.

    `sides` are those that predict, as in `Method.answers`. If the client's exit
    does not, its outputs are erased where clients share.
    """
    if self.answers is None:
      return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :size], exits)
    who, column = np.moveaxis(self.answers, -1, 0)
    picked = jax.tree.map(lambda leaf: np.asarray(leaf)[who, column], exits)
    if "client" not in sides:
      for leaf in picked[:3]:
        leaf[[*self.sharing]] = np.nan if leaf.dtype.kind == "f" else -1
      if picked.probabilities is not None:
        picked.probabilities[[*self.sharing], :, 0] = np.nan
    return picked


def tested(task: Task, samples: int | None) -> TestSets:
  """Returns the test sets, or only `samples` test samples of each client."""
  sets = task.test_sets
  return sets if samples is None else sets.first(samples)


def chunks(task: Task, samples: int | None) -> np.ndarray:
  """Counts the chunks that each client's tested samples take, [N]."""
  real = tested(task, samples).rows >= 0
  ends = (np.arange(1, real.shape[1] + 1) * real).max(axis=1)
  return -(-ends // task.shown.shape[-1]).astype(np.int32)


def shares(subject: Subject, cohort: int, samples: int | None) -> bool:
  """Checks if a cohort's clients divide the test split among them.

  They divide it if all of them give the same answers (none is personalised),
  and if the split has fewer chunks than their test sets have in total.
  """
  task = subject.task
  ids = list(subject.fleet.cohorts[cohort].ids)
  if not evaluation.alike(subject.method, subject.fleet.cohorts[cohort].depth):
    return False
  _, most, size = task.shown.shape
  count = -(-len(task.pool) // size)
  return count <= min(len(ids) * most, chunks(task, samples)[ids].sum() - 1)


def show(
  subject: Subject,
  samples: int | None,
  *,
  personal: bool,
) -> Shown:
  """Chooses the images that clients see if each is tested on `samples` samples.

  If `samples` is None, each is tested on all of its samples. `personal` is
  true if the clients are personalised.
  """
  task = subject.task
  counts = chunks(task, samples)
  sets = tested(task, samples)
  cohorts = subject.fleet.cohorts
  shared = [
    c
    for c in range(len(cohorts))
    if not personal and shares(subject, c, samples)
  ]
  if not shared:
    return Shown(task.shown, counts)
  rows = np.array(task.shown)
  clients = len(rows)
  size = rows.shape[-1]
  columns = np.arange(sets.rows.shape[1])
  pairs = np.broadcast_arrays(np.arange(clients)[:, None], columns)
  answers = np.stack(pairs, -1).astype(np.int32)
  split = np.arange(len(task.pool))
  for c in shared:
    # Deal chunk i of the split to one of the cohort's clients, evenly over all
    # and so over the devices that hold them.
    ids = np.array(cohorts[c].ids)
    count = -(-len(split) // size)
    turn = np.arange(count) * len(ids) // count
    slot = np.arange(count) - np.searchsorted(turn, turn)
    counts[ids] = np.bincount(turn, minlength=len(ids))
    rows[ids[turn], slot] = np.resize(split, (count, size))
    sources = np.stack(
      [ids[turn][split // size], slot[split // size] * size + split % size], -1
    )
    answers[ids] = sources[
      np.maximum(sets.rows[ids], 0)
    ]  # padding reads sample 0
  sharing = [n for c in shared for n in cohorts[c].ids]
  return Shown(rows, counts, answers, sharing)


def split_proxies(task: Task, both: Exits) -> list[Exits]:
  """Splits `both` into the exits of held-out samples and of proxies, [N, H]."""
  assert task.held is not None
  count = task.held.rows.shape[1]
  return [
    jax.tree.map(lambda x, rows=rows: np.asarray(x)[:, rows], both)
    for rows in (slice(count), slice(count, 2 * count))
  ]
