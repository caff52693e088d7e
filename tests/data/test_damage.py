"""Damaged and misleading data files: one line, or the right data."""

import functools
import pickle
import shutil
import warnings

import numpy as np
import official as of
import packed
import pytest
from fuzz import BUDGETS, damages, fuzz, one_line
from hypothesis import strategies as st
from refusals import refused

from splitjax.data import COPIES, find, load
from splitjax.files import one_line as shortened
from splitjax.files import printable, reason
from splitjax.types import UserError


class Evil:
  def __reduce__(self):
    return exec, ("import pathlib; pathlib.Path('evil').touch()",)


def test_a_modified_archive_runs_nothing(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  official = tmp_path / "files"
  official.mkdir()
  of.cifar_python(10, official)
  path = official / "cifar-10-python.tar.gz"
  members = packed.read_tar(path)
  members["cifar-10-batches-py/test_batch"] = pickle.dumps(Evil(), protocol=2)
  packed.write_tar(path, members)
  err = of.refused(tmp_path, capsys, "cifar10", official)
  assert "damaged" in err and "it asks for __builtin__.exec" in err
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
  err = of.refused(tmp_path, capsys, "cifar10", official)
  assert err.startswith(f"error: {path} is damaged")
  assert not (tmp_path / "evil").exists()


def test_names_in_archives_are_written_in_one_line(tmp_path):
  np.savez(tmp_path / "mine.npz", **{"x\n\x1b[2J": np.zeros(1)})
  with refused("data.name"):
    load(f"npz:{tmp_path / 'mine.npz'}")
  with refused("data.name"):
    load("npz:a\nb")
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(shortened("x" * 10**6)) < 400
  assert printable("a  b\n") == r"a  b\n"


@pytest.fixture(name="copied")
def copy_small(small, tmp_path):
  """A prepared data set of one's own, its version's folder and its pixels."""
  data_dir, made = small
  shutil.copytree(data_dir / "fashion_mnist", tmp_path / "fashion_mnist")
  return tmp_path, find("fashion_mnist", tmp_path), made


def test_prepared_data_described_wrongly(copied):
  data_dir, folder, _ = copied
  for file, old, new in (
    ("dataset_info.json", '"40"', '"30"'),
    ("features.json", '"28"', '"14"'),
    ("features.json", '"label"', '"level"'),
  ):
    path, right = folder / file, (folder / file).read_text()
    assert old in right
    path.write_text(right.replace(old, new, 1))
    with refused(str(folder)):
      load("fashion_mnist", data_dir=data_dir)
    path.write_text(right)


def test_a_damaged_copy_is_made_anew(copied):
  data_dir, _, made = copied
  for change in (
    lambda raw: raw[:-1],
    lambda raw: raw[:64],  # a header has 128 bytes
    lambda raw: raw + b"0",
    lambda raw: raw.replace(b"'shape': (", b"'sh99999999"),  # TokenError
    lambda raw: b"",
  ):
    load("fashion_mnist", data_dir=data_dir)
    (kept,) = (data_dir / COPIES / "fashion_mnist").iterdir()
    path = kept / "train_image.npy"
    raw = path.read_bytes()
    path.unlink()  # it may be mapped
    path.write_bytes(change(raw))
    data = load("fashion_mnist", data_dir=data_dir)
    assert of.bag(data.train_image, data.train_label) == of.bag(*made["train"])
    assert isinstance(data.train_image, np.memmap)


NUMBERS = st.integers(0, 10**6)


@pytest.fixture
def warned_as_users_are():
  """What warns elsewhere is an error in tests, which a reader may catch."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


@BUDGETS
def test_drawn_damage_of_prepared_data(
  large, small, tmp_path, warned_as_users_are
):
  """One line, or every sample as it was."""
  name, held = "fashion_mnist", tmp_path / "data"
  right = load(name, data_dir=small[0])

  def damaged(damage, number):
    shutil.rmtree(held, ignore_errors=True)
    shutil.copytree(small[0] / name, held / name)
    paths = sorted(find(name, held).iterdir())
    path = paths[number % len(paths)]
    path.write_bytes(damage(path.read_bytes()))
    try:
      data = load(name, data_dir=held)
    except UserError as error:
      return one_line(error)
    assert data.classes == right.classes
    for a, b in zip(data[2:6], right[2:6], strict=True):
      assert a.dtype == b.dtype
      np.testing.assert_array_equal(a, b)
    return "right"

  fuzz(damaged, damages, NUMBERS, large=large, examples=(20, 60))


@BUDGETS
def test_drawn_damage_of_arrays_of_ones_own(
  large, tmp_path, warned_as_users_are
):
  """One line, or arrays that a run can use: of the file, or of one array."""
  rng, path = np.random.default_rng(0), tmp_path / "mine.npz"
  image = functools.partial(rng.integers, 0, 256, dtype=np.uint8)
  arrays = {"x_train": image((12, 8, 6, 3)), "x_test": image((5, 8, 6, 3))}
  arrays |= {"y_train": np.arange(12) % 3, "y_test": np.arange(5) % 3}

  def damaged(damage, number, dense):
    (np.savez_compressed if dense else np.savez)(path, **arrays)
    if number % 3:
      members = packed.read_zip(path)
      name = sorted(members)[number // 3 % len(members)]
      packed.write_zip(path, members | {name: damage(members[name])})
    else:
      raw = path.read_bytes()
      path.unlink()  # it may be mapped
      path.write_bytes(damage(raw))
    try:
      data = load(f"npz:{path}")
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

  drawn = damages, NUMBERS, st.booleans()
  fuzz(damaged, *drawn, large=large, examples=(60, 300))
