"""Partitions: the contract of all of them; shard, iid and dirichlet."""

import hashlib
import time

import numpy as np
import pytest
from refusals import refused

from splitjax import data
from splitjax.data import PARTITIONS, client_split
from splitjax.registry import read_spec

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


OF_LABELS = [name for name in PARTITIONS if name != "natural"]
"""`natural` deals by owners: tests/data/test_npz_clients.py."""


@pytest.mark.parametrize("name", OF_LABELS)
def test_contract(name):
  """More of it is in tests/data/test_partition_properties.py."""
  parts, other = (PARTITIONS[name](LABELS, 50, seed) for seed in (3, 4))
  # 50 clients with 2 of 100 shards use everything, as the others always do.
  assert sum(map(len, parts)) == len(LABELS)
  same = map(np.array_equal, parts, other)
  assert not all(same)


@pytest.mark.parametrize("name", OF_LABELS)
def test_every_client_needs_a_sample(name):
  for clients in (0, 2001):
    with refused("num_clients"):
      PARTITIONS[name](LABELS, clients, 0)


@pytest.mark.parametrize("name", OF_LABELS)
def test_a_thousand_clients_take_no_time(name):
  # 60,000 samples; 0.1 s where this was written. The bound is for a machine
  # that is busy with something else, and against loops over samples.
  labels = np.random.default_rng(0).permutation(np.arange(60000) % 100)
  options = {"num_shards": "auto"} if name == "shard" else {}
  start = time.monotonic()
  parts = PARTITIONS[name](labels, 1000, 0, **options)
  assert time.monotonic() - start < 5
  assert sum(map(len, parts)) == 60000 and min(map(len, parts)) > 0


def checksum(parts):
  """Of sizes and rows, in a form that no machine or numpy changes."""
  rows = np.concatenate([[len(p) for p in parts], *parts]).astype("<i8")
  return hashlib.sha256(rows.tobytes()).hexdigest()[:12]


@pytest.mark.parametrize(
  "name, options, expected",
  [
    ("shard", dict(num_shards=45), "bfa454ef5860"),
    ("shard", dict(k=3, num_shards="auto"), "651a7e57b186"),
    ("dirichlet", dict(alpha=0.3, min_samples=5), "8a4bb7e5eda2"),
    ("dominant_label", dict(), "b826bc5ab9e1"),
    ("custom_shard", dict(p=70.0, n_dominant=3), "4cc15e31724e"),
    ("pathological", dict(k=3), "3145e119f5c9"),
    ("pathological", dict(k=3, shares="uniform"), "f12882e99748"),
    ("iid", dict(), "ce8a30e004dd"),
  ],
)
def test_the_same_clients_on_every_machine(name, options, expected):
  # Classes of 48 to 73 samples, in no order. Recorded results rest on this:
  # where it fails, they have to be made again.
  labels = (np.arange(607) * 7 % 607) ** 2 // 37 % 10
  assert checksum(PARTITIONS[name](labels, 20, 5, **options)) == expected


def test_the_same_split_on_every_machine():
  parts = [np.arange(n * n, n * n + 2 * n + 1) for n in range(1, 12)]
  pieces = client_split(parts, 5, (0.6, 0.2, 0.2))
  assert (
    checksum([rows for piece in pieces for rows in piece]) == "27714b57d2c1"
  )


def test_shard_gives_at_most_k_classes_and_deals_at_random():
  for k in (1, 2, 3):
    parts = data.shard(LABELS, 30, 0, k=k, num_shards=100)
    classes = [len(np.unique(LABELS[rows])) for rows in parts]
    assert {len(rows) for rows in parts} == {k * 20}  # a shard: 2000 / 100
    # In order, clients of two shards would hold one class.
    assert max(classes) <= k and (k < 2 or classes.count(k) > 15)
    # In order, the shards would be those of the first 3 k classes.
    assert len(np.unique(LABELS[np.concatenate(parts)])) > 3 * k


