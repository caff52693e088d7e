"""Partitions by hand, by their distributions and properties; refusals."""

import functools
import hashlib

import numpy as np
import pytest
from fuzz import fuzzed
from hypothesis import strategies as st
from refusals import refused

from splitjax.data import PARTITIONS, client_split, partitions, round_fairly
from splitjax.types import UserError

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


def deal(name, labels, clients, seed=0, **options):
  return partitions.deal(name, np.asarray(labels), clients, seed, options)


def table(labels, parts):
  """[C, N] samples of each class that occurs and each client."""
  names, label = np.unique(labels, return_inverse=True)
  columns = [np.bincount(label[p], minlength=len(names)) for p in parts]
  return np.stack(columns, axis=1)


def checksum(parts):
  """Of sizes and rows, in a form that no machine or numpy changes."""
  rows = np.concatenate([[len(p) for p in parts], *parts]).astype("<i8")
  return hashlib.sha256(rows.tobytes()).hexdigest()[:12]


@pytest.mark.parametrize(
  "name, options, expected",
  [
    ("shard", dict(num_shards=45), "bfa454ef5860"),
    ("shard", dict(k=3, num_shards=60), "651a7e57b186"),
    ("dirichlet", dict(alpha=0.3, min_samples=5), "8a4bb7e5eda2"),
    ("dirichlet", dict(alpha=0.5, capped=True), "5912a0d82bdb"),
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
  assert checksum(deal(name, labels, 20, 5, **options)) == expected


def test_splits_are_the_same_on_every_machine():
  parts = [np.arange(n * n, n * n + 2 * n + 1) for n in range(1, 12)]
  pieces = client_split(parts, 5, (0.6, 0.2, 0.2))
  rows = [rows for piece in pieces for rows in piece]
  assert checksum(rows) == "27714b57d2c1"


@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0])
def test_dirichlets_proportions_are_those_of_the_distribution(alpha):
  # Dir(a) over N clients: a share has mean 1/N and variance
  # (1/N)(1 - 1/N) / (N a + 1), here of 1,600 shares, to a tenth or so.
  labels = np.repeat(np.arange(40), 100)
  drawn = (deal("dirichlet", labels, 4, s, alpha=alpha) for s in range(10))
  shares = [table(labels, parts) / 100 for parts in drawn]
  assert np.mean(shares) == pytest.approx(0.25)
  due = 0.25 * 0.75 / (4 * alpha + 1)
  assert np.var(shares) == pytest.approx(due, rel=0.15)


def test_a_client_with_the_mean_gets_no_further_class():
  labels = np.repeat(np.arange(10), 300)
  options = dict(alpha=0.1, min_samples=40, capped=True)
  counts = table(labels, deal("dirichlet", labels, 20, **options))
  assert counts.sum() == 3000 and counts.sum(axis=0).min() >= 40
  before = counts.cumsum(axis=0) - counts
  assert not counts[before > 3000 / 20 + 1].any()


def test_the_odd_sample_is_not_always_the_same_clients():
  # All 10 of a label to its 3 clients: one of them has 4.
  labels = np.repeat([0, 1], 10)
  favoured = set()
  for seed in range(30):
    parts = deal("dominant_label", labels, 6, seed, p=100.0)
    favoured.add(int(np.argmax([len(p) for p in parts[::2]])))
  assert favoured == {0, 1, 2}


def test_pathological_by_hand():
  # One client with one of three classes; the others stay where they are.
  labels = np.array([2, 0, 1, 0, 2, 0])
  drawn = (deal("pathological", labels, 1, seed, k=1) for seed in range(30))
  assert {tuple(p.tolist()) for (p,) in drawn} == {(1, 3, 5), (2,), (0, 4)}


def test_uniform_shares_are_those_of_the_distribution():
  # Ten holders share 1,000 samples in proportion to U(0.4, 0.6): mean 100, sd
  # 0.2 / sqrt(12) / 0.5 = 11.5 % less a little that the sum takes back, sides
  # 80 and 120 over the mean of the ten, which is 1 +- 0.036.
  labels = np.repeat(np.arange(10), 1000)
  parts = deal("pathological", labels, 100, k=1, shares="uniform")
  shares = np.array([len(p) for p in parts])
  assert 9.5 < shares.std() < 12.5
  assert 72 <= shares.min() < 85 and 115 < shares.max() <= 134


