"""Representation skew by hand, and the embeddings of a run."""

import math

import numpy as np
import pytest

from splitjax import evaluation
from splitjax.data import TestSets
from splitjax.evaluation import distance_ratio, silhouette, subsample

# Two clients, two classes, in the plane: class 0 lies at (1, 0) for both;
# class 1 at (0, 2) for client 0 and at (0, -3) for client 1.
Z = np.array([[1, 0], [0, 2], [1, 0], [0, -3]], np.float32)
CLASSES = np.array([0, 1, 0, 1])
CLIENTS = np.array([0, 0, 1, 1])


def test_measures_by_hand():
  # Of length 1: same class across clients |(0, 1) - (0, -1)| = 2 and 0, mean 1;
  # different classes across clients sqrt(2) twice.
  ratio = distance_ratio(Z, CLASSES, CLIENTS)
  assert ratio == pytest.approx(1 / math.sqrt(2))
  # The pair of one image is left out: class 0 is the same image at both.
  ratio = distance_ratio(Z, CLASSES, CLIENTS, np.array([7, 8, 7, 9]))
  assert ratio == pytest.approx(2 / math.sqrt(2))
  # Class 0: a = 0, so 1 each. Class 1: a = 2, b = sqrt(2): (sqrt(2) - 2) / 2
  # each. With two samples of a class a is the other's.
  got = silhouette(Z, CLASSES)
  assert got == pytest.approx((2 + (math.sqrt(2) - 2)) / 4)


def test_distance_ratio_equals_a_double_loop():
  rng = np.random.default_rng(0)
  z = rng.normal(size=(50, 8))
  classes, clients = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
  whole = distance_ratio(z, classes, clients)
  same, other = [], []
  unit = z / np.linalg.norm(z, axis=1, keepdims=True)
  for i in range(50):
    for j in range(50):
      if clients[i] != clients[j]:
        pairs = same if classes[i] == classes[j] else other
        pairs.append(np.linalg.norm(unit[i] - unit[j]))
  assert whole == pytest.approx(np.mean(same) / np.mean(other))
  # The scale does not matter.
  assert distance_ratio(10 * z, classes, clients) == pytest.approx(whole)


def test_what_has_no_number():
  same_class, one_client = np.zeros(4, int), np.zeros(4, int)
  assert silhouette(Z, same_class) is None
  assert silhouette(Z, np.arange(4)) is None
  assert distance_ratio(Z, CLASSES, one_client) is None
  assert distance_ratio(Z, same_class, CLIENTS) is None
  zeros = np.zeros((4, 2))
  assert distance_ratio(zeros, CLASSES, CLIENTS) is None
  assert silhouette(zeros, CLASSES) == 0
  assert len(evaluation.coordinates(np.ones((9, 2)))) == 0
  assert len(evaluation.coordinates(Z[:3])) == 0


def test_finite_ones_are_chosen_and_not_too_many():
  z = np.zeros((10, 2))
  z[3] = np.nan
  z[5, 1] = np.inf
  assert subsample(z).tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
  many = np.tile(z, (300, 1))
  few = subsample(many)
  assert len(set(few)) == 2000 and np.isfinite(many[few]).all()
  np.testing.assert_array_equal(few, subsample(many))


def test_images_are_the_same_for_all_and_their_classes_take_turns():
  # Class 0 has rows 0..5, class 1 rows 6..9, class 2 row 10 alone.
  rows = np.array([[0, 1, 2, 6, 7, -1], [3, 4, 5, 8, 9, 10]], np.int32)
  label = np.array([[0, 0, 0, 1, 1, 9], [0, 0, 0, 1, 1, 2]], np.int32)
  empty = np.zeros(0)
  own = TestSets([], empty, "test", rows, label, empty, (), None)
  for seed in range(5):
    rows, label = evaluation.draw(own, 6, seed)
    assert len(set(rows)) == 6 and 10 in rows
    assert sorted(np.bincount(label)) == [1, 2, 3]
    rows, label = evaluation.draw(own, 3, seed)
    assert sorted(label) == [0, 1, 2]
  rows, label = evaluation.draw(own, 99, 0)
  assert sorted(rows) == list(range(11)) and 9 not in label
  first, second = (evaluation.draw(own, 6, seed)[0] for seed in (0, 1))
  assert not np.array_equal(first, second)


def test_a_client_that_diverged_is_left_out():
  arrays = {
    "rows": np.arange(6),
    "label": np.arange(6) % 3,
    "embedding": np.random.default_rng(0).normal(size=(4, 6, 5)),
  }
  arrays["embedding"][2] = np.nan
  found = evaluation.measures(arrays)
  assert set(found["measured"] // 6) == {0, 1, 3}
  assert np.isfinite(found["silhouette"]) and len(found["map"]) == 18
  arrays["embedding"][:] = np.nan
  found = evaluation.measures(arrays)
  assert np.isnan(found["silhouette"]) and np.isnan(found["distance_ratio"])
  assert len(found["map"]) == 0
