"""Data sets: bundled, TensorFlow Datasets' and one's own, whole or in part."""

import io
import threading

import numpy as np
import pytest
from PIL import Image
from refusals import refused
from sklearn.datasets import load_digits

from splitjax import UserError, files
from splitjax.data import SOURCES, Dataset, load, mean_and_std, reader, store
from splitjax.files import printable, reason


def bag(data):
  """The training samples as a set."""
  pairs = zip(data.train_image, data.train_label, strict=True)
  return {(int(y), x.tobytes()) for x, y in pairs}


def test_names_of_data_sets():
  for name in ("npz:anywhere.npz", "tfds:mnist", "digits"):
    assert callable(reader(name))
  for name in ("npz:", "tfds:", "cifr10"):
    with refused("data.name"):
      reader(name)


def test_digits():
  data = load("digits")
  for split, samples in (("train", 1437), ("test", 360)):
    image = getattr(data, f"{split}_image")
    label = getattr(data, f"{split}_label")
    assert image.shape == (samples, 28, 28, 1) and image.dtype == np.uint8
    assert label.dtype == np.int32 and set(label.tolist()) == set(range(10))
  assert data.train_image.min() == 0 and data.train_image.max() == 255
  # Stratified: a class's share of the test split is its share of the whole.
  train, test = np.bincount(data.train_label), np.bincount(data.test_label)
  np.testing.assert_allclose(test, (train + test) * 0.2, atol=1)
  # Shrinking undoes the resize up to the blur: the grey levels still agree.
  image = np.concatenate([data.train_image, data.test_image])[..., 0]
  means = image.mean(axis=(1, 2)) * 16 / 255
  expected = load_digits().data.mean(axis=1)
  np.testing.assert_allclose(np.sort(means), np.sort(expected), atol=0.3)


def test_part_is_stratified_fixed_and_nested():
  part = load("digits", train_samples=200, test_samples=10)
  assert part.train_image.shape == (200, 28, 28, 1)
  counts = np.bincount(part.train_label)
  assert counts.min() >= 19 and counts.max() <= 21
  assert np.bincount(part.test_label).tolist() == [1] * 10
  again = load("digits", train_samples=200)
  np.testing.assert_array_equal(part.train_image, again.train_image)
  assert len(again.test_label) == 360
  larger = load("digits", train_samples=300)
  assert bag(part) <= bag(larger)


def test_part_keeps_a_rare_class_or_refuses(monkeypatch):
  # 1 of class 0 and 99 of class 1: in proportion, class 0 would get none.
  x, y = np.arange(200.0).reshape(100, 2), np.array([0] + [1] * 99)
  rare = Dataset("mine", 2, x, y, x[:0], y[:0])
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: rare)
  assert 0 in load("mine", train_samples=3).train_label
  for split, samples in (("train", 9), ("test", 361)):
    with refused(f"data.{split}_samples"):
      load("digits", **{f"{split}_samples": samples})


