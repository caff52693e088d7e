"""Partitions by classes, worked by hand: Hydra's, and exactly k of them."""

import numpy as np
import pytest
from refusals import refused

from splitjax.data import custom_shard, dominant_label, pathological

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


def table(labels, parts):
  """[C, N] samples of each class that each client has."""
  classes = labels.max() + 1
  columns = [np.bincount(labels[p], minlength=classes) for p in parts]
  return np.stack(columns, axis=1)


def test_dominant_label_by_hand():
  # Two labels of 20 and 40, phi = 2: clients 0 and 2 have label 0, clients 1
  # and 3 label 1. p = 80: of label 0, 16 go to 0 and 2 and 4 to 1 and 3; of
  # label 1, 32 to 1 and 3 and 8 to 0 and 2; each in halves.
  labels = np.random.default_rng(0).permutation(np.repeat([0, 1], [20, 40]))
  parts = dominant_label(labels, 4, 0, p=80.0, phi=2)
  np.testing.assert_array_equal(
    table(labels, parts), [[8, 2, 8, 2], [4, 16, 4, 16]]
  )


def test_dominant_label_of_hydra():
  # phi = 5: 160 / 5 of the own label, 40 / 45 of the other nine: 0 or 1. That
  # is 32 + 8 = 40 samples for everyone, were samples divisible.
  held = table(LABELS, dominant_label(LABELS, 50, 0))
  for c in range(50):
    others = np.delete(held[:, c], c % 10)
    assert held[c % 10, c] == 32 and others.max() <= 1
  assert (held.sum(axis=0) == 40).all()


def test_custom_shard_by_hand():
  # L = 4, n = 2: group g has labels g and g + 1. p = 80: of a label's 20
  # samples 8 go to each of its two groups, 2 to each of the others. Groups 0
  # and 1 have two clients each (0, 4 and 1, 5), groups 2 and 3 one.
  labels = np.random.default_rng(0).permutation(np.arange(80) % 4)
  held = table(labels, custom_shard(labels, 6, 0, p=80.0, n_dominant=2))
  #                group 0  1  2  3  0  1
  np.testing.assert_array_equal(
    held,
    [
      [4, 1, 2, 8, 4, 1],
      [4, 4, 2, 2, 4, 4],
      [1, 4, 8, 2, 1, 4],
      [1, 1, 8, 8, 1, 1],
    ],
  )


def test_the_odd_sample_is_not_always_the_same_clients():
  # All 10 of a label to its 3 clients: one of them has 4.
  labels = np.repeat([0, 1], 10)
  favoured = {
    np.argmax([len(p) for p in dominant_label(labels, 6, s, p=100.0)[::2]])
    for s in range(30)
  }
  assert favoured == {0, 1, 2}


def test_samples_within_a_class_are_random():
  # Client 0 gets 160 of the 200 rows of class 0, from all over it; the tenth
  # and last of the others as well.
  labels = np.repeat(np.arange(10), 200)
  parts = dominant_label(labels, 10, 0)
  for label in range(10):
    rows = parts[(label + 9) % 10]
    rows = rows[labels[rows] == label] - 200 * label
    assert 0 < len(rows) < 10 and np.ptp(rows) > 60


@pytest.mark.parametrize(
  ("deal", "labels", "clients", "options", "field"),
  [
    (dominant_label, LABELS, 25, {}, "data.partition.phi"),
    (dominant_label, LABELS, 50, {"phi": 4}, "data.partition.phi"),
    (custom_shard, LABELS, 50, {"n_dominant": 10}, "data.partition.n_dominant"),
    (custom_shard, LABELS, 9, {}, "num_clients"),
    (custom_shard, np.arange(9) % 2, 4, {}, "data.partition.name"),
    # The 2 samples of class 3 cannot be shared by 3 clients.
    (dominant_label, [0] * 30 + [3] * 2, 6, {"p": 100.0}, "num_clients"),
  ],
)
def test_refuses(deal, labels, clients, options, field):
  with refused(field):
    deal(np.array(labels), clients, 0, **options)


@pytest.mark.parametrize("deal", [dominant_label, custom_shard])
def test_as_many_clients_as_samples(deal):
  # Every group is due 200 samples and gets 200, not 199 and 201.
  assert {len(p) for p in deal(LABELS, 2000, 0)} == {1}


def test_pathological_by_hand():
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


def test_pathological_refuses():
  with refused("data.partition.k"):
    pathological(LABELS, 50, 0, k=11)
  with refused("num_clients"):
    pathological(np.repeat([3, 5, 8], [100, 9, 100]), 15, 0, k=2)