@pytest.mark.parametrize(
  "name, labels, clients, options, field",
  [
    ("shard", LABELS, 50, dict(k=3), "data.partition.num_shards"),
    # Two clients, two samples of one class: both have one, or one has none.
    # With alpha 1e-9 the proportions are near 0 and 1, and no draw will do.
    ("dirichlet", [0, 0], 2, dict(alpha=1e-9), "data.partition.min_samples"),
    ("dominant_label", LABELS, 25, {}, "num_clients"),
    # The 2 samples of class 3 cannot be shared by 3 clients.
    ("dominant_label", [0] * 30 + [3] * 2, 6, dict(p=100.0), "num_clients"),
    ("custom_shard", LABELS, 50, dict(n_dominant=10), "data.partition"),
    ("custom_shard", LABELS, 9, {}, "num_clients"),
    ("pathological", LABELS, 50, dict(k=11), "data.partition.k"),
    ("pathological", np.repeat([3, 5, 8], [100, 9, 100]), 15, dict(k=2),
     "num_clients"),
    ("natural", [7, 3, 7], 3, {}, "num_clients"),
    ("iid", LABELS, 0, {}, "num_clients"),
  ],
)  # fmt: skip
def test_refuses(name, labels, clients, options, field):
  with refused(field):
    deal(name, labels, clients, **options)


def rounded(exact, seed, least=0):
  return round_fairly(np.array(exact), np.random.default_rng(seed), least)


def test_shares_are_rounded_by_hand():
  for seed in range(5):
    # Thirds of 1, 1 and 1: every column has its turn. Then 0.5 and 0.5 of 1
    # when column 2 is due nothing, and a whole number stays as it is.
    whole = rounded(np.full((3, 3), 1 / 3), seed)
    assert (whole.sum(axis=0) == 1).all() and (whole.sum(axis=1) == 1).all()
    whole = rounded([[0.5, 0.5, 0], [2, 1, 3]], seed)
    assert whole[0].tolist() in ([1, 0, 0], [0, 1, 0])
    assert whole[1].tolist() == [2, 1, 3]
    # 0.7, 0.7 and 1.6, one at least: the small ones are rounded up first.
    assert rounded([[0.7, 0.7, 1.6]], seed, 1).tolist() == [[1, 1, 1]]


def test_rounding_does_not_see_noise():
  # 0.1 + 0.2 is more than 0.3 to a computer; the tie is drawn nonetheless.
  exact = [[0.1, 0, 0.3, 0.6], [0.2, 0.3, 0, 0.5]]
  second = {tuple(rounded(exact, seed)[1]) for seed in range(20)}
  assert second == {(1, 0, 0, 0), (0, 1, 0, 0)}
  # Five columns are owed 0.45 + 0.6, more than the first column's "rest".
  exact = [[0] + [0.45] * 5 + [0.55] * 5, [3 - 1e-12] + [0.6] * 5 + [0] * 5]
  assert rounded(exact, 0)[1, 0] == 3


def test_ties_are_drawn_and_totals_stay_near_what_is_due():
  ties = [rounded(np.full((1, 4), 0.25), seed) for seed in range(200)]
  assert np.mean(ties, axis=0).min() > 0.12  # 0.25, give or take 0.03
  # 30 labels for 30 columns, in shares of any size. Rounded each for itself
  # (and the rows mended), columns would be off by 3 to 5.
  rng = np.random.default_rng(0)
  for _ in range(20):
    exact = rng.dirichlet(np.ones(30), size=30) * rng.integers(9, 99, (30, 1))
    off = round_fairly(exact, rng).sum(axis=0) - exact.sum(axis=0)
    assert np.abs(off).max() < 2


def test_ones_own_partition_is_checked_and_cannot_change_labels(monkeypatch):
  few, empty = [[0, 1], [2]], [[0, 1], [2], []]
  outside, twice = [[[0], [1], [9]], [[0], [-1], [2]]], [[0], [1], [2, 0]]
  for parts in (few, empty, *outside, twice, [[0.5], [1], [2]]):
    monkeypatch.setitem(PARTITIONS, "mine", lambda *_, parts=parts: parts)
    with refused("data.partition=mine"):
      deal("mine", np.arange(9), 3)
  writes = lambda labels, *_: labels.fill(0)  # noqa: E731
  monkeypatch.setitem(PARTITIONS, "mine", writes)
  with pytest.raises(ValueError, match="read-only"):
    deal("mine", np.arange(9), 3)


