"""Random parts of clients' test samples, for evaluations during training."""

import numpy as np

from splitjax.data.test_sets import TestSets

_PART = 0x9A47
"""Number that separates the draw of orders from others of the same seed."""


def in_random_order(test_sets: TestSets, seed: int) -> TestSets:
  """Shuffles each client's test samples, so that any prefix is a random part.

  Every client has a different order, so that clients with the same samples are
  judged on different parts of them. Padding comes last.

  Args:
    test_sets: test sets of all clients.
    seed: fixes the orders.
  """
  rng = np.random.default_rng((seed, _PART))
  rank = rng.random(test_sets.rows.shape)
  rank[test_sets.rows < 0] = 1  # above all others
  order = rank.argsort(axis=1)
  return test_sets._replace(
    rows=np.take_along_axis(test_sets.rows, order, axis=1),
    label=np.take_along_axis(test_sets.label, order, axis=1),
    sets=np.take_along_axis(test_sets.sets, order[None], axis=2),
  )


def first(test_sets: TestSets, count: int) -> TestSets:
  """Keeps the first `count` samples of every client, or all if it has fewer."""
  return test_sets._replace(
    rows=test_sets.rows[:, :count],
    label=test_sets.label[:, :count],
    sets=test_sets.sets[:, :, :count],
  )
