"""Hydra's partitions, worked by hand; every refusal."""

import numpy as np
import pytest

from splitjax.data.dominant import custom_shard, dominant_label
from splitjax.types import UserError

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
  ("deal", "labels", "clients", "options", "message"),
  [
    (
      dominant_label, LABELS, 25, {},
      "data.partition.phi = 'auto': 25 clients are no multiple of the 10"
      " labels; set num_clients to 20 or 30",
    ),
    (
      dominant_label, LABELS, 5, {},
      "data.partition.phi = 'auto': 5 .* set num_clients to 10",
    ),
    (
      dominant_label, LABELS, 50, {"phi": 4},
      "data.partition.phi = 4: for 10 labels needs num_clients = 40, not 50;"
      " set that to 40, or phi to 'auto'",
    ),
    (
      custom_shard, LABELS, 50, {"n_dominant": 10},
      "data.partition.n_dominant = 10: must be at most 9: not all of the 10.*",
    ),
    (
      custom_shard, LABELS, 9, {},
      "num_clients = 9: data.partition custom_shard has a group for each of"
      " 10 labels; set it to 10 or more",
    ),
    (
      dominant_label, np.zeros(9, int), 4, {},
      "data.partition.name = 'dominant_label': needs 2 labels or more; the"
      " training samples have 1",
    ),
    (
      custom_shard, np.arange(9) % 2, 4, {},
      ".*'custom_shard': needs 3 .* have 2",
    ),
    (  # p = 100: the 2 samples of class 3 cannot be shared by 3 clients
      dominant_label, np.repeat([0, 3], [30, 2]), 6, {"p": 100.0},
      r"num_clients = 6: with data.partition.p = 100 only 2 sample\(s\) are for"
      r" the 3 client\(s\) whose dominant label is 3; lower it, or set p nearer"
      " to 50, an even split",
    ),
  ],
)  # fmt: skip
def test_refuses(deal, labels, clients, options, message):
  with pytest.raises(UserError, match=f"^{message}$"):
    deal(labels, clients, 0, **options)


def test_dominant_label_all_or_nothing():
  held = table(LABELS, dominant_label(LABELS, 20, 0, p=100.0))
  for c in range(20):
    assert held[c % 10, c] == 100 and held[:, c].sum() == 100
  held = table(LABELS, dominant_label(LABELS, 20, 0, p=0.0))
  for c in range(20):
    assert held[c % 10, c] == 0 and 0 < np.delete(held[:, c], c % 10).min()


@pytest.mark.parametrize("deal", [dominant_label, custom_shard])
def test_an_even_deal(deal):
  # p = 100 n / L: 200 samples of a class over 20 clients are 10 each.
  p = 10.0 if deal is dominant_label else 20.0
  assert (table(LABELS, deal(LABELS, 20, 0, p=p)) == 10).all()


def test_custom_shard_of_hydra():
  # N = L = 10: 0.4 of classes c and c + 1, 0.2 / 8 of the others: 80 and 5.
  held = table(LABELS, custom_shard(LABELS, 10, 0))
  for c in range(10):
    own = [c, (c + 1) % 10]
    assert (held[own, c] == 80).all()
    assert (np.delete(held[:, c], own) == 5).all()


def test_custom_shard_with_one_other_group():
  # n = L - 1: 30 / 3 % to three groups, 70 % to the fourth, that of l + 1.
  labels = np.arange(400) % 4
  held = table(labels, custom_shard(labels, 4, 0, p=30.0, n_dominant=3))
  for label in range(4):
    assert held[label, (label + 1) % 4] == 70
    assert np.delete(held[label], (label + 1) % 4).tolist() == [10, 10, 10]


@pytest.mark.parametrize("deal", [dominant_label, custom_shard])
def test_as_many_clients_as_samples(deal):
  # Every group is due 200 samples and gets 200, not 199 and 201.
  assert {len(p) for p in deal(LABELS, 2000, 0)} == {1}
