"""Damaged data files: the right data set or one line of error, and no hang.

A byte here and there, or a stretch of them, is changed: of the files as they
are, and of what lies below their compression, whose checksums would find it.
"""

import gzip
import shutil
import warnings

import numpy as np
import official_archives as oa
import official_files as of
import official_pictures as op
import pytest
from damages import damages, one_line
from forms import FORMS
from fuzz import BUDGETS, fuzz
from hypothesis import strategies as st

from splitjax.data import load, sources, tfds_store
from splitjax.data.official import prepare
from splitjax.data.official.catalog import STORES
from splitjax.types import UserError


@pytest.fixture(name="as_users", autouse=True)
def warn_as_users_are_warned():
  """What warns elsewhere is an error in tests, which a reader may catch."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def in_gzip(path, damage):
  path.write_bytes(gzip.compress(damage(gzip.decompress(path.read_bytes())), 1))


def in_file(path, damage):
  path.write_bytes(damage(path.read_bytes()))


def in_tar_member(path, damage, number):
  """Changes one file of a tar.gz."""
  members = oa.read_tar(path)
  names = [name for name, raw in members.items() if raw is not None]
  name = names[number % len(names)]
  oa.write_tar(path, {**members, name: damage(members[name])})


def in_zip_member(path, damage, number):
  """Changes one file of a zip, half the time one of text."""
  members = op.read_zip(path)
  names = [name for name in members if number % 2 or name.endswith(".txt")]
  name = names[number // 2 % len(names)]
  op.write_zip(path, {**members, name: damage(members[name])})


def in_npz_member(path, damage, number):
  in_zip_member(path, damage, 2 * number + 1)


# scipy may crash on a damaged MATLAB file, whose md5 prepare compares before.
ALL_FORMS = {**FORMS, "idx": ("fashion_mnist", of.official)}
del ALL_FORMS["svhn"], ALL_FORMS["emnist"]
LAYERS = {
  "idx": [in_file, in_gzip, in_gzip],
  "tiny_imagenet": [in_file, in_zip_member],
  **dict.fromkeys(
    "cifar10_python cifar10_binary cifar100_python cifar100_binary "
    "cinic10".split(),
    [in_file, in_gzip, in_tar_member, in_tar_member],
  ),
}
"""Form -> where its files are changed."""


def changed(folder, layers, damage, number):
  """Changes one file in a folder; returns which."""
  paths = sorted(folder.iterdir())
  path = paths[number % len(paths)]
  layer = layers[number // len(paths) % len(layers)]
  rest = number // len(paths) // len(layers)
  if layer in (in_tar_member, in_zip_member, in_npz_member):
    layer(path, damage, rest)
  else:
    layer(path, damage)
  return path


def parsed(name, folder):
  """Reads official files as prepare does; the pictures too."""
  (form,) = (
    form
    for form in STORES[name].forms
    if all((folder / file).is_file() for file in form.files)
  )
  found = form.parse({file: folder / file for file in form.files})
  pixels = {}
  for split, content in found.splits.items():
    images = [
      tfds_store._pixels(image) if isinstance(image, bytes) else image
      for image in content.images
    ]
    pixels[split] = images, content
  return pixels, found.names


def assert_usable(name, pixels, names):
  """Images and labels of one shape and number, as the data set has them."""
  facts = sources.FACTS[name]
  assert set(pixels) == {"train", "test"}
  for images, content in pixels.values():
    assert images
    assert {(i.shape, i.dtype) for i in images} == {
      (facts.shape, np.dtype("u1"))
    }
    for label in content.labels.values():
      assert label.shape == (len(images),) and label.dtype == np.int64
    label = content.labels["label"]
    assert label.min() >= 0 and label.max() < facts.classes
    assert not content.ids or len(content.ids) == len(images)
  for field, said in names.items():
    assert len(set(said)) == len(said) == content_classes(name, field)
    assert all(isinstance(n, str) and n and n.isprintable() for n in said)


def content_classes(name, field):
  return sources.FACTS[name].classes if field == "label" else 20


@pytest.mark.parametrize(
  ("form", "large"),
  [
    *((form, False) for form in ("idx", "cifar10_python", "cinic10")),
    *(pytest.param(f, True, marks=pytest.mark.slow) for f in sorted(ALL_FORMS)),
  ],
)
def test_modified_official_files(form, large, tmp_path):
  name, write = ALL_FORMS[form]
  whole, files = tmp_path / "whole", tmp_path / "files"
  whole.mkdir()
  write(whole)

  def official_files(damage, number):
    shutil.rmtree(files, ignore_errors=True)
    shutil.copytree(whole, files)
    changed(files, LAYERS[form], damage, number)
    try:
      found = parsed(name, files)
    except UserError as error:
      assert str(files) in str(error)
      return one_line(error)
    assert_usable(name, *found)
    return "usable"

  fuzz(
    official_files,
    damages,
    st.integers(0, 10**6),
    large=large,
    examples=(20, 50),
  )


@BUDGETS
@pytest.mark.parametrize("form", ["idx"])
def test_official_files_are_known_by_their_checksums(
  form, large, tmp_path, monkeypatch
):
  name, write = ALL_FORMS[form]
  whole, files = tmp_path / "whole", tmp_path / "files"
  whole.mkdir()
  write(whole)
  of.trust(monkeypatch, whole, name)

  def checksums(damage, number):
    shutil.rmtree(files, ignore_errors=True)
    shutil.copytree(whole, files)
    path = changed(files, LAYERS[form], damage, number)
    if path.read_bytes() == (whole / path.name).read_bytes():
      return "unchanged"
    with pytest.raises(UserError, match="is not the official file") as error:
      prepare.prepare(name, tmp_path / "data", files)
    assert not (tmp_path / "data").exists()
    return one_line(error)

  fuzz(
    checksums,
    damages,
    st.integers(0, 10**6),
    large=large,
    examples=(20, 80),
  )


def own_arrays():
  rng = np.random.default_rng(0)
  return {
    "x_train": rng.integers(0, 256, (12, 8, 6, 3), np.uint8),
    "y_train": np.arange(12) % 3,
    "x_test": rng.integers(0, 256, (5, 8, 6, 3), np.uint8),
    "y_test": np.array([2, 0, 0, 1, 2]),
  }


@BUDGETS
def test_arrays_of_ones_own(large, tmp_path):
  folder = tmp_path / "own"
  folder.mkdir()

  def own_files(damage, number, packed):
    save = np.savez_compressed if packed else np.savez
    save(folder / "mine.npz", **own_arrays())
    changed(folder, [in_file, in_npz_member, in_npz_member], damage, number)
    try:
      data = load(f"npz:{folder / 'mine.npz'}")
    except UserError as error:
      return one_line(error)
    for split in ("train", "test"):
      image = getattr(data, f"{split}_image")
      label = getattr(data, f"{split}_label")
      assert image.dtype == np.uint8 and image.ndim == 4
      assert image.shape[1:] == data.train_image.shape[1:]
      assert label.dtype == np.int32 and label.shape == (len(image),) != (0,)
      assert 0 <= label.min() and label.max() < data.classes
    return "usable"

  fuzz(
    own_files,
    damages,
    st.integers(0, 10**6),
    st.booleans(),
    large=large,
    examples=(60, 300),
  )
