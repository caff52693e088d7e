"""The images that each client's networks see in an evaluation.

A client sees its own test samples, or in a partial evaluation only the first
few of them. Clients of a cohort that hold the same network give the same
answers. If it is less work, such clients divide the test split among them: each
classifies a part, and the answers for a client's samples are looked up. One
compiled program serves both cases.
"""

from typing import NamedTuple

import jax
import numpy as np

from splitjax import evaluation
from splitjax.evaluation.exits import Exits
from splitjax.evaluation.subject import Subject


class Shown(NamedTuple):
  """The images that each client classifies, and where its answers are.

  The exits have the answer for test sample m of client n in the row and the
  column `answers[:, n, m]`; the row is that of the client that computed it.
  """

  rows: np.ndarray  #: [N, chunks, B] int32, rows of the task's pool
  chunks: np.ndarray  #: [N] int32, how many of them a client classifies
  answers: np.ndarray  #: [2, N, M] int

  def of(self, exits: Exits) -> Exits:
    """Returns the exits [N, M] for clients' own test samples, on the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[*self.answers], exits)


def show(subject: Subject, samples: int | None, *, personal: bool) -> Shown:
  """Chooses the images that clients see if each is tested on `samples` samples.

  If `samples` is None, each is tested on all of its samples. `personal` is
  true if the clients are personalised.
  """
  task = subject.task
  sets = task.test_sets if samples is None else task.test_sets.first(samples)
  rows = task.shown.copy()
  size = rows.shape[-1]
  ends = (np.arange(1, sets.rows.shape[1] + 1) * (sets.rows >= 0)).max(axis=1)
  chunks = -(-ends // size).astype(np.int32)
  answers = np.indices(sets.rows.shape)
  split = np.arange(len(task.pool))
  count = -(-len(split) // size)
  for cohort in subject.fleet.cohorts:
    # Clients that give the same answers share, if the split has fewer chunks
    # than their test sets together.
    ids = np.array(cohort.ids)
    most = min(len(ids) * rows.shape[1], chunks[ids].sum() - 1)
    alike = not personal and evaluation.alike(subject.method, cohort.depth)
    if count > most or not alike:
      continue

    # Deal chunk i of the split to one of the cohort's clients, evenly over all
    # and so over the devices that hold them.
    turn = np.arange(count) * len(ids) // count
    slot = np.arange(count) - np.searchsorted(turn, turn)
    chunks[ids] = np.bincount(turn, minlength=len(ids))
    rows[ids[turn], slot] = np.resize(split, (count, size))
    chunk, offset = np.divmod(np.maximum(sets.rows[ids], 0), size)
    answers[0, ids] = ids[turn][chunk]
    answers[1, ids] = slot[chunk] * size + offset
  return Shown(rows=rows, chunks=chunks, answers=answers)
