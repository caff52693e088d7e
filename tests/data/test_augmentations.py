"""Augmentations: cases by hand; what is refused."""

import jax
import numpy as np
import pytest
import tiny
from refusals import refused

from splitjax import AUGMENTATIONS, experiment

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 9, 12, 3)).astype(np.uint8)


@pytest.mark.parametrize("name", ["crop", "crop_flip"])
def test_images_and_keys_draw_their_own(name):
  same = np.broadcast_to(IMAGES[:1], IMAGES.shape)
  draw = jax.jit(AUGMENTATIONS[name])
  found, twice, changed = (draw(same, jax.random.key(i)) for i in (0, 0, 1))
  assert found.dtype == np.uint8 and found.shape == same.shape
  np.testing.assert_array_equal(found, twice)
  assert len({image.tobytes() for image in np.asarray(found)}) > 1
  assert (changed != found).any()


def test_a_wrong_name_is_one_line():
  draft = tiny.tiny(own="local")
  draft.data.augment = "crop_flop"
  with refused("data.augment"):
    tiny.resolved(draft)


def test_a_wrong_entry_is_one_line(monkeypatch):
  draft = tiny.tiny(own="local")
  draft.data.augment = "mine"
  for entry in (
    lambda x, key: x.astype(float),
    lambda x, key: x[:, 1:],
    lambda x: x,
  ):
    monkeypatch.setitem(AUGMENTATIONS, "mine", entry)
    with refused("data.augment"):
      experiment.build(tiny.resolved(draft))


def test_a_report_says_how_images_are_augmented():
  draft = tiny.changed(tiny.tiny(own="local"), data__augment="crop")
  said = experiment.notes(experiment.build(tiny.resolved(draft)))[-1]
  assert said.endswith("augmented in every step: crop.")