def test_shard_by_hand():
  # Sorted stably, the rows are 1 3 5 | 0 2 4: two chunks of three rows.
  labels = np.array([1, 0, 1, 0, 1, 0])
  parts = data.shard(labels, 2, 0, k=1, num_shards=2)
  assert sorted(p.tolist() for p in parts) == [[0, 2, 4], [1, 3, 5]]


def test_shard_refuses():
  for options in (
    dict(k=3),
    dict(num_shards=2001),
    dict(k=50, num_shards="auto"),
  ):
    with refused("data.partition.num_shards"):
      data.shard(LABELS, 50, 0, **options)


def test_iid_is_even_and_mixed():
  parts = data.iid(LABELS, 3, 0)
  assert sorted(map(len, parts)) == [666, 667, 667]
  for rows in parts:
    counts = np.bincount(LABELS[rows], minlength=10)
    assert counts.min() > 40  # of 67 expected; sorted data would give 0


def test_dirichlet_skews_more_the_smaller_alpha():
  def largest_share(alpha):
    parts = data.dirichlet(LABELS, 10, 0, alpha=alpha)
    shares = [np.bincount(LABELS[p]).max() / len(p) for p in parts]
    return np.mean(shares)

  assert largest_share(0.1) > largest_share(1.0) > largest_share(1000.0)
  assert largest_share(1000.0) < 0.13  # near 1/10: almost iid


def test_dirichlets_proportions_are_those_of_the_distribution():
  # Dir(a) over N clients: a share has mean 1/N and variance
  # (1/N)(1 - 1/N) / (N a + 1): N = 4, a = 0.5: 0.25 and 0.0625. 40 classes of
  # 100 samples, 10 seeds: the variance of 1600 shares, to a tenth or so.
  labels = np.repeat(np.arange(40), 100)
  shares = [
    np.bincount(labels[p], minlength=40) / 100
    for seed in range(10)
    for p in data.dirichlet(labels, 4, seed, alpha=0.5)
  ]
  assert np.var(shares) == pytest.approx(0.0625, rel=0.15)


def test_dirichlet_refuses():
  # Two clients, two samples of one class: both have one, or one has none.
  # With alpha 1000 the proportions are near 1/2 and a first draw will do; with
  # alpha 1e-9 they are near 0 and 1, and no draw does.
  assert len(data.dirichlet(np.zeros(2), 2, 0, alpha=1e3)[0]) == 1
  for labels, clients, options in (
    (np.zeros(2), 2, dict(alpha=1e-9)),
    (np.arange(80) % 4, 8, dict(alpha=0.5, min_samples=10)),
    (LABELS, 50, dict(min_samples=41)),
  ):
    with refused("data.partition.min_samples"):
      data.dirichlet(labels, clients, 0, **options)


def test_a_client_with_the_mean_gets_no_further_class():
  labels = np.repeat(np.arange(10), 300)
  parts = data.dirichlet(labels, 20, 0, alpha=0.1, min_samples=40, capped=True)
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
  counts = np.stack([np.bincount(labels[p], minlength=10) for p in parts])
  before = counts.cumsum(axis=1) - counts
  assert not counts[before > 3000 / 20 + 1].any()
  free = data.dirichlet(labels, 20, 0, alpha=0.1, min_samples=1)
  sizes = np.array([len(p) for p in parts])
  assert sizes.min() >= 40 and sizes.std() < np.std([len(p) for p in free])


@pytest.mark.parametrize(
  "name, option, values",
  [
    ("shard", "k", (0,)),
    ("dirichlet", "alpha", (0.0, float("nan"), float("inf"), 1e308, 1.1e6)),
    ("dirichlet", "min_samples", (0,)),
    ("dominant_label", "p", (-0.1, 100.1, float("nan"))),
    ("dominant_label", "phi", (0, -5)),
    ("custom_shard", "p", (101.0,)),
    ("custom_shard", "n_dominant", (1,)),
    ("pathological", "k", (0,)),
    ("pathological", "shares", ("even",)),
  ],
)
def test_an_option_out_of_bounds_is_refused(name, option, values):
  for value in values:
    with refused(f"data.partition.{option}"):
      read_spec(PARTITIONS, {"name": name, option: value}, "data.partition")
