"""Corruptions at every severity: against SciPy, Pillow and colorsys."""

import colorsys
import itertools

import jax
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from PIL import Image, ImageEnhance
from refusals import refused

from splitjax import CORRUPTIONS, data

pytestmark = pytest.mark.usefixtures("float64")

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (32, 24, 3)).astype(np.uint8)
IMAGE[:2] = IMAGE[:2, :, :1]  # grey pixels, whose hue is 0
IMAGE[2] = 0
KEY, SEED = jax.random.key(0), (0, 1)


def by_hsv(change):
  """The image with a function of each pixel's (h, s, v)."""

  def pixel(rgb):
    hsv = change(*colorsys.rgb_to_hsv(*rgb))
    return np.array(colorsys.hsv_to_rgb(*hsv), float)

  return 255 * np.apply_along_axis(pixel, -1, IMAGE / 255)


def rotation(i):
  """SciPy's, where no pixel beyond the image is blended in."""
  how = {"reshape": False, "order": 1, "mode": "constant"}
  angle = 15.0 * (i + 1)
  inside = scipy.ndimage.rotate(np.ones(IMAGE.shape), angle, (1, 0), **how)
  turned = scipy.ndimage.rotate(IMAGE.astype(float), angle, (1, 0), **how)
  return np.where(inside > 1 - 1e-9, turned, np.nan)


def contrast(i):
  """Pillow's, of each channel by itself."""
  how = (0.75, 0.5, 0.4, 0.3, 0.15)[i]
  channels = Image.fromarray(IMAGE).split()
  return np.stack([ImageEnhance.Contrast(c).enhance(how) for c in channels], -1)


def pixelate(i):
  """Pillow's, there and back."""
  share = (0.95, 0.9, 0.85, 0.75, 0.65)[i]
  small = int(24 * share), int(32 * share)
  image = Image.fromarray(IMAGE).resize(small, Image.Resampling.BOX)
  return np.asarray(image.resize((24, 32), Image.Resampling.BOX))


WANT = {
  "rotation": (rotation, 1e-9),
  "brightness": (
    lambda i: by_hsv(
      lambda h, s, v: (h, s, min(1, v + (0.05, 0.1, 0.15, 0.2, 0.3)[i]))
    ),
    1e-9,
  ),
  "saturate": (
    lambda i: by_hsv(
      lambda h, s, v: (
        h,
        min(1, s * (0.3, 0.1, 1.5, 2, 2.5)[i] + (0, 0, 0, 0.1, 0.2)[i]),
        v,
      )
    ),
    1e-9,
  ),
  # Pillow rounds the mean, and what lies between two resizings.
  "contrast": (contrast, 1.5),
  "pixelate": (pixelate, 1.0),
  "gaussian_blur": (
    lambda i: scipy.ndimage.gaussian_filter(
      IMAGE.astype(float), (0.4, 0.6, 0.7, 0.8, 1)[i], axes=(0, 1),
      mode="nearest",
    ),
    1e-9,
  ),
}  # fmt: skip


def test_a_corruption_is_that_of_another_library():
  assert CORRUPTIONS.keys() == WANT.keys() | {"gaussian_noise"}
  for (name, (reference, atol)), i in itertools.product(WANT.items(), range(5)):
    found = np.asarray(CORRUPTIONS[name](IMAGE.astype(float), i + 1, KEY))
    want = np.asarray(reference(i), float)
    known = ~np.isnan(want)
    assert known.mean() > 0.2
    np.testing.assert_allclose(
      found[known], want[known], 0, atol, err_msg=f"{name}:{i + 1}"
    )


def test_noise_is_normal_with_its_deviation():
  grey = np.full((60, 60, 3), 128.0)
  for i, scale in enumerate((0.04, 0.06, 0.08, 0.09, 0.1)):
    found = CORRUPTIONS["gaussian_noise"](grey, i + 1, KEY)
    drawn = (np.asarray(found) - 128).ravel() / 255
    assert scipy.stats.kstest(drawn / scale, "norm").pvalue > 0.01, scale


def test_an_image_draws_by_its_row_whatever_comes_with_it():
  images = RNG.integers(0, 256, (300, 4, 5, 1)).astype(np.uint8)
  look = "rotation:2", "none", "gaussian_noise:5"
  rows = np.arange(299, -1, -1)
  every = data.apply_corruptions(images, rows, look, SEED)
  assert every.shape == images.shape and every.dtype == np.uint8
  few = np.array([7, 260, 3])
  np.testing.assert_array_equal(
    data.apply_corruptions(images, few, look, SEED), every[299 - few]
  )
  # Two equal images have draws of their own, and a look has an order.
  same = np.repeat(images[:1], 2, axis=0)
  one, two = data.apply_corruptions(
    same, np.arange(2), ("gaussian_noise:1",), SEED
  )
  assert (one != two).any()
  turned = data.apply_corruptions(images, few, look[::-1], SEED)
  assert (turned != every[299 - few]).any()
  np.testing.assert_array_equal(
    data.apply_corruptions(images, few, (), SEED), images[few]
  )


def test_domains_are_checked():
  for text in ("rotaton:3", "rotation:6", "none:2"):
    with refused("field"):
      data.read_corruptions(text, 3, "field")
  assert data.read_corruptions("none, contrast:1 ,rotation", 3, "f") == (
    "none", "contrast:1", "rotation:3",
  )  # fmt: skip


def test_images_that_do_not_fit_are_refused(monkeypatch):
  with refused("field"):
    data.check_corruptions(["none", "saturate:1"], (4, 4, 1), "field")
  data.check_corruptions(["none", "saturate:1"], (4, 4, 3), "field")
  half = lambda image, severity, key: image[::2]  # noqa: E731
  monkeypatch.setitem(CORRUPTIONS, "half", half)
  with refused("field"):
    data.check_corruptions(["half:1"], (4, 4, 1), "field")