def test_what_tensorflow_datasets_prepared(tmp_path):
  """A small data set that the library writes."""
  import tensorflow_datasets as tfds

  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (30, 5, 4, 3), np.uint8)

  class Small(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
      features = {
        "picture": tfds.features.Image(shape=(5, 4, 3), encoding_format="png"),
        "kind": tfds.features.ClassLabel(names=["ant", "bee", "cow"]),
      }
      return self.dataset_info_from_configs(
        features=tfds.features.FeaturesDict(features),
        supervised_keys=("picture", "kind"),
      )

    def _split_generators(self, manager):
      del manager
      ends = {"train": range(20), "test": range(20, 30)}
      return {
        name: self._generate_examples(rows) for name, rows in ends.items()
      }

    def _generate_examples(self, rows):
      for i in rows:
        file = io.BytesIO()  # the library's own encoder needs TensorFlow
        Image.fromarray(image[i]).save(file, "png")
        yield i, {"picture": file.getvalue(), "kind": i % 3}

  Small.name = "small"
  builder = Small(data_dir=tmp_path, file_format="array_record")
  builder.download_and_prepare()
  data = load("tfds:small", data_dir=tmp_path)
  assert data.name == "tfds:small" and data.class_names == ("ant", "bee", "cow")
  assert data.train_image.shape == (20, 5, 4, 3) and data.classes == 3
  written = data._replace(train_image=image[:20], train_label=np.arange(20) % 3)
  assert bag(data) == bag(written)
  assert sorted(data.test_label.tolist()) == sorted(np.arange(20, 30) % 3)
  with refused("data.name = 'tfds:absent'"):
    load("tfds:absent", data_dir=tmp_path)


def test_a_source_of_one_s_own_is_checked(monkeypatch):
  x, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 3
  right = Dataset("mine", 3, x, y, x[:3], y[:3], train_client=y % 2)
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: right)
  data = load("mine")
  assert data.train_label.dtype == np.int32 and data.kind == "table"
  assert data.train_client.tolist() == right.train_client.tolist()
  for wrong in (
    {"train_client": np.arange(6), "client_names": ("a", "b")},
    {"vocabulary": 3.5},
    {"class_names": ("a", "b")},
    {"test_image": np.array([[None, 1.0]] * 3)},
  ):
    table = right._replace(**wrong)
    monkeypatch.setitem(SOURCES, "mine", lambda _, table=table: table)
    with refused("data.name"):
      load("mine")


def test_scale_is_mean_and_deviation():
  offset = np.arange(120.0).reshape(20, 2, 3) ** 2 + 1e6
  noise = np.random.default_rng(0).integers(0, 256, (2500, 2000), np.uint8)
  for image in (
    np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2),
    offset,
    offset.astype(np.int32),
    noise,  # more than a block
  ):
    mean, std = mean_and_std(image)
    axes = tuple(range(image.ndim - 1))
    np.testing.assert_allclose(mean, image.mean(axes), rtol=1e-12)
    np.testing.assert_allclose(std, image.std(axes), rtol=1e-9)
    rows = np.array([0, 2])
    assert mean_and_std(image, rows) == mean_and_std(image[rows])
  constant = np.stack([np.full(9, 0.1), np.arange(9.0)], 1)
  assert mean_and_std(constant)[1][0] == 1.0
  assert mean_and_std(constant, vocabulary=3) == ((), ())


# Folders of arrays are written whole or not at all.


X, Y = np.arange(6.0).reshape(3, 2), np.arange(3)
DATA = Dataset("", 3, X, Y, X[:1], Y[:1], note="a note")


def test_a_folder_is_written_once(tmp_path):
  folder, made = tmp_path / "x" / "mine", []

  def make():
    made.append(1)
    return DATA

  # What a killed process left does not count.
  partial = folder.with_name(".mine.partial")
  partial.mkdir(parents=True)
  (partial / "test_image.npy").write_bytes(b"half of it")
  threads = [
    threading.Thread(target=store.write, args=(folder, make)) for _ in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  assert len(made) == 1
  assert [path.name for path in folder.parent.iterdir()] == ["mine"]
  read = store.read("", folder)
  for key in store.ARRAYS:
    np.testing.assert_array_equal(getattr(read, key), getattr(DATA, key))
  assert isinstance(read.train_image, np.memmap)
  assert (read.classes, read.note) == (3, "a note")


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_nothing(tmp_path, error, monkeypatch):
  def fail(*_, **__):
    raise error

  monkeypatch.setattr(np, "save", fail)
  with pytest.raises((UserError, KeyboardInterrupt)):
    store.write(tmp_path / "mine", lambda: DATA)
  assert not any(tmp_path.iterdir())


def test_a_file_stays_where_writing_it_anew_fails(tmp_path):
  path = tmp_path / "kept.json"
  files.write(path, "before")

  def fail(file):
    file.write(b"half")
    file.flush()
    raise OSError("full")

  with refused(str(path)):
    files.write(path, fail)
  assert path.read_text() == "before"


def test_texts_of_errors_are_one_line():
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(reason(ValueError("x" * 10**6))) == 300
  assert printable("a  b\n") == r"a  b\n"
