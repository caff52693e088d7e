"""Accuracy by class, the gap between classes, the past, the positions."""

import math

import numpy as np
import pytest

from splitjax import evaluation
from splitjax.types import Exits

NAN = math.nan

# Two clients, four samples of classes 0 0 1 2. Class 0: of 4 answers 3 right;
# class 1: 1 of 2; class 2: client 1 has no such sample, 0 of 1; class 3: none.
LABELS = np.array([0, 0, 1, 2])
SAID = np.array([[0, 0, 1, 1], [0, 2, 0, 2]])
SHOWN = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], bool)


def test_accuracy_by_class_by_hand():
  got = evaluation.class_accuracy(SAID, LABELS, SHOWN, 4)
  np.testing.assert_array_equal(got, [0.75, 0.5, 0, NAN])
  # Of each client its own labels; a sample that counts twice: (3 + 1) / 5.
  own = np.broadcast_to(LABELS, SAID.shape)
  twice = SHOWN.astype(int)
  twice[0, 0] = 2
  got = evaluation.class_accuracy(SAID, own, twice, 4)
  np.testing.assert_allclose(got, [0.8, 0.5, 0, NAN])


def test_what_a_class_is_taken_for_by_hand():
  got = evaluation.confusion(SAID, LABELS, SHOWN, 4)
  want = [[0.75, 0, 0.25, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [NAN] * 4]
  np.testing.assert_array_equal(got, want)


def test_the_gap_by_hand():
  # Best 0.8: (0 + 0.2 + 0.7) / 3 = 0.3. A class without samples is no class.
  assert evaluation.performance_gap([0.8, 0.6, 0.1]) == pytest.approx(0.3)
  got = evaluation.performance_gap([[0.8, NAN, 0.6], [NAN] * 3])
  np.testing.assert_allclose(got, [0.1, NAN])
  assert evaluation.performance_gap([0.4] * 5) == 0


def test_what_was_known_before_by_hand():
  # Round 2: (0.5 - 0.4 + 0.1 - 0.7) / 2 = -0.25, better than before on
  # average; round 3: peaks 0.5 and 0.7, (0.5 - 0.5 + 0.7 - 0.1) / 2 = 0.3.
  got = evaluation.backward_transfer([[0.5, 0.1], [0.4, 0.7], [0.5, 0.1]])
  np.testing.assert_allclose(got, [NAN, -0.25, 0.3])
  np.testing.assert_array_equal(evaluation.backward_transfer([[1, 0]]), [NAN])


def test_accuracy_by_position_by_hand():
  # Labels 0 and 3 are served last, 2 first, 1 in between; 4 nowhere.
  got = evaluation.per_position([0.2, 0.5, 0.6, 0.4, 1.0], [2, 1, 0, 2, -1])
  np.testing.assert_allclose(got, [0.6, 0.5, 0.3])
  got = evaluation.per_position([[0.2, NAN], [0.1, 0.9]], [0, 2])
  np.testing.assert_array_equal(got, [[0.2, NAN, NAN], [0.1, NAN, 0.9]])


def test_the_last_five_by_hand():
  assert evaluation.late([9, 9, 1, 5, 3, 2, 4]) == 3
  assert evaluation.late([1, 2]) == 1.5
  assert evaluation.late([NAN, 0.2]) == 0.2
  assert math.isnan(evaluation.late([NAN, NAN]))
  got = evaluation.late([[1, NAN], [3, NAN]])
  np.testing.assert_array_equal(got, [2, NAN])


def test_a_summary_by_hand():
  told = evaluation.summarise_forgetting([0.5, None], [[0.9, 0.1], [0.6, None]])
  assert told["accuracy"] == 0.5 and told["rounds"] == 2
  # Gaps 0.4 and 0; of class 0 alone is something known of both rounds.
  assert told["gap"] == pytest.approx(0.2)
  assert told["backward"] == pytest.approx(0.3)
  one = evaluation.summarise_forgetting([0.5], [[0.9, 0.1]])
  assert math.isnan(one["backward"]) and one["gap"] == pytest.approx(0.4)
  many = evaluation.summarise_forgetting([0.1] * 9, [[0.5, 0.4]] * 9)
  assert many["rounds"] == len(many["late"]["per_class"]) == 5
  assert many["backward"] == 0, "over all rounds, not the last five"


def test_predictions_are_what_the_score_counts():
  rng = np.random.default_rng(1)
  clients, count = 4, 50
  labels = rng.integers(0, 3, count)
  exits = Exits(
    rng.random((clients, count)),
    np.ones((clients, count)),
    rng.integers(0, 3, (clients, count)),
    rng.integers(0, 3, (clients, count)),
  )
  exits.entropy[2, 0] = NAN
  every = np.ones((1, clients, count), bool)
  limit = np.array([0.1, 0.5, 0.9, NAN])
  for answers in (("client", "server"), ("client",), ("server",)):
    said = evaluation.predictions(exits, limit, answers)
    score = evaluation.score(exits, labels, every, limit, answers)
    np.testing.assert_allclose((said == labels).mean(1), score.accuracy[0])
  said = evaluation.predictions(exits, limit, ("client", "server"))
  assert said[2, 0] == exits.server[2, 0]
  np.testing.assert_array_equal(said[3], exits.server[3])