@pytest.mark.parametrize(
  "fractions, sizes",
  [
    # 7: cut after 5.25 -> 5; 30: after 22.5 -> 22 (even); 3: after 2.25 -> 2.
    ((0.75, 0.25), [[75, 5, 22, 2], [25, 2, 8, 1]]),
    # 7: cuts after 4.2 -> 4 and 5.6 -> 6; 30: 18 and 24; 3: after 1.8 -> 2 and
    # 2.4 -> 2, which leaves the middle piece nothing: the first cut moves to 1.
    ((0.6, 0.2, 0.2), [[60, 4, 18, 1], [20, 2, 6, 1], [20, 1, 6, 1]]),
    # Every piece has a sample.
    ((0.01, 0.98, 0.01), [[1, 1, 1, 1], [98, 5, 28, 1], [1, 1, 1, 1]]),
  ],
)
def test_splits_of_clients_by_hand(fractions, sizes):
  parts = np.split(np.arange(140) * 3, [100, 107, 137])  # 100, 7, 30 and 3
  pieces = client_split(parts, 0, fractions)
  assert [[*map(len, piece)] for piece in pieces] == sizes


def test_splits_are_not_those_of_test_sets():
  # id_ood_sets spawns from the bare seed.
  (rows,) = client_split([np.arange(40)], 0, (0.75, 0.25))[1]
  stream = np.random.SeedSequence(0).spawn(1)[0]
  order = np.random.default_rng(stream).permutation(40)
  assert {*order[30:]} != {*rows}


# Properties, on data and clients of any shape.


budget = functools.partial(fuzzed, examples=(25, 200))

seeds = st.integers(0, 2**31 - 1)
percents = st.one_of(
  st.sampled_from([0.0, 20.0, 80.0, 100.0]), st.floats(0.0, 100.0)
)
kinds = st.sampled_from([np.uint8, np.int32, np.int64])


@st.composite
def labelings(draw, fewest=1):
  """[Z] labels: up to 9 classes of any names and sizes, in any order."""
  name = st.integers(0, 200)
  names = sorted(draw(st.sets(name, min_size=fewest, max_size=9)))
  least, most = draw(st.sampled_from([(1, 2), (1, 60), (20, 60)]))
  size = st.integers(least, most)
  sizes = [draw(size) for _ in names]
  labels = np.repeat(names, sizes).astype(draw(kinds))
  return np.random.default_rng(draw(seeds)).permutation(labels)


def held_of(name, labels, clients, seed, **options):
  """Samples [C, N] of each class and client; None where it was refused.

  What all promise is checked by the door: N arrays, disjoint and not empty; on
  the way that they are sorted, and the same for the same seed.
  """
  try:
    parts = deal(name, labels, clients, seed, **options)
  except UserError as error:
    assert str(error).startswith(("data.partition.", "data.partition: ", "num"))
    return None
  assert all((np.diff(rows) > 0).all() for rows in parts)
  again = deal(name, labels, clients, seed, **options)
  assert all(map(np.array_equal, parts, again))
  return table(labels, parts)


def whole(labels):
  """[C] samples of each class that occurs."""
  return np.unique(labels, return_counts=True)[1]


@budget(labelings(), st.integers(1, 60), seeds, st.integers(1, 4), st.data())
def test_shard(labels, clients, seed, k, data):
  spare = data.draw(st.integers(0, 9))
  total = clients * k + spare
  held = held_of("shard", labels, clients, seed, k=k, num_shards=total)
  if total > len(labels):
    assert held is None
    return
  low, up = len(labels) // total, -(-len(labels) // total)
  sizes = held.sum(axis=0)
  assert sizes.min() >= k * low and sizes.max() <= k * up
  if total == clients * k:
    np.testing.assert_array_equal(held.sum(axis=1), whole(labels))


@budget(labelings(), st.integers(1, 60), seeds)
def test_iid(labels, clients, seed):
  held = held_of("iid", labels, clients, seed)
  assert (held is None) == (clients > len(labels))
  if held is not None:
    np.testing.assert_array_equal(held.sum(axis=1), whole(labels))
    assert np.ptp(held.sum(axis=0)) <= 1


ALPHAS = st.sampled_from([0.01, 0.3, 1.0, 100.0])


@budget(labelings(), st.integers(1, 25), seeds, ALPHAS, st.integers(1, 5))
def test_dirichlet(labels, clients, seed, alpha, fewest):
  options = dict(alpha=alpha, min_samples=fewest)
  held = held_of("dirichlet", labels, clients, seed, **options)
  assert held is None or clients * fewest <= len(labels)
  if held is not None:
    np.testing.assert_array_equal(held.sum(axis=1), whole(labels))
    assert held.sum(axis=0).min() >= fewest


def exact_shares(labels, clients, p, n):
  """[C, N] samples due, client by client, as E.1 (n = 1) and E.3 have it."""
  sizes = whole(labels)
  classes = len(sizes)
  due = np.zeros((classes, clients))
  for client in range(clients):
    group = client % classes
    peers = sum(other % classes == group for other in range(clients))
    own = [(group + i) % classes for i in range(n)]
    for label in range(classes):
      percent = p / n if label in own else (100 - p) / (classes - n)
      due[label, client] = sizes[label] * percent / 100 / peers
  return due


