"""Processes that are killed, interrupted or run at the same time."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import official as of
import pytest
from data_command import main
from PIL import Image
from refusals import refused

from splitjax import files
from splitjax.data import find, load, prepare, read_arrays, store
from splitjax.files import Locked, locked

ROOT = Path(__file__).resolve().parents[2]
STUCK = """
import os, runpy, time
from PIL import Image
save, done = Image.Image.save, []
def stuck(image, file, form):
  done.append(image)
  if len(done) == 50:  # of 60: train is written, test is not
    os.write(1, b"half-way")
    time.sleep(60)
  save(image, file, form)
Image.Image.save = stuck
runpy.run_module("splitjax.data", run_name="__main__")
"""


@pytest.fixture(name="folders")
def official_files(tmp_path):
  """A folder with official files, and one for data."""
  official = tmp_path / "files"
  official.mkdir()
  of.idx(official)
  return official, tmp_path / "data"


def words(official, data_dir):
  """The command that prepares the files of `folders`."""
  return [
    *("prepare", "fashion_mnist", "--from", str(official)),
    *("--allow-modified", "--data_dir", str(data_dir)),
  ]


def prepared(official, target):
  return prepare("fashion_mnist", target, official, allow_modified=True)


@pytest.fixture(name="half_way")
def prepare_half(folders):
  """A process in the middle of preparing, its files, data_dir and words."""
  with subprocess.Popen(
    [sys.executable, "-c", STUCK, *words(*folders)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=ROOT,
    env=os.environ | {"JAX_PLATFORMS": "cpu"},
  ) as process:
    try:
      assert process.stdout.read(8) == b"half-way", process.stderr.read()
      yield process, folders[1], words(*folders)
    finally:
      process.kill()


def test_killed_in_the_middle(half_way, capsys):
  process, data_dir, words = half_way
  half = data_dir / "fashion_mnist" / ".half"
  held = sorted(half.rglob("*"))
  assert any("train" in path.name for path in held)
  # While it runs, nobody else may, nor touch what it has written.
  assert main(words) == 2
  (err,) = capsys.readouterr().err.splitlines()
  assert f"another process is preparing it (process {process.pid} on" in err
  assert sorted(half.rglob("*")) == held
  process.send_signal(signal.SIGKILL)
  process.wait()
  assert half.exists()
  assert find("fashion_mnist", data_dir) is None
  assert main(["list", "--data_dir", str(data_dir)]) == 0
  out = capsys.readouterr().out
  assert "prepared in" not in out.replace("not prepared", "")
  with refused("data.name"):
    load("fashion_mnist", data_dir=data_dir)
  # The same command again: as if nothing had been.
  assert main(words) == 0
  assert [p.name for p in (data_dir / "fashion_mnist").iterdir()] == ["3.0.1"]
  assert len(load("fashion_mnist", data_dir=data_dir).train_label) == of.TRAIN


def test_ended_by_a_signal(half_way):
  process, data_dir, _ = half_way
  process.send_signal(signal.SIGTERM)
  _, err = process.communicate(timeout=30)
  assert process.returncode == 143
  (line,) = err.decode().splitlines()
  assert line.startswith("terminated: no incomplete files are left")
  assert not data_dir.exists()


def test_what_a_killed_process_had_done_is_not_taken(folders):
  official, target = folders
  path = prepared(official, target)
  # Killed just before the end: the whole data set under another name.
  half = path.parent / ".half/fashion_mnist"
  half.mkdir(parents=True)
  path.rename(half / "3.0.1")
  labels = np.arange(of.TEST, dtype=np.uint8)[::-1] % 10
  of.write_idx(official / "t10k-labels-idx1-ubyte.gz", labels)
  prepared(official, target)
  data = load("fashion_mnist", data_dir=target)
  image = of.idx(official)["test"][0]
  assert of.bag(data.test_image, data.test_label) == of.bag(image, labels)


@pytest.mark.parametrize(
  ("error", "code", "said"),
  [
    (OSError("No space left"), 2, "No space left"),
    (KeyboardInterrupt, 130, "interrupted: no incomplete files are left"),
  ],
)
def test_a_failure_half_way_leaves_nothing(
  folders, error, code, said, monkeypatch, capsys
):
  save, done = Image.Image.save, []

  def full_disk(image, file, form):
    done.append(image)
    if len(done) == 50:
      raise error
    save(image, file, form)

  monkeypatch.setattr(Image.Image, "save", full_disk)
  assert main(words(*folders)) == code
  assert said in capsys.readouterr().err
  assert not folders[1].exists()


def test_another_process_was_quicker(folders, tmp_path, monkeypatch):
  made = prepared(folders[0], tmp_path / "other")
  (made / "theirs").touch()

  @contextlib.contextmanager
  def late(path, *, wait):  # not there when asked first, but when held
    shutil.copytree(made.parent, folders[1] / "fashion_mnist")
    with locked(path, wait=wait):
      yield

  monkeypatch.setattr(files, "locked", late)
  assert (prepared(*folders) / "theirs").is_file()


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


def test_arrays_that_a_killed_reader_left_are_replaced(tmp_path):
  half = tmp_path / "kept" / "partial"
  half.mkdir(parents=True)
  (half / "train_image.npy").write_bytes(b"half of it")
  store({"x": np.arange(5)}, tmp_path / "kept" / "whole")
  assert [path.name for path in half.parent.iterdir()] == ["whole"]
  (held,) = read_arrays(tmp_path / "kept" / "whole", ["x"]).values()
  assert held.tolist() == [0, 1, 2, 3, 4] and isinstance(held, np.memmap)


def test_arrays_that_fail_half_way_leave_nothing(tmp_path, monkeypatch):
  def interrupted(file, arr):
    file.write(arr[:2].tobytes())
    raise KeyboardInterrupt

  monkeypatch.setattr(np, "save", interrupted)
  with pytest.raises(KeyboardInterrupt):
    store({"x": np.arange(5)}, tmp_path / "kept" / "whole")
  assert not any((tmp_path / "kept").iterdir())


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
