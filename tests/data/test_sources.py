"""Data sets: bundled and prepared, read whole or in part."""

import os
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import official as of
import pytest
from refusals import refused

import splitjax
from splitjax.data import (
  COPIES,
  FACTS,
  SOURCES,
  STORES,
  Dataset,
  find,
  load,
)


def assert_facts(data, facts):
  assert data.classes == facts.classes
  for split, samples in (("train", facts.train), ("test", facts.test)):
    image = getattr(data, f"{split}_image")
    label = getattr(data, f"{split}_label")
    assert image.shape == (samples, *facts.shape) and image.dtype == np.uint8
    assert label.shape == (samples,) and label.dtype == np.int32
    assert set(label.tolist()) == set(range(facts.classes))


def test_every_source_has_facts():
  assert set(SOURCES) == set(FACTS)
  prepared = {facts.store for facts in FACTS.values()} - {None}
  assert prepared == set(STORES) < set(SOURCES)


def test_mnist_is_prepared_as_its_stock_builder(tmp_path, monkeypatch):
  import tensorflow_datasets as tfds

  made = of.idx(tmp_path)
  of.trust(monkeypatch, tmp_path, "mnist")
  folder = splitjax.data.prepare("mnist", tmp_path / "data", tmp_path)
  data = load("mnist", data_dir=tmp_path / "data")
  assert of.bag(data.test_image, data.test_label) == of.bag(*made["test"])
  ours = tfds.builder_from_directory(folder).info
  stock = tfds.builder("mnist", data_dir=tmp_path / "none").info
  assert ours.features.to_json() == stock.features.to_json()
  assert ours.version == stock.version


def test_digits():
  from sklearn.datasets import load_digits

  data = load("digits")
  assert_facts(data, FACTS["digits"])
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
  assert set(of.bag(part.train_image, part.train_label)) <= set(
    of.bag(larger.train_image, larger.train_label)
  )


def test_part_refuses():
  with refused("data.train_samples"):
    load("digits", train_samples=9)
  with refused("data.test_samples"):
    load("digits", test_samples=361)


def test_second_load_reads_the_plain_arrays(small, monkeypatch):
  data_dir, _ = small
  first = load("fashion_mnist", data_dir=data_dir)
  # Calling it would fail.
  monkeypatch.setattr("tensorflow_datasets.data_source", None)
  second = load("fashion_mnist", data_dir=data_dir)
  facts = FACTS["fashion_mnist"]
  assert_facts(second, facts._replace(train=of.TRAIN, test=of.TEST))
  np.testing.assert_array_equal(first.train_image, second.train_image)
  assert isinstance(second.train_image, np.memmap)


def test_changed_data_are_read_anew(small):
  data_dir, _ = small
  load("fashion_mnist", data_dir=data_dir)
  kept = data_dir / COPIES / "fashion_mnist"
  (before,) = kept.iterdir()
  folder = find("fashion_mnist", data_dir)
  os.utime(folder / "features.json", (1, 1))
  load("fashion_mnist", data_dir=data_dir)
  (after,) = kept.iterdir()  # the stale copy is gone
  assert after != before


@pytest.mark.parametrize("taken", [COPIES, f"{COPIES}/fashion_mnist"])
def test_where_no_copy_can_be_written(small, taken, tmp_path):
  """A file in place of a folder: no lock, or no copy, can be written there."""
  data_dir, made = small
  shutil.copytree(data_dir / "fashion_mnist", tmp_path / "fashion_mnist")
  (tmp_path / taken).parent.mkdir(exist_ok=True)
  (tmp_path / taken).touch()
  data = load("fashion_mnist", data_dir=tmp_path)
  assert of.bag(data.test_image, data.test_label) == of.bag(*made["test"])
  assert not isinstance(data.test_image, np.memmap)


def test_several_read_first_at_once(small, monkeypatch):
  import tensorflow_datasets as tfds

  data_dir, made = small
  shutil.rmtree(data_dir / COPIES, ignore_errors=True)
  decoded, read = [], tfds.data_source

  def counted(*args, split, **more):
    decoded.append(split)
    return read(*args, split=split, **more)

  monkeypatch.setattr(tfds, "data_source", counted)
  with ThreadPoolExecutor(4) as pool:
    loads = [
      pool.submit(load, "fashion_mnist", data_dir=data_dir) for _ in range(4)
    ]
  for data in (each.result() for each in loads):
    assert of.bag(data.train_image, data.train_label) == of.bag(*made["train"])
  assert decoded == ["train", "test"]


