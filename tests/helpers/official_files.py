"""Small files in the form of the official Fashion-MNIST, and the real ones."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from splitjax.data.official import prepare
from splitjax.data.official.catalog import STORES, File

TRAIN, TEST = 40, 20
CHECKOUT = Path(__file__).resolve().parents[2]
REAL = Path(
  os.environ.get(
    "SPLITJAX_TEST_DATA", CHECKOUT.parent / "shared/data/fashion-mnist"
  )
)


def write_idx(path, array):
  head = bytes([0, 0, 8, array.ndim])
  sizes = np.array(array.shape, ">u4").tobytes()
  path.write_bytes(gzip.compress(head + sizes + array.tobytes()))


def official(folder):
  """Writes four small files in the official format; returns their pixels."""
  rng = np.random.default_rng(0)
  made = {}
  for split, prefix, n in (("train", "train", TRAIN), ("test", "t10k", TEST)):
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = np.arange(n, dtype=np.uint8) % 10
    write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", image)
    write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", label)
    made[split] = image[..., None], label
  return made


def md5(path):
  return hashlib.md5(path.read_bytes()).hexdigest()


def trust(monkeypatch, folder, name="fashion_mnist", place=None):
  """Makes the files of a folder the official ones, available at a place."""

  def trusted(file, official):
    path = folder / file
    urls = (f"{place}/{file}",) if place else official.urls
    if not path.is_file():
      return official
    return File(md5(path), path.stat().st_size, urls)

  store = STORES[name]
  forms = [
    form._replace(files={k: trusted(k, v) for k, v in form.files.items()})
    for form in store.forms
  ]
  monkeypatch.setitem(STORES, name, store._replace(forms=tuple(forms)))


def prepare_small(tmp_path_factory):
  """A small Fashion-MNIST, prepared: its folder, and what is in it."""
  files, data_dir = tmp_path_factory.mktemp("f"), tmp_path_factory.mktemp("d")
  made = official(files)
  with pytest.MonkeyPatch.context() as patch:
    trust(patch, files)
    prepare.prepare("fashion_mnist", data_dir, files)
  return data_dir, made


def bag(image, label):
  """The samples as a sorted list: TFDS keeps them in an order of its own."""
  pairs = zip(image, label, strict=True)
  return sorted((int(y), x.tobytes()) for x, y in pairs)


def assert_facts(data, facts):
  assert data.classes == facts.classes
  for split, samples in (("train", facts.train), ("test", facts.test)):
    image = getattr(data, f"{split}_image")
    label = getattr(data, f"{split}_label")
    assert image.shape == (samples, *facts.shape) and image.dtype == np.uint8
    assert label.shape == (samples,) and label.dtype == np.int32
    assert set(label.tolist()) == set(range(facts.classes))
