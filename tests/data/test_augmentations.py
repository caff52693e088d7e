"""Augmentations: against SciPy, Pillow and cases by hand; what is refused."""

import jax
import jax.numpy as jnp
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


@pytest.mark.parametrize("degrees", [0.0, 17.0, -40.0, 90.0])
def test_a_rotation_is_scipys(degrees):
  image = RNG.uniform(0, 255, (8, 11, 2))
  found = augmentations.rotated(jnp.asarray(image), np.deg2rad(degrees))
  want = scipy.ndimage.rotate(
    image, degrees, (1, 0), reshape=False, order=1, mode="constant"
  )
  # SciPy blends with black over the last pixel; compare where both are inside.
  inside = scipy.ndimage.rotate(
    np.ones((8, 11)), degrees, (1, 0), reshape=False, order=1, mode="constant"
  )
  whole = inside > 1 - 1e-9
  assert whole.sum() >= 30
  np.testing.assert_allclose(found[whole], want[whole], atol=1e-9)


def test_a_quarter_turn_of_a_square_is_numpys():
  image = RNG.uniform(0, 255, (6, 6, 3))
  found = augmentations.rotated(jnp.asarray(image), np.pi / 2)
  np.testing.assert_allclose(found, np.rot90(image), atol=1e-9)


@pytest.mark.parametrize(
  ("factors", "enhance"),
  [
    ((0.6, 1.0, 1.0), ImageEnhance.Brightness),
    ((1.3, 1.0, 1.0), ImageEnhance.Brightness),
    ((1.0, 0.5, 1.0), ImageEnhance.Contrast),
    ((1.0, 1.4, 1.0), ImageEnhance.Contrast),
    ((1.0, 1.0, 0.3), ImageEnhance.Color),
    ((1.0, 1.0, 1.4), ImageEnhance.Color),
  ],
)
def test_colours_are_pillows(factors, enhance):
  """Up to its rounding of greys to whole numbers."""
  found = augmentations.coloured(IMAGES[0].astype(float), jnp.array(factors))
  factor = next(x for x in factors if x != 1.0)
  want = np.asarray(enhance(Image.fromarray(IMAGES[0])).enhance(factor))
  np.testing.assert_allclose(found, want, rtol=0, atol=1.5)


def test_a_factor_of_one_changes_nothing():
  for image in (IMAGES[0], IMAGES[0][..., :1]):
    found = augmentations.coloured(image.astype(float), jnp.ones(3))
    np.testing.assert_allclose(found, image, atol=1e-9)


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


ALL = "crop_flip + rotation(degrees=10) + colour + cutout(size=2)"


@pytest.mark.parametrize(
  "text", ["crop", "rotation", "colour", "cutout(size=4)", ALL]
)
def test_images_and_keys_draw_their_own(text):
  same = np.broadcast_to(IMAGES[:1], IMAGES.shape)
  change = jax.jit(augmentations.make(text))
  found, again = change(same, KEY), change(same, KEY)
  assert found.dtype == np.uint8 and found.shape == same.shape
  np.testing.assert_array_equal(found, again)
  assert len({image.tobytes() for image in np.asarray(found)}) > 1
  assert (change(same, jax.random.key(1)) != found).any()


def test_a_list_is_applied_in_order():
  """The first with the batch's key, each other one with a key of its own."""
  one, two = map(augmentations.make, ("cutout(size=3)", "crop"))
  both = augmentations.make("cutout(size=3)+crop")(IMAGES, KEY)
  want = two(one(IMAGES, KEY), jax.random.fold_in(KEY, 1))
  np.testing.assert_array_equal(both, want)
  np.testing.assert_array_equal(augmentations.make("none")(IMAGES, KEY), IMAGES)
  old = augmentations.augment(IMAGES, KEY, mirror=True)
  np.testing.assert_array_equal(
    augmentations.make("crop_flip")(IMAGES, KEY), old
  )


def test_options_are_those_of_the_text():
  strong = augmentations.make("colour(brightness=1,contrast=0,saturation=0)")
  grey = np.full((50, 4, 4, 1), 100, np.uint8)
  found = np.asarray(strong(grey, KEY))[:, 0, 0, 0]
  assert found.min() < 30 and found.max() > 170
  still = augmentations.make("rotation(degrees=1e-6)")
  np.testing.assert_array_equal(still(IMAGES, KEY), IMAGES)


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("crop_flop", "unknown name 'crop_flop'; did you mean 'crop_flip'"),
    ("crop-flip", "must be none, or names joined by"),
    ("", "must be none, or names joined by"),
    ("crop + none(", "must be none, or names joined by"),
    ("rotation(10)", "must be none, or names joined by"),
    ("rotation(degrees=x)", "must be none, or names joined by"),
    ("'crop'", "must be none, or names joined by"),
    ("crop(pad=3)", r"data.augment \(crop\): unknown option 'pad'"),
    ("rotation(degrees=200)", "data.augment.degrees=200.* at most 180"),
    ("rotation(degrees=0)", "data.augment.degrees=0.* above 0"),
    ("crop + cutout(size=0)", "data.augment.size=0 must be at least 1"),
    ("colour(contrast=1.5)", "data.augment.contrast=1.5"),
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
  draft = tiny.tiny(own="local")
  draft.data.augment = ALL
  said = data_summary.notes(tasks.build(tiny.resolved(draft)))[-1]
  assert said == f"Training images are augmented in every step: {ALL}."
