"""Damage that hypothesis draws: one line, or data that are right or usable.

A byte here and there, or a stretch of them, of files as they are and of what
lies below compression.
"""

import functools
import gzip
import shutil
import warnings

import numpy as np
import official as of
import packed
import pytest
from fuzz import BUDGETS, damages, fuzz, one_line
from hypothesis import strategies as st
from marks import slow

from splitjax.data import FACTS, STORES, load, tfds_store
from splitjax.types import UserError

numbers = st.integers(0, 10**6)


@pytest.fixture(autouse=True)
def warn_as_users_are_warned():
  """What warns elsewhere is an error in tests, which a reader may catch."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def in_gzip(path, damage, number):
  path.write_bytes(gzip.compress(damage(gzip.decompress(path.read_bytes())), 1))


def in_file(path, damage, number):
  raw = path.read_bytes()
  path.unlink()  # it may be mapped
  path.write_bytes(damage(raw))


def in_member(path, damage, number):
  """Changes one member of an archive; of a zip half the time one of text."""
  zipped = path.suffix in (".zip", ".npz")
  members = (packed.read_zip if zipped else packed.read_tar)(path)
  names = [name for name, raw in members.items() if raw is not None]
  texts = [name for name in names if name.endswith(".txt")]
  names = texts if zipped and texts and number % 2 else names
  name = names[number // 2 % len(names)]
  members[name] = damage(members[name])
  (packed.write_zip if zipped else packed.write_tar)(path, members)


LAYERS = {
  "idx": [in_file, in_gzip, in_gzip],
  "tiny_imagenet": [in_file, in_member],
  **dict.fromkeys(
    ["cifar10_python", "cifar10_binary", "cinic10"],
    [in_file, in_gzip, in_member, in_member],
  ),
}
"""Form -> where its files are changed. scipy may crash on a damaged MATLAB
file, whose md5 prepare compares before."""


def changed(folder, layers, damage, number):
  """Changes one file in a folder."""
  paths = sorted(folder.iterdir())
  number, place = divmod(number, len(paths))
  number, layer = divmod(number, len(layers))
  layers[layer](paths[place], damage, number)


def assert_usable(name, found):
  """Images and labels of one shape and number, as the data set has them."""
  facts = FACTS[name]
  assert set(found.splits) == {"train", "test"}
  for content in found.splits.values():
    images = [
      tfds_store._pixels(image) if isinstance(image, bytes) else image
      for image in content.images
    ]
    assert {(i.shape, i.dtype.str) for i in images} == {(facts.shape, "|u1")}
    for label in content.labels.values():
      assert label.shape == (len(images),) and label.dtype == np.int64
    label = content.labels["label"]
    assert label.min() >= 0 and label.max() < facts.classes
    assert not content.ids or len(content.ids) == len(images)
  for field, said in found.names.items():
    count = facts.classes if field == "label" else 20
    assert len(set(said)) == len(said) == count
    assert all(isinstance(n, str) and n and n.isprintable() for n in said)


@pytest.mark.parametrize(
  ("form", "large"),
  [
    ("idx", False),
    ("cifar10_python", False),
    ("cinic10", False),
    *slow(*((form, True) for form in LAYERS)),
  ],
)
def test_modified_official_files(form, large, tmp_path):
  name, write = of.FORMS[form]
  whole, files = tmp_path / "whole", tmp_path / "files"
  whole.mkdir()
  write(whole)

  def official_files(damage, number):
    shutil.rmtree(files, ignore_errors=True)
    shutil.copytree(whole, files)
    changed(files, LAYERS[form], damage, number)
    try:
      (chosen,) = (
        form
        for form in STORES[name].forms
        if all((files / file).is_file() for file in form.files)
      )
      found = chosen.parse({file: files / file for file in chosen.files})
      assert_usable(name, found)
    except UserError as error:
      assert str(files) in str(error)
      return one_line(error)
    return "usable"

  fuzz(official_files, damages, numbers, large=large, examples=(20, 50))


@pytest.mark.parametrize(
  ("form", "large"),  # of TFDS's builders, or not
  [("idx", False), *slow(("idx", True), ("cinic10", True))],
)
def test_prepared_data(form, large, tmp_path_factory, tmp_path):
  whole, _ = of.prepared(tmp_path_factory, form)
  name, held = of.FORMS[form][0], tmp_path / "data"
  right = load(name, data_dir=whole)

  def prepared_files(damage, number):
    shutil.rmtree(held, ignore_errors=True)
    shutil.copytree(whole / name, held / name)
    (folder,) = (held / name).iterdir()
    changed(folder, [in_file], damage, number)
    try:
      data = load(name, data_dir=held)
    except UserError as error:
      return one_line(error)
    assert data.classes == right.classes
    for a, b in zip(data[2:6], right[2:6], strict=True):
      assert a.dtype == b.dtype
      np.testing.assert_array_equal(a, b)
    return "right"

  fuzz(prepared_files, damages, numbers, large=large, examples=(20, 60))


@BUDGETS
def test_arrays_of_ones_own(large, tmp_path):
  folder, rng = tmp_path / "own", np.random.default_rng(0)
  folder.mkdir()
  image = functools.partial(rng.integers, 0, 256, dtype=np.uint8)
  arrays = {"x_train": image((12, 8, 6, 3)), "x_test": image((5, 8, 6, 3))}
  arrays |= {"y_train": np.arange(12) % 3, "y_test": np.arange(5) % 3}

  def own_files(damage, number, packed):
    save = np.savez_compressed if packed else np.savez
    save(folder / "mine.npz", **arrays)
    changed(folder, [in_file, in_member, in_member], damage, number)
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

  drawn = damages, numbers, st.booleans()
  fuzz(own_files, *drawn, large=large, examples=(60, 300))
