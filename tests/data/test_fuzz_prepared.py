"""Damaged prepared data: the right data set or one line of error."""

import shutil

import numpy as np
import official_files as of
import official_pictures as op
import pytest
from damages import damages, one_line
from fuzz import BUDGETS, fuzz
from hypothesis import strategies as st

from splitjax.data import load
from splitjax.data.official import prepare
from splitjax.types import UserError

FORMS = {
  "idx": ("fashion_mnist", of.official),
  "cinic10": ("cinic10", op.cinic10),
}
"""With a builder of TFDS's own, and without."""


def in_one_of(folder, damage, number):
  """Changes one file in a folder; another file in its place, not a write."""
  paths = sorted(folder.iterdir())
  path = paths[number % len(paths)]
  raw = path.read_bytes()
  path.unlink()  # it may be mapped
  path.write_bytes(damage(raw))


@pytest.fixture(name="prepared", scope="module", params=["idx", "cinic10"])
def prepare_once(request, tmp_path_factory):
  """A prepared data set: name, its folder and copy there, what is loaded."""
  name, write = FORMS[request.param]
  files, data_dir = tmp_path_factory.mktemp("f"), tmp_path_factory.mktemp("d")
  write(files)
  with pytest.MonkeyPatch.context() as patch:
    of.trust(patch, files, name)
    prepare.prepare(name, data_dir, files)
  return name, data_dir, load(name, data_dir=data_dir)


def assert_same(data, right):
  for field in ("train_image", "train_label", "test_image", "test_label"):
    found, expected = getattr(data, field), getattr(right, field)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
  assert data.classes == right.classes


@BUDGETS
def test_prepared_data(prepared, large, tmp_path):
  name, whole, right = prepared
  held = tmp_path / "data"

  def prepared_files(damage, number):
    shutil.rmtree(held, ignore_errors=True)
    shutil.copytree(whole / name, held / name)
    (folder,) = (held / name).iterdir()
    in_one_of(folder, damage, number)
    try:
      data = load(name, data_dir=held)
    except UserError as error:
      return one_line(error)
    assert_same(data, right)
    return "right"

  fuzz(
    prepared_files,
    damages,
    st.integers(0, 10**6),
    large=large,
    examples=(20, 60),
  )
