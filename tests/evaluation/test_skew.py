"""Representation skew, against numbers worked by hand."""

import math

import numpy as np
import pytest
from matplotlib import image

from splitjax.evaluation import (
  chosen,
  coordinates,
  distance_ratio,
  silhouette,
)
from splitjax.reports import figures
from splitjax.reports.figures import maps

# Two clients, two classes, in the plane: class 0 lies at (1, 0) for both;
# class 1 at (0, 2) for client 0 and at (0, -3) for client 1.
Z = np.array([[1, 0], [0, 2], [1, 0], [0, -3]], np.float32)
CLASSES = np.array([0, 1, 0, 1])
CLIENTS = np.array([0, 0, 1, 1])


def test_distance_ratio_by_hand():
  # Of length 1: same class across clients |(0, 1) - (0, -1)| = 2 and 0, mean 1;
  # different classes across clients sqrt(2) twice.
  got = distance_ratio(Z, CLASSES, CLIENTS)
  assert got == pytest.approx(1 / math.sqrt(2))


def test_silhouette_by_hand():
  # Of length 1. Class 0: a = 0, so 1 each. Class 1: a = 2, b = sqrt(2):
  # (sqrt(2) - 2) / 2 each. With two samples of a class a is the other's.
  got = silhouette(Z, CLASSES)
  assert got == pytest.approx((2 + (math.sqrt(2) - 2)) / 4)


def test_pairs_of_one_image_are_left_out():
  images = np.array([7, 8, 7, 9])  # class 0 is the same image at both
  got = distance_ratio(Z, CLASSES, CLIENTS, images)
  assert got == pytest.approx(2 / math.sqrt(2))


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


def test_scale_does_not_matter_and_skew_is_measured():
  rng = np.random.default_rng(1)
  classes, clients = np.tile([0, 1], 20), np.repeat([0, 1, 2, 3], 10)
  centre = rng.normal(size=(2, 16))[classes]
  moved = rng.normal(size=(4, 2, 16))[clients, classes]
  noise = 0.1 * rng.normal(size=(40, 16))
  ratios = [
    distance_ratio(centre + s * moved + noise, classes, clients)
    for s in (0.0, 0.5, 5.0)
  ]
  assert 0 < ratios[0] < 0.2 < ratios[1] < ratios[2] < 1.2
  one, ten = (
    distance_ratio(c * (centre + noise), classes, clients) for c in (1, 10)
  )
  assert one == pytest.approx(ten)


def test_what_has_no_number():
  same_class, one_client = np.zeros(4, int), np.zeros(4, int)
  assert silhouette(Z, same_class) is None
  assert silhouette(Z, np.arange(4)) is None
  assert distance_ratio(Z, CLASSES, one_client) is None
  assert distance_ratio(Z, same_class, CLIENTS) is None
  zeros = np.zeros((4, 2))
  assert distance_ratio(zeros, CLASSES, CLIENTS) is None
  assert silhouette(zeros, CLASSES) == 0
  assert coordinates(np.ones((9, 2))) is None
  assert coordinates(Z[:3]) is None


def test_finite_ones_are_chosen_and_not_too_many():
  z = np.zeros((10, 2))
  z[3] = np.nan
  z[5, 1] = np.inf
  assert chosen(z).tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
  many = np.tile(z, (300, 1))
  few = chosen(many)
  assert len(set(few)) == 2000 and np.isfinite(many[few]).all()
  np.testing.assert_array_equal(few, chosen(many))


def test_the_map_is_the_same_every_time_and_is_drawn(tmp_path):
  rng = np.random.default_rng(2)
  label, client = np.arange(40) % 3, np.arange(40) // 20
  z = rng.normal(size=(3, 8))[label] + 0.1 * rng.normal(size=(40, 8))
  places = coordinates(z)
  assert places.shape == (40, 2) and np.isfinite(places).all()
  np.testing.assert_array_equal(places, coordinates(z))
  groups = {"class": label, "split depth": client + 1, "client": client}
  figure = maps.embeddings(places, groups, title="A method")
  pixels = image.imread(figures.save(figure, tmp_path / "map.png"))[..., :3]
  assert 0.01 < (pixels < 0.99).any(axis=-1).mean() < 0.5