def assert_shared(held, labels, clients, p, n):
  """Everything is dealt, each share and each group's within one sample."""
  due = exact_shares(labels, clients, p, n)
  np.testing.assert_array_equal(held.sum(axis=1), whole(labels))
  assert np.abs(held - due).max() < 1 + 1e-6
  classes = len(due)
  for group in range(min(classes, clients)):
    peers = slice(group, None, classes)
    off = held[:, peers].sum(axis=1) - due[:, peers].sum(axis=1)
    assert np.abs(off).max() < 1 + 1e-6
    # Over all labels too: nobody is rounded down again and again.
    assert np.abs(off.sum()) < 2
    assert np.ptp(held[:, peers].sum(axis=0)) <= 1


@budget(labelings(), st.integers(1, 6), seeds, percents)
def test_dominant_label(labels, phi, seed, p):
  classes = len(np.unique(labels))
  clients = phi * classes
  held = held_of("dominant_label", labels, clients, seed, p=p)
  if classes == 1:
    assert held is None
    return
  if held is None:  # then only because some group is due too little
    due = exact_shares(labels, clients, p, 1).sum(axis=0)
    assert due.min() < 1 + 2 / phi
    return
  assert_shared(held, labels, clients, p, 1)
  # p % of a label to its own clients, to within one sample
  own = [held[g, g::classes].sum() for g in range(classes)]
  assert np.abs(own - whole(labels) * p / 100).max() < 1 + 1e-6


@budget(labelings(3), seeds, percents, st.data())
def test_custom_shard(labels, seed, p, data):
  classes = len(np.unique(labels))
  n = data.draw(st.integers(2, max(2, classes)))  # all of them are refused
  clients = data.draw(st.integers(max(1, classes - 1), 4 * classes))
  held = held_of("custom_shard", labels, clients, seed, p=p, n_dominant=n)
  if not n < classes <= clients:
    assert held is None
  elif held is None:
    peers = clients // classes
    due = exact_shares(labels, clients, p, n).sum(axis=0)
    assert due.min() < 1 + 2 / peers
  else:
    assert_shared(held, labels, clients, p, n)


@budget(labelings(), seeds, st.sampled_from(["equal", "uniform"]), st.data())
def test_pathological(labels, seed, shares, data):
  sizes = whole(labels)
  k = data.draw(st.integers(1, len(sizes) + 1))
  # About as many clients as the smallest class has samples for, or fewer.
  limit = sizes.min() * len(sizes) // k + 2
  clients = data.draw(st.integers(1, int(limit)))
  held = held_of("pathological", labels, clients, seed, k=k, shares=shares)
  if k > len(sizes) or clients > len(labels):
    assert held is None
    return
  most = -(-clients * k // len(sizes))
  if held is None:
    assert sizes.min() < most
    return
  assert ((held > 0).sum(axis=0) == k).all()
  holders = (held > 0).sum(axis=1)
  assert np.ptp(holders) <= 1 and holders.sum() == clients * k
  for size, row, several in zip(sizes, held, holders, strict=True):
    # A class that somebody holds is dealt out, the others are not touched.
    assert row.sum() == (size if several else 0)
    share = row[row > 0]
    if shares == "equal":
      assert several == 0 or np.ptp(share) <= 1
    else:  # 0.4 to 0.6, each to within one sample
      assert several == 0 or (share.max() - 1) * 0.4 < (share.min() + 1) * 0.6


SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=12)
WEIGHTS = st.lists(st.integers(1, 50), min_size=1, max_size=5)


@budget(SIZES, WEIGHTS, seeds)
def test_client_split(sizes, weights, seed):
  ends = np.cumsum(sizes)
  rows = np.random.default_rng(seed).permutation(ends[-1])
  parts = [np.sort(part) for part in np.split(rows, ends[:-1])]
  fractions = np.array(weights) / sum(weights)
  if min(sizes) < len(weights):
    with refused("num_clients"):
      client_split(parts, seed, fractions)
    return
  pieces = client_split(parts, seed, fractions)
  # A client's split does not depend on the others.
  for piece, alone in zip(
    pieces, client_split(parts[:1], seed, fractions), strict=True
  ):
    np.testing.assert_array_equal(piece[0], alone[0])
  for n, part in enumerate(parts):
    of_client = [piece[n] for piece in pieces]
    np.testing.assert_array_equal(np.sort(np.concatenate(of_client)), part)
    for rows, share in zip(of_client, fractions, strict=True):
      assert len(rows) > 0 and (np.diff(rows) > 0).all()
      if min(fractions) * len(part) >= 1:
        assert abs(len(rows) - share * len(part)) <= 1 + 1e-6
