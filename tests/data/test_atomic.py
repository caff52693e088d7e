"""Folders of arrays are written whole or not at all; locks of files."""

import threading
import time

import numpy as np
import pytest

from splitjax.data import store
from splitjax.files import Locked, locked, one_line, printable, reason

ARRAYS = {"train_image": np.arange(6.0).reshape(3, 2), "train_label": np.eye(3)}


def test_a_folder_is_written_once(tmp_path):
  folder, made = tmp_path / "x" / "mine", []

  def make():
    made.append(1)
    return ARRAYS, {"classes": 3}

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
  arrays, facts = store.read(folder)
  assert facts == {"classes": 3} and arrays.keys() == ARRAYS.keys()
  for key, array in ARRAYS.items():
    assert isinstance(arrays[key], np.memmap)
    np.testing.assert_array_equal(arrays[key], array)


@pytest.mark.parametrize(
  "error", [OSError("No space left"), KeyboardInterrupt, ValueError("wrong")]
)
def test_a_failure_half_way_leaves_nothing(tmp_path, error, monkeypatch):
  def fail(*_, **__):
    raise error

  monkeypatch.setattr(np, "save", fail)
  with pytest.raises(type(error) if isinstance(error, Exception) else error):
    store.write(tmp_path / "mine", lambda: (ARRAYS, {}))
  assert not any(tmp_path.iterdir())


def test_a_lock_is_waited_for_or_not(tmp_path):
  path, order = tmp_path / "a" / ".lock", []
  path.parent.mkdir()
  path.touch()  # left by a killed process

  def second():
    with locked(path, wait=True):
      order.append("second")

  with locked(path, wait=False):
    with pytest.raises(Locked), locked(path, wait=False):
      pass
    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.2)
    order.append("first")
  thread.join(10)
  assert order == ["first", "second"]
  assert not path.exists()


def test_a_file_system_without_locks(tmp_path, monkeypatch):
  import fcntl

  def refuse(*_):
    raise OSError(37, "No locks available")

  monkeypatch.setattr(fcntl, "flock", refuse)
  with pytest.raises(OSError, match="no lock there") as error:
    with locked(tmp_path / ".lock", wait=False):
      pass
  assert error.value.filename == str(tmp_path / ".lock")


def test_many_leave_and_enter(tmp_path):
  inside, most = [], []

  def work():
    for _ in range(5):
      with locked(tmp_path / "x", wait=True):
        inside.append(1)
        most.append(len(inside))
        inside.pop()

  threads = [threading.Thread(target=work) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  assert len(most) == 20 and max(most) == 1


def test_texts_of_errors_are_one_line():
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(one_line("x" * 10**6)) < 400
  assert printable("a  b\n") == r"a  b\n"