def test_data_dir_defaults_to_the_environment(small, tmp_path, monkeypatch):
  data_dir, _ = small
  monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
  assert len(load("fashion_mnist").train_label) == of.TRAIN
  monkeypatch.delenv("TFDS_DATA_DIR")
  (tmp_path / "tensorflow_datasets").symlink_to(data_dir)
  monkeypatch.setenv("HOME", str(tmp_path))
  assert len(load("fashion_mnist").train_label) == of.TRAIN


def test_what_is_not_prepared_names_commands_to_copy(tmp_path, monkeypatch):
  place = tmp_path / "a b"
  for given in ({}, {"data_dir": place}):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with refused("data.name") as error:
      load("fashion_mnist", **given)
    first, second = (shlex.split(x) for x in str(error.value).split("`")[1::2])
    words = "python -m splitjax.data prepare fashion_mnist".split()
    more = ["--data_dir", str(place)] if given else []
    assert first == [*words, *more]
    assert second == [*words, "--from", "DIR", *more]


def test_prepared_as_tfrecord(tmp_path):
  folder = tmp_path / "fashion_mnist" / "3.0.1"
  folder.mkdir(parents=True)
  (folder / "dataset_info.json").write_text("{}")
  (folder / "fashion_mnist-train.tfrecord-00000-of-00001").touch()
  with refused("data_dir"):
    load("fashion_mnist", data_dir=tmp_path)


TABLE = Dataset(
  "mine",
  3,
  np.arange(12.0, dtype=np.float32).reshape(6, 2),
  np.arange(6, dtype=np.int64) % 3,
  np.arange(6.0, dtype=np.float32).reshape(3, 2),
  np.arange(3, dtype=np.int32),
  train_client=np.arange(6) % 2,
  client_names=("a", "b"),
)


def test_a_source_of_one_s_own(monkeypatch):
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: TABLE)
  data = load("mine")
  assert data.train_label.dtype == np.int32 and data.kind == "table"
  assert data.train_client is TABLE.train_client and data.names(
    data.train_client[:2]
  ) == ["a", "b"]


def test_part_keeps_a_rare_class(monkeypatch):
  # 1 of class 0 and 99 of class 1: in proportion, class 0 would get none.
  rare = TABLE._replace(
    train_image=np.arange(200, dtype=np.float32).reshape(100, 2),
    train_label=np.array([0] + [1] * 99),
    train_client=None,
    client_names=(),
  )
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: rare)
  kept = load("mine", train_samples=3).train_label
  assert len(kept) == 3 and 0 in kept


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("train_label", TABLE.train_label + 1),
    ("test_label", TABLE.test_label - 1),
    ("train_label", TABLE.train_label.tolist()),
    ("test_image", TABLE.test_image[:, :1]),
    ("train_client", np.arange(6)),
    ("test_client", np.arange(3.0)),
    ("standardise", "chanel"),
  ],
)
def test_a_source_of_one_s_own_is_checked(field, value, monkeypatch):
  wrong = TABLE._replace(**{field: value})
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: wrong)
  with refused("data.name"):
    load("mine")


def numbers(dtype, low, high):
  """Two features, one of them from `low` to `high`."""
  column = np.linspace(low, high, 6)
  return np.stack([np.arange(6), column], axis=1).astype(dtype)


@pytest.mark.parametrize(
  "image",
  [
    numbers(float, 1.7e9, 1.7e9 + 50),
    numbers(float, 0, 1e39),
  ],
)
def test_numbers_that_float32_does_not_tell_apart(image, monkeypatch):
  wrong = TABLE._replace(train_image=image, test_image=image[:3])
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: wrong)
  with refused("data.name"):
    load("mine")


@pytest.mark.parametrize("dtype", [">i2", ">f8"])
def test_another_byte_order_is_read(dtype, monkeypatch):
  image = numbers(dtype, 20_000, 20_100)
  given = TABLE._replace(train_image=image, test_image=image[:3])
  monkeypatch.setitem(SOURCES, "mine", lambda data_dir: given)
  found = load("mine").train_image
  assert found.dtype.isnative
  np.testing.assert_array_equal(found, image.astype(float))
