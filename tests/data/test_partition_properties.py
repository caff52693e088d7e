"""Properties of every partition, on data and clients of any shape."""

import functools

import numpy as np
from fuzz import fuzzed
from hypothesis import strategies as st
from refusals import refused

from splitjax.data import client_split, partitions
from splitjax.types import UserError

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


def deal(name, labels, clients, seed, **options):
  """Samples [C, N] of each class and client; None where it was refused.

  What all promise is checked by the door: N arrays, disjoint and not empty; on
  the way that they are sorted, and the same for the same seed.
  """
  try:
    parts = partitions.deal(name, labels, clients, seed, options)
  except UserError as error:
    assert str(error).startswith(("data.partition.", "data.partition: ", "num"))
    return None
  assert all((np.diff(rows) > 0).all() for rows in parts)
  again = partitions.deal(name, labels, clients, seed, options)
  assert all(map(np.array_equal, parts, again))
  names, label = np.unique(labels, return_inverse=True)
  columns = [np.bincount(label[rows], minlength=len(names)) for rows in parts]
  return np.stack(columns, axis=1)


def whole(labels):
  """[C] samples of each class that occurs."""
  return np.unique(labels, return_counts=True)[1]


@budget(labelings(), st.integers(1, 60), seeds, st.integers(1, 4), st.data())
def test_shard(labels, clients, seed, k, data):
  spare = data.draw(st.integers(0, 9))
  total = clients * k + spare
  held = deal("shard", labels, clients, seed, k=k, num_shards=total)
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
  held = deal("iid", labels, clients, seed)
  assert (held is None) == (clients > len(labels))
  if held is not None:
    np.testing.assert_array_equal(held.sum(axis=1), whole(labels))
    assert np.ptp(held.sum(axis=0)) <= 1


ALPHAS = st.sampled_from([0.01, 0.3, 1.0, 100.0])


@budget(labelings(), st.integers(1, 25), seeds, ALPHAS, st.integers(1, 5))
def test_dirichlet(labels, clients, seed, alpha, fewest):
  options = dict(alpha=alpha, min_samples=fewest)
  held = deal("dirichlet", labels, clients, seed, **options)
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
  held = deal("dominant_label", labels, clients, seed, p=p)
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
  held = deal("custom_shard", labels, clients, seed, p=p, n_dominant=n)
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
  held = deal("pathological", labels, clients, seed, k=k, shares=shares)
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
