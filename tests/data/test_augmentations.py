"""Augmentations: crops by a loop, draws; what is refused."""

import itertools

import jax
import numpy as np
import pytest
from refusals import refused

from splitjax import AUGMENTATIONS
from splitjax.data import Dataset, augmentations

KEY = jax.random.key(0)


def crops(image, mirror):
  """Crop of an image [H, W, c], as bytes -> its corner and side, by a loop."""
  height, width, channels = image.shape
  framed = np.zeros((height + 8, width + 8, channels), np.uint8)
  framed[4 : 4 + height, 4 : 4 + width] = image
  corners = {}
  for y, x in itertools.product(range(9), range(9)):
    cut = framed[y : y + height, x : x + width]
    corners[cut.tobytes()] = (y, x, 0)
    if mirror:
      corners[cut[:, ::-1].tobytes()] = (y, x, 1)
  return corners


@pytest.mark.parametrize(("name", "mirror"), [("crop", 0), ("crop_flip", 1)])
def test_augmentation_is_a_crop_out_of_a_black_frame(name, mirror):
  rng = np.random.default_rng(1)
  image = rng.integers(1, 256, (1, 9, 10, 2), np.uint8)
  count = 2000
  images = np.repeat(image, count, 0)
  draw = jax.jit(AUGMENTATIONS[name])
  changed = draw(images, KEY)
  assert changed.shape == (count, 9, 10, 2) and changed.dtype == np.uint8
  np.testing.assert_array_equal(changed, draw(images, KEY))
  assert (changed != draw(images, jax.random.key(1))).any()
  corners = crops(image[0], mirror)
  seen = np.array([corners[x.tobytes()] for x in np.asarray(changed)])
  # Each of 81 corners about 25 times, and either side 1,000 times.
  counts = np.bincount(9 * seen[:, 0] + seen[:, 1], minlength=81)
  assert counts.min() > 5 and counts.max() < 55
  assert abs(seen[:, 2].sum() - mirror * count / 2) < 120 * mirror + 1
  # The side does not depend on the corner.
  assert set(seen[seen[:, 0] < 4, 2]) == set(range(1 + mirror))


def test_names_are_applied_in_order(monkeypatch):
  monkeypatch.setitem(AUGMENTATIONS, "add", lambda image, key: image + 3)
  monkeypatch.setitem(AUGMENTATIONS, "double", lambda image, key: 2 * image)
  image = np.full((2, 3, 3, 1), 5, np.uint8)
  table = {(): 5, ("add", "double"): 16, ("double", "add"): 13}
  for names, want in table.items():
    assert (augmentations.augmented(image, names, KEY) == want).all()
  # The first draws as it does alone, later ones otherwise.
  image = np.random.default_rng(0).integers(1, 256, (9, 8, 8, 1), np.uint8)
  twice = augmentations.augmented(image, ("crop_flip", "crop_flip"), KEY)
  first = AUGMENTATIONS["crop_flip"](image, KEY)
  assert (twice != AUGMENTATIONS["crop_flip"](first, KEY)).any()


def test_who_is_augmented(monkeypatch):
  """Ours change images; a user's own series, too, but nobody token ids."""
  same = augmentations.of_image(lambda image, key: image)
  monkeypatch.setitem(AUGMENTATIONS, "same", same)
  label = np.zeros(4, np.int32)
  series = np.zeros((4, 5, 2), np.float32)
  data = Dataset("x", 2, series, label, series, label)
  augmentations.check(("same",), data)
  ids = np.zeros((4, 7), np.int32)
  text = Dataset("x", 2, ids, label, ids, label, vocabulary=9)
  for name, inputs in (("crop", data), ("crop", text), ("same", text)):
    with refused("data.augment"):
      augmentations.check((name,), inputs)


@pytest.mark.parametrize(
  ("change", "outcome"),
  [
    (lambda image, key: image[:, 1:], "returns uint8 [2, 7, 6, 3]"),
    (lambda image, key: image / 2, "returns float32 [2, 8, 6, 3]"),
    (lambda image, key: image[0], "returns uint8 [8, 6, 3]"),
    (lambda image, key: None, "returns a NoneType"),
    (lambda image, key: (image, key), "returns a tuple"),
    (lambda image: image, "raises TypeError"),
    (lambda image, key, rate: image, "raises TypeError"),
    (lambda image, key: image @ key, "raises ValueError"),
    (7, "raises TypeError"),
  ],
)
def test_what_an_augmentation_must_return(change, outcome, monkeypatch):
  monkeypatch.setitem(AUGMENTATIONS, "mine", change)
  image, label = np.zeros((4, 8, 6, 3), np.uint8), np.zeros(4, np.int32)
  data = Dataset("x", 2, image, label, image, label)
  with refused("data.augment='mine'") as error:
    augmentations.check(("crop", "mine"), data)
  assert f"it {outcome}" in str(error.value)
  assert str(error.value).endswith("it must return uint8 [2, 8, 6, 3]")
