"""The pathological partition: exactly k classes, shared fairly."""

import numpy as np
import pytest

from splitjax.data.pathological import pathological
from splitjax.types import UserError

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


def table(labels, parts):
  """[C, N] samples of each class that each client has."""
  classes = labels.max() + 1
  columns = [np.bincount(labels[p], minlength=classes) for p in parts]
  return np.stack(columns, axis=1)


def test_by_hand():
  # Two classes of 7 for three clients with both: 2, 2 and 3 of each class, and
  # nobody has the 3 twice: 4, 5 and 5 in all.
  labels = np.arange(14) % 2
  held = table(labels, pathological(labels, 3, 0, k=2))
  assert [sorted(row) for row in held.tolist()] == [[2, 2, 3], [2, 2, 3]]
  assert sorted(held.sum(axis=0)) == [4, 5, 5]


def test_uniform_shares_are_those_of_the_distribution():
  # Ten holders share 1,000 samples in proportion to U(0.4, 0.6): mean 100, sd
  # 0.2 / sqrt(12) / 0.5 = 11.5 % less a little that the sum takes back, sides
  # 80 and 120 over the mean of the ten, which is 1 +- 0.036.
  labels = np.repeat(np.arange(10), 1000)
  held = table(labels, pathological(labels, 100, 0, k=1, shares="uniform"))
  shares = held[held > 0]
  assert 9.5 < shares.std() < 12.5
  assert 72 <= shares.min() < 85 and 115 < shares.max() <= 134


def test_one_client_with_one_of_three_classes():
  # Two classes are held by nobody and stay where they are.
  labels = np.array([2, 0, 1, 0, 2, 0])
  rows = {
    tuple(pathological(labels, 1, seed, k=1)[0].tolist()) for seed in range(30)
  }
  assert rows == {(1, 3, 5), (2,), (0, 4)}


def test_pairs_of_classes_are_random():
  # All 45 pairs of 10 classes occur among 1,000 clients; dealt in order, or in
  # a cycle, there would be 5 or 10.
  labels = np.arange(10000) % 10
  parts = pathological(labels, 1000, 0, k=2)
  assert len({tuple(np.unique(labels[p])) for p in parts}) == 45


def test_neighbours_are_no_complements():
  # Dealt from a pack, each five successive clients hold all ten classes. They
  # are shuffled, so that the number of a client says nothing.
  labels = np.arange(10000) % 10
  parts = pathological(labels, 500, 0, k=2)
  fives = [np.concatenate(parts[i : i + 5]) for i in range(0, 500, 5)]
  full = sum(len(np.unique(labels[rows])) == 10 for rows in fives)
  assert full < 20  # by chance 945 * 5! in 45 ** 5, so hardly ever


@pytest.mark.parametrize(
  ("labels", "clients", "k", "message"),
  [
    (
      LABELS, 50, 11,
      "data.partition.k = 11: must be at most 10, the classes that occur.*",
    ),
    (
      np.repeat([3, 5, 8], [100, 9, 100]), 15, 2,
      "num_clients = 15: with data.partition.k = 2 the 9 samples of class 5"
      " are for 10 clients; lower it or k",
    ),
  ],
)  # fmt: skip
def test_refuses(labels, clients, k, message):
  with pytest.raises(UserError, match=f"^{message}$"):
    pathological(labels, clients, 0, k=k)
