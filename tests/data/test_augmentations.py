"""Augmentations: against SciPy, Pillow and cases by hand; what is refused."""

import jax
import numpy as np
import pytest
import scipy.ndimage
import tiny
from PIL import Image, ImageEnhance

from splitjax import AUGMENTATIONS, UserError
from splitjax.data import augmentations
from splitjax.experiment.setup import data_summary, tasks

pytestmark = pytest.mark.usefixtures("float64")

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
IMAGES = RNG.integers(0, 256, (4, 9, 12, 3)).astype(np.uint8)


rotated = jax.jit(augmentations.rotated)
coloured = jax.jit(augmentations.coloured)


@pytest.mark.parametrize("degrees", [17.0, -40.0, 90.0])
def test_a_rotation_is_scipys(degrees):
  image = RNG.uniform(0, 255, (8, 11, 2))
  found = rotated(image, np.deg2rad(degrees))
  how = {"reshape": False, "order": 1, "mode": "constant"}
  want = scipy.ndimage.rotate(image, degrees, (1, 0), **how)
  # SciPy blends with black over the last pixel; compare where both are inside.
  inside = scipy.ndimage.rotate(np.ones((8, 11)), degrees, (1, 0), **how)
  whole = inside > 1 - 1e-9
  assert whole.sum() >= 30
  np.testing.assert_allclose(found[whole], want[whole], atol=1e-9)


def test_a_quarter_turn_of_a_square_is_numpys():
  image = RNG.uniform(0, 255, (6, 6, 3))
  found = rotated(image, np.pi / 2)
  np.testing.assert_allclose(found, np.rot90(image), atol=1e-9)


@pytest.mark.parametrize(
  ("factors", "enhance"),
  [
    ((1.3, 1.0, 1.0), ImageEnhance.Brightness),
    ((1.0, 0.5, 1.0), ImageEnhance.Contrast),
    ((1.0, 1.4, 1.0), ImageEnhance.Contrast),
    ((1.0, 1.0, 0.3), ImageEnhance.Color),
  ],
)
def test_colours_are_pillows(factors, enhance):
  """Up to its rounding of greys to whole numbers."""
  image = IMAGES[0].astype(float)
  found = coloured(image, np.array(factors))
  factor = next(x for x in factors if x != 1.0)
  want = np.asarray(enhance(Image.fromarray(IMAGES[0])).enhance(factor))
  np.testing.assert_allclose(found, want, rtol=0, atol=1.5)
  np.testing.assert_allclose(coloured(image, np.ones(3)), image, atol=1e-9)


def test_cutout_blackens_a_square():
  white = np.full((300, 7, 10, 2), 255, np.uint8)
  found = np.asarray(augmentations.make("cutout(size=3)")(white, KEY))
  seen = set()
  for image in found:
    black = np.argwhere((image == 0).all(axis=-1))
    (top, left), (bottom, right) = black.min(axis=0), black.max(axis=0)
    height, width = bottom - top + 1, right - left + 1
    assert (image[top : bottom + 1, left : right + 1] == 0).all()
    assert len(black) == height * width == (image == 0).sum() / 2
    # Whole inside, cut off at an edge.
    assert height == 3 or top == 0 or bottom == 6
    assert width == 3 or left == 0 or right == 9
    seen.add((top, left, bottom, right))
  assert len(seen) > 50  # of 70 centres


def all_of(*texts):
  """The results of several augmentations, compiled together."""
  each = [augmentations.make(text) for text in texts]
  return jax.jit(lambda image, key: [change(image, key) for change in each])


def test_images_and_keys_draw_their_own():
  same = np.broadcast_to(IMAGES[:1], IMAGES.shape)
  draw = all_of("crop", "rotation", "colour", "cutout(size=4)")
  first, again, other = (draw(same, jax.random.key(i)) for i in (0, 0, 1))
  for found, twice, changed in zip(first, again, other, strict=True):
    assert found.dtype == np.uint8 and found.shape == same.shape
    np.testing.assert_array_equal(found, twice)
    assert len({image.tobytes() for image in np.asarray(found)}) > 1
    assert (changed != found).any()


def test_a_list_is_applied_in_order():
  """The first with the batch's key, each other one with a key of its own."""
  cut, both, none, flipped = all_of(
    "cutout(size=3)", "cutout(size=3)+crop", "none", "crop_flip"
  )(IMAGES, KEY)
  crop = jax.jit(augmentations.augment, static_argnames="mirror")
  want = crop(cut, jax.random.fold_in(KEY, 1), mirror=False)
  np.testing.assert_array_equal(both, want)
  np.testing.assert_array_equal(none, IMAGES)
  np.testing.assert_array_equal(flipped, crop(IMAGES, KEY, mirror=True))


def test_options_are_those_of_the_text():
  grey = np.full((50, 4, 4, 1), 100, np.uint8)
  strong, still = all_of(
    "colour(brightness=1,contrast=0,saturation=0)", "rotation(degrees=1e-6)"
  )(grey, KEY)
  found = np.asarray(strong)[:, 0, 0, 0]
  assert found.min() < 30 and found.max() > 170
  np.testing.assert_array_equal(still, grey)


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("crop_flop", "unknown name 'crop_flop'; did you mean 'crop_flip'"),
    ("crop-flip", "must be none, or names joined by"),
    ("rotation(degrees=x)", "must be none, or names joined by"),
    ("crop(pad=3)", r"data.augment \(crop\): unknown option 'pad'"),
    ("rotation(degrees=200)", "data.augment.degrees=200.* at most 180"),
    ("crop + cutout(size=0)", "data.augment.size=0 must be at least 1"),
  ],
)
def test_a_wrong_text_is_one_line(text, said):
  draft = tiny.tiny(own="local")
  draft.data.augment = text
  with pytest.raises(UserError, match=said) as caught:
    tiny.resolved(draft)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
  ("entry", "said"),
  [
    (lambda: lambda x, key: x.astype(float), r"makes float64 \[2, 28, 28, 1\]"),
    (lambda: lambda x, key: x[:, 1:], r"makes uint8 \[2, 27, 28, 1\]"),
    (lambda: lambda x: x, "takes 1 positional argument but 2 were given"),
  ],
)
def test_a_wrong_entry_is_one_line(entry, said, monkeypatch):
  monkeypatch.setitem(AUGMENTATIONS, "mine", entry)
  draft = tiny.tiny(own="local")
  draft.data.augment = "crop + mine"
  with pytest.raises(UserError, match=said) as caught:
    tasks.build(tiny.resolved(draft))
  assert "\n" not in str(caught.value)


def test_a_report_says_how_images_are_augmented():
  draft = tiny.changed(tiny.tiny(own="local"), data__augment="crop + colour")
  said = data_summary.notes(tasks.build(tiny.resolved(draft)))[-1]
  assert said.endswith("augmented in every step: crop + colour.")
