"""Shares rounded to whole samples: fair, and robust to noise."""

import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import experiment
from splitjax.data import PARTITIONS, by_depth, check_parts, load, round_fairly


def test_by_hand():
  # Thirds of 1, 1 and 1: every column has its turn. Then 0.5 and 0.5 of 1 when
  # column 2 is due nothing, and a whole number stays as it is.
  for seed in range(10):
    rng = np.random.default_rng(seed)
    whole = round_fairly(np.full((3, 3), 1 / 3), rng)
    assert (whole.sum(axis=0) == 1).all() and (whole.sum(axis=1) == 1).all()
    whole = round_fairly(np.array([[0.5, 0.5, 0], [2, 1, 3]]), rng)
    assert whole[0].tolist() in ([1, 0, 0], [0, 1, 0])
    assert whole[1].tolist() == [2, 1, 3]


def test_does_not_see_noise():
  # 0.1 + 0.2 is more than 0.3 to a computer; the tie is drawn nonetheless.
  exact = np.array([[0.1, 0, 0.3, 0.6], [0.2, 0.3, 0, 0.5]])
  second = {
    tuple(round_fairly(exact, np.random.default_rng(s))[1]) for s in range(20)
  }
  assert second == {(1, 0, 0, 0), (0, 1, 0, 0)}
  # Five columns are owed 0.45 + 0.6, more than the first column's "rest".
  exact = np.array(
    [[0] + [0.45] * 5 + [0.55] * 5, [3 - 1e-12] + [0.6] * 5 + [0] * 5]
  )
  assert round_fairly(exact, np.random.default_rng(0))[1, 0] == 3


def test_ties_are_drawn():
  rounded = [
    round_fairly(np.full((1, 4), 0.25), np.random.default_rng(s))
    for s in range(200)
  ]
  assert np.mean(rounded, axis=0).min() > 0.12  # 0.25, give or take 0.03


def test_keeps_the_least():
  # 0.7, 0.7 and 1.6: the small ones are rounded up first.
  exact = np.array([[0.7, 0.7, 1.6]])
  for seed in range(10):
    rng = np.random.default_rng(seed)
    assert round_fairly(exact, rng, exact > 0).tolist() == [[1, 1, 1]]


def test_parts_with_higher_classes_go_to_deeper_clients():
  labels = np.array([0, 1, 2, 3, 4, 5])
  parts = [np.array([5]), np.array([0, 1]), np.array([0, 3]), np.array([2])]
  depth = np.array([1, 4, 1, 2])
  # In the order of the highest class: parts 1, 3, 2, 0; of depth: 0, 2, 3, 1.
  order = by_depth(parts, labels, depth)
  assert order.tolist() == [1, 0, 3, 2]


def test_what_a_partition_returns_is_checked():
  for parts in (
    [[0, 1], [2]],
    None,
    (x for x in [[1], [2]]),
    [[[1, 2], [3]], [4], [5]],
    [[0, 1], [2], []],
    [[0], [1], [9]],
    [[0], [-1], [2]],
    [[0], [1, 1], [2]],
    [[0], [1], [2, 0]],
  ):
    with refused("data.partition"):
      check_parts("mine", parts, 3, 9)


def writes_labels(labels, num_clients, seed):
  labels[:] = 0


def test_ones_own_cannot_change_the_labels(monkeypatch):
  monkeypatch.setitem(PARTITIONS, "mine", writes_labels)
  draft = tiny.tiny()
  draft.data.partition = splitjax.spec(PARTITIONS, "mine")
  data = load("digits", train_samples=120)
  before = data.train_label.copy()
  with pytest.raises(ValueError, match="assignment destination is read-only"):
    experiment.make_test_sets(tiny.resolved(draft), data)
  np.testing.assert_array_equal(data.train_label, before)


def test_totals_stay_near_what_is_due():
  # 30 labels for 30 columns, in shares of any size. Rounded each for itself
  # (and the rows mended), columns would be off by 3 to 5.
  rng = np.random.default_rng(0)
  for _ in range(20):
    exact = rng.dirichlet(np.ones(30), size=30) * rng.integers(9, 99, (30, 1))
    off = round_fairly(exact, rng).sum(axis=0) - exact.sum(axis=0)
    assert np.abs(off).max() < 2
