"""Test sets under shift: in and out of a client's distribution."""

import time

import numpy as np
import pytest

from splitjax import data

# Eight test samples of four classes.
LABEL = np.array([0, 1, 2, 3, 0, 1, 2, 3])
# Client 0 knows classes 0 and 1, client 1 only class 3, client 2 all of them.
MAIN = np.array([[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]], bool)


def test_main_classes_by_hand():
  labels = np.array([2, 0, 2, 1])
  parts = [np.array([0, 2]), np.array([1, 3]), np.array([], np.int64)]
  np.testing.assert_array_equal(
    data.main_classes(labels, parts, 4),
    np.array([[0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], bool),
  )


def test_sets_by_hand():
  # Client 0: ID = rows 0 1 4 5, four samples.
  #   rho 0.5: 2 OOD, one of class 2 (rows 2 6) and one of class 3 (rows 3 7).
  #   rho 1.0: 4 OOD, which is all there is.
  # Client 1: ID = rows 3 7, two samples.
  #   rho 0.5: 1 OOD of any of classes 0 1 2. rho 1.0: 2, of two classes.
  # Client 2: everything is ID, nothing is left to draw.
  sets = data.id_ood_sets(LABEL, MAIN, [0.0, 0.5, 1.0], seed=0)
  assert sets.shape == (3, 3, 8) and sets.dtype == bool
  np.testing.assert_array_equal(sets[0], MAIN[:, LABEL])
  half, whole = sets[1], sets[2]
  assert half[0, [0, 1, 4, 5]].all()
  assert half[0, [2, 6]].sum() == 1 and half[0, [3, 7]].sum() == 1
  assert whole[0].all()
  assert half[1, [3, 7]].all() and half[1].sum() == 3
  drawn = LABEL[whole[1] & ~MAIN[1, LABEL]]
  assert len(drawn) == 2 and len(set(drawn)) == 2
  assert sets[:, 2].all()
  np.testing.assert_allclose(
    data.realised_rho(sets, MAIN[:, LABEL]),
    [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 1.0, 0.0]],
  )


def test_natural_ood_samples_are_as_frequent_as_in_the_split():
  # ID: 100 of class 0. OOD: 90 of class 1, 10 of class 2; half of them drawn.
  label = np.repeat([0, 1, 2], [100, 90, 10])
  main, few = np.array([[1, 0, 0]], bool), []
  for seed in range(40):
    for ood in ("natural", "balanced"):
      sets = data.id_ood_sets(label, main, [0.5, 0.2], seed, ood)
      drawn = np.bincount(label[sets[0, 0]], minlength=3)
      assert drawn.tolist()[0] == 100 and drawn[1:].sum() == 50
      assert not (sets[1] & ~sets[0]).any()
      if ood == "balanced":
        assert drawn[2] == 10
      else:
        few.append(drawn[2])
  assert 4 < np.mean(few) < 6


def test_the_others_fill_in_for_an_exhausted_class():
  # ID: six of class 0. OOD: one of class 1, two of class 2, five of class 3.
  # Turn by turn: 1 2 3 | 2 3 | 3 | 3 | 3, so after 3, 5 and 6 samples the
  # classes have given (1, 1, 1), (1, 2, 2) and (1, 2, 3).
  label = np.repeat([0, 1, 2, 3], [6, 1, 2, 5])
  main = np.array([[1, 0, 0, 0]], bool)
  sets = data.id_ood_sets(label, main, [3 / 6, 5 / 6, 1.0], seed=1)
  counts = [np.bincount(label[s[0]], minlength=4)[1:].tolist() for s in sets]
  assert counts == [[1, 1, 1], [1, 2, 2], [1, 2, 3]]


def test_the_cap_is_reported():
  # Two ID samples and six OOD ones: rho 3 takes all six, others cannot.
  sets = data.id_ood_sets(LABEL, MAIN[1:2], [3.0, 5.0, 1e308], seed=0)
  assert sets.all()
  np.testing.assert_allclose(
    data.realised_rho(sets, MAIN[1:2, LABEL]), [[3.0]] * 3
  )


@pytest.fixture(name="world", scope="module")
def make_world():
  """Ten classes of 100 test samples, 12 clients that know some of them."""
  rng = np.random.default_rng(0)
  label = rng.permutation(np.repeat(np.arange(10), 100))
  main = rng.permuted(np.repeat([[1] * 2 + [0] * 8], 12, axis=0), axis=1) > 0
  return label, main


def test_balanced_nested_and_of_the_right_size(world):
  label, main = world
  rhos = [0.0, 0.2, 0.4, 0.6, 0.8]
  sets = data.id_ood_sets(label, main, rhos, seed=5)
  for smaller, larger in zip(sets, sets[1:], strict=False):
    assert (smaller <= larger).all()
  for r, rho in enumerate(rhos):
    for n in range(len(main)):
      counts = np.bincount(label[sets[r, n]], minlength=10)
      assert (counts[main[n]] == 100).all()
      others = counts[~main[n]]
      assert others.sum() == round(rho * 200)
      assert others.max() - others.min() <= 1


def test_depends_on_seed_and_client_alone(world):
  label, main = world
  sets = data.id_ood_sets(label, main, [0.2, 0.8], seed=5)
  again = data.id_ood_sets(label, main[:3], [0.8, 0.4], seed=5)
  np.testing.assert_array_equal(sets[1, :3], again[0])
  other = data.id_ood_sets(label, main, [0.2, 0.8], seed=6)
  assert not np.array_equal(sets, other)
  # Two clients that know the same are not tested on the same draw.
  twins = data.id_ood_sets(label, main[[0, 0]], [0.8], seed=5)
  assert not np.array_equal(twins[0, 0], twins[0, 1])


def test_every_sample_can_be_drawn(world):
  label, main = world
  drawn = np.zeros(len(label), int)
  for seed in range(60):
    drawn += data.id_ood_sets(label, main[:1], [0.8], seed=seed)[0, 0]
  outside = drawn[~main[0, label]]
  # Each of 800 is drawn with probability 160/800: 12 of 60 times, give or take.
  assert outside.min() > 0 and outside.max() < 30


def test_a_client_without_test_samples():
  main = np.array([[0, 0, 0, 0, 1]], bool)  # class 4 is not in the test split
  sets = data.id_ood_sets(LABEL, main, [0.8, np.inf], seed=0)
  assert not sets.any()
  assert np.isnan(data.realised_rho(sets, main[:, LABEL])).all()


def test_the_number_is_rounded():
  # Client 0 has four ID samples: 0.1 * 4 = 0.4 -> 0, 0.4 * 4 = 1.6 -> 2.
  sets = data.id_ood_sets(LABEL, MAIN[:1], [0.1, 0.4], seed=0)
  assert sets.sum(axis=-1).tolist() == [[4], [6]]


def test_fast_at_full_size():
  labels = np.tile(np.arange(10), 6000)
  parts = data.shard(labels, 50, 0)
  main = data.main_classes(labels, parts, 10)
  start = time.monotonic()
  data.id_ood_sets(np.tile(np.arange(10), 1000), main, [0, 0.2, 0.8], seed=0)
  assert time.monotonic() - start < 5  # it takes 0.1 s
