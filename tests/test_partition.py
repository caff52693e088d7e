"""Partitions: who holds which training samples."""

import time

import numpy as np
import pytest

from splitjax.data import PARTITIONS, partition
from splitjax.types import UserError

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


def assert_disjoint(parts, samples):
  rows = np.concatenate(parts)
  assert len(np.unique(rows)) == len(rows)
  assert rows.min() >= 0 and rows.max() < samples


@pytest.mark.parametrize("name", PARTITIONS)
def test_contract(name):
  parts = PARTITIONS[name](LABELS, 50, 3)
  again = PARTITIONS[name](LABELS, 50, 3)
  other = PARTITIONS[name](LABELS, 50, 4)
  assert len(parts) == 50
  assert_disjoint(parts, len(LABELS))
  # 50 clients with 2 of 100 shards use everything, as the others always do.
  assert sum(map(len, parts)) == len(LABELS)
  for rows in parts:
    assert rows.dtype == np.int64 and len(rows) > 0
  for a, b in zip(parts, again, strict=True):
    np.testing.assert_array_equal(a, b)
  assert any(
    not np.array_equal(a, b) for a, b in zip(parts, other, strict=True)
  )


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("clients", [0, 2001])
def test_every_client_needs_a_sample(name, clients):
  with pytest.raises(UserError, match=f"num_clients = {clients}.*2000"):
    PARTITIONS[name](LABELS, clients, 0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_shard_gives_at_most_k_classes(k):
  parts = partition.shard(LABELS, 30, 0, k=k, num_shards=100)
  for rows in parts:
    assert len(rows) == k * 20  # a shard: 2000 / 100
    assert len(np.unique(LABELS[rows])) <= k


def test_shard_leaves_the_rest_unused():
  parts = partition.shard(LABELS, 30, 0)  # 60 of the 100 shards
  assert_disjoint(parts, len(LABELS))
  assert sum(map(len, parts)) == 60 * 20


def test_shard_by_hand():
  # Sorted stably, the rows are 1 3 5 | 0 2 4: two chunks of three rows.
  labels = np.array([1, 0, 1, 0, 1, 0])
  parts = partition.shard(labels, 2, 0, k=1, num_shards=2)
  assert sorted(p.tolist() for p in parts) == [[0, 2, 4], [1, 3, 5]]


def test_shard_keeps_the_order_within_a_class():
  # Two shards a class: one has its first 100 rows, the other its last 100.
  parts = partition.shard(LABELS, 20, 0, k=1, num_shards=20)
  for c in range(10):
    first, last = sorted(
      (p for p in parts if LABELS[p[0]] == c), key=lambda p: p[0]
    )
    np.testing.assert_array_equal(
      np.concatenate([first, last]), np.flatnonzero(LABELS == c)
    )


def test_shard_spreads_the_remainder():
  # 2000 = 7 * 285 + 5: five shards of 286 and two of 285.
  parts = partition.shard(LABELS, 7, 0, k=1, num_shards="auto")
  assert sorted(map(len, parts)) == [285] * 2 + [286] * 5


def test_shard_auto_uses_everything():
  parts = partition.shard(LABELS, 9, 0, k=4, num_shards="auto")
  assert_disjoint(parts, len(LABELS))
  assert sum(map(len, parts)) == len(LABELS)


def test_shard_deals_at_random():
  # In order, client 0 would hold the first two shards, both of class 0.
  parts = partition.shard(LABELS, 50, 0)
  pairs = [len(np.unique(LABELS[rows])) for rows in parts]
  assert pairs.count(2) > 25


@pytest.mark.parametrize(
  "options, message",
  [
    (dict(k=0), r"data.partition.k = 0"),
    (dict(k=3), r"data.partition.num_shards = 100: 50 clients .* need 150"),
    (
      dict(num_shards=2001),
      r"data.partition.num_shards = 2001: .*2000 samples",
    ),
    (dict(k=50, num_shards="auto"), r"num_shards = 'auto': 2500 shards"),
  ],
)
def test_shard_refuses(options, message):
  with pytest.raises(UserError, match=message):
    partition.shard(LABELS, 50, 0, **options)


def test_dirichlet_skews_more_the_smaller_alpha():
  def largest_share(alpha):
    parts = partition.dirichlet(LABELS, 10, 0, alpha=alpha)
    shares = [np.bincount(LABELS[p]).max() / len(p) for p in parts]
    return np.mean(shares)

  assert largest_share(0.1) > largest_share(1.0) > largest_share(1000.0)
  assert largest_share(1000.0) < 0.13  # near 1/10: almost iid


def test_dirichlet_shuffles_within_a_class():
  labels = np.zeros(1000, np.int32)
  rows = partition.dirichlet(labels, 2, 0, alpha=1000.0)[0]
  assert 400 < len(rows) < 600 and rows.min() < 50 and rows.max() > 950


def test_dirichlet_keeps_min_samples():
  parts = partition.dirichlet(LABELS, 20, 0, alpha=0.5, min_samples=40)
  assert min(map(len, parts)) >= 40
  loose = partition.dirichlet(LABELS, 20, 0, alpha=0.5)
  assert min(map(len, loose)) < 40  # so that the redraws were put to work


def test_dirichlet_gives_up():
  start = time.monotonic()
  with pytest.raises(
    UserError, match=r"min_samples = 95.*Dirichlet\(0.1\) over 20.*at most \d+"
  ):
    partition.dirichlet(LABELS, 20, 0, alpha=0.1, min_samples=95)
  assert time.monotonic() - start < 20


def test_dirichlet_survives_a_tiny_alpha():
  parts = partition.dirichlet(LABELS, 2, 1, alpha=1e-3)
  assert sum(map(len, parts)) == len(LABELS)


@pytest.mark.parametrize(
  "options, message",
  [
    (dict(alpha=0.0), r"data.partition.alpha = 0.0"),
    (dict(alpha=float("nan")), r"data.partition.alpha = nan"),
    (dict(alpha=float("inf")), r"data.partition.alpha = inf"),
    (dict(min_samples=0), r"data.partition.min_samples = 0"),
    (dict(min_samples=41), r"data.partition.min_samples = 41: .*1 and 40"),
  ],
)
def test_dirichlet_refuses(options, message):
  with pytest.raises(UserError, match=message):
    partition.dirichlet(LABELS, 50, 0, **options)


def test_iid_is_even_and_mixed():
  parts = partition.iid(LABELS, 3, 0)
  assert sorted(map(len, parts)) == [666, 667, 667]
  for rows in parts:
    counts = np.bincount(LABELS[rows], minlength=10)
    assert counts.min() > 40  # of 67 expected; sorted data would give 0
