"""Corruptions at every severity: against SciPy and Pillow."""

import itertools

import jax
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from PIL import Image, ImageEnhance
from refusals import refused

from splitjax import CORRUPTIONS
from splitjax.data import Dataset, corrupted, deal_domains, read_domains

pytestmark = pytest.mark.usefixtures("float64")

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (32, 24, 3)).astype(np.uint8)
KEY = jax.random.key(0)


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


def dataset(train, test):
  """A data set of images [Z, H, W, c] whose labels are their rows modulo 3."""
  label = [np.arange(len(image), dtype=np.int32) % 3 for image in (train, test)]
  return Dataset("x", 3, train, label[0], test, label[1])


def numbered(count, first):
  """Images [Z, 2, 3, 1] that carry their own number."""
  number = first + np.arange(count, dtype=np.uint8)
  shape = count, 2, 3, 1
  return np.array(np.broadcast_to(number[:, None, None, None], shape))


def test_training_images_are_in_their_domain_and_test_images_in_all(
  monkeypatch,
):
  monkeypatch.setitem(CORRUPTIONS, "add", lambda image, s, key: image + 20 * s)
  monkeypatch.setitem(CORRUPTIONS, "double", lambda image, s, key: 2 * image)
  plain = dataset(numbered(30, 0), numbered(12, 60))
  plain = plain._replace(test_client=np.arange(12) // 4)
  domains = "clean", "add 1", "double 3"
  of_row = np.arange(30) % 3
  data = corrupted(plain, of_row, domains, 0)
  want = np.arange(30)
  want[1::3] += 20
  want[2::3] *= 2
  np.testing.assert_array_equal(data.train_image[:, 1, 2, 0], want)
  assert plain.train_image[1, 0, 0, 0] == 1  # untouched
  clean = np.arange(60, 72)
  want = np.concatenate([clean, clean + 20, 2 * clean])
  np.testing.assert_array_equal(data.test_image[:, 1, 2, 0], want)
  assert data.domain_names == domains
  assert data.train_domain.tolist() == of_row.tolist()
  assert data.test_domain.tolist() == [0] * 12 + [1] * 12 + [2] * 12
  assert data.test_label.tolist() == plain.test_label.tolist() * 3
  assert data.test_client.tolist() == plain.test_client.tolist() * 3


def test_an_image_draws_by_seed_split_and_row_alone():
  image = RNG.integers(0, 256, (300, 4, 5, 1)).astype(np.uint8)
  noise = "gaussian_noise 5"
  rows = np.zeros(300, int)
  drawn = corrupted(dataset(image, image), rows, (noise,), 0)
  few = corrupted(dataset(image[:9], image[:280]), rows[:9], (noise,), 0)
  np.testing.assert_array_equal(few.train_image, drawn.train_image[:9])
  np.testing.assert_array_equal(few.test_image, drawn.test_image[:280])
  assert (drawn.train_image != drawn.test_image).any()
  other = corrupted(dataset(image, image), rows, (noise,), 1)
  assert (drawn.train_image != other.train_image).any()
  # Equal images have draws of their own; severities share them.
  grey = np.full((2, 4, 5, 1), 128, np.uint8)
  levels = "gaussian_noise 1", "gaussian_noise 5"
  data = corrupted(dataset(grey, grey), rows[:2], levels, 0)
  assert (data.test_image[0] != data.test_image[1]).any()
  one, five = data.test_image[::2].astype(int) - 128
  assert np.abs(five * 0.4 - one).max() <= 1


def test_domains_are_dealt_evenly_and_by_the_seed():
  dealt = deal_domains(4, 30, 5)
  assert sorted(np.bincount(dealt)) == [7, 7, 8, 8]
  assert (dealt != deal_domains(4, 30, 6)).any()


def test_names_of_domains():
  levels = tuple(f"rotation {severity}" for severity in range(1, 6))
  names = "clean", "contrast 1", "rotation", "rotation 2"
  assert read_domains(names, "field") == (*names[:2], *levels)
  for text in "rotaton 3", "rotation 6", "rotation 3 4", "clean 2":
    with refused("field"):
      read_domains(("contrast 2", text), "field")


def test_data_that_cannot_be_in_a_domain_are_refused():
  series = np.zeros((6, 5, 2), np.float32)
  grey = dataset(numbered(6, 0), numbered(3, 60))
  dealt = grey._replace(train_domain=np.zeros(6, int))
  for data in (dataset(series, series), dealt):
    with refused("domains clean"):
      corrupted(data, np.zeros(6, int), ("clean", "contrast 1"), 0)
