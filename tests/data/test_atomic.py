"""Folders of arrays are written whole or not at all."""

import threading

import numpy as np
import pytest

from splitjax import UserError
from splitjax.data import Dataset, store
from splitjax.files import printable, reason

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


def test_texts_of_errors_are_one_line():
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(reason(ValueError("x" * 10**6))) == 300
  assert printable("a  b\n") == r"a  b\n"
