"""Official files: every reader, downloads, checksums and the command."""

import functools
import hashlib
import http.server
import os
import threading
from pathlib import Path

import launched
import numpy as np
import official as of
import pytest
from refusals import refused

from splitjax.data import OFFICIAL, load, prepare

# A package hands no __main__ on, and a command's process takes seconds.
from splitjax.data.__main__ import main


@pytest.fixture(name="made", scope="module")
def prepare_all(tmp_path_factory):
  """One DATA_DIR, and name -> what was written."""
  data_dir = tmp_path_factory.mktemp("data")
  return data_dir, {name: of.prepared(name, data_dir) for name in of.WRITE}


@pytest.mark.parametrize(
  ("name", "classes", "names"),
  [
    ("mnist", 10, []),
    ("fashion_mnist", 10, ["T-shirt/top", "Trouser"]),
    ("cifar10", 10, of.NAMES10),
    ("cifar100", 100, ["fine_0", "fine_1"]),
    ("cifar100_coarse", 20, ["coarse_0", "coarse_1"]),
    ("svhn_cropped", 10, []),
    ("cinic10", 10, of.NAMES10),
    ("tiny_imagenet", 200, []),
  ],
)
def test_what_is_in_the_files_is_loaded_in_their_order(
  made, name, classes, names
):
  data_dir, written = made
  data = load(name, data_dir=data_dir)
  assert isinstance(data.train_image, np.memmap)
  assert data.note.startswith(f"{name} was prepared from files that are not")
  assert data.classes == classes
  assert list(data.class_names[: len(names)]) == names
  for split, fields in written[name].items():
    for field, array in fields.items():
      found = getattr(data, f"{split}_{field}")
      np.testing.assert_array_equal(found, array)
      assert found.dtype == (array.dtype if field == "image" else np.int32)


class Silent(http.server.SimpleHTTPRequestHandler):
  def log_message(self, *_):
    pass


def test_files_are_downloaded_once_and_verified(tmp_path, monkeypatch, capsys):
  folder, data_dir = tmp_path / "served", tmp_path / "data"
  folder.mkdir()
  of.idx(folder)
  monkeypatch.setenv("no_proxy", "127.0.0.1")
  known = OFFICIAL["fashion_mnist"]
  sums = {
    name: f"md5:{hashlib.md5((folder / name).read_bytes()).hexdigest()}"
    for name in known.files
  }
  words = ["prepare", "fashion_mnist", "--data_dir", str(data_dir)]
  last = folder / "t10k-labels-idx1-ubyte.gz"
  right = last.read_bytes()
  last.write_bytes(b"other")
  handler = functools.partial(Silent, directory=folder)
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    address = f"http://127.0.0.1:{server.server_port}"
    there = known._replace(files=sums, address=address)
    monkeypatch.setitem(OFFICIAL, "fashion_mnist", there)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    assert main(words) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"{last.name} could" in line and str(data_dir) in line
    assert not (data_dir / "fashion_mnist").exists()
    last.unlink()
    with refused("http://127.0.0.1"):
      prepare("fashion_mnist", data_dir)
    last.write_bytes(right)
    assert main(words) == 0
    server.shutdown()
  assert main(words) == 0  # without a download
  data = load("fashion_mnist", data_dir=data_dir)
  assert len(data.train_label) == of.TRAIN and data.note == ""


def test_files_that_lie_there_need_no_network(tmp_path, capsys):
  folder = tmp_path / "downloads" / "fashion_mnist"
  folder.mkdir(parents=True)
  of.idx(folder)
  words = ["prepare", "fashion_mnist", "--data_dir", str(tmp_path)]
  assert main(words) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert "md5:8d4f" in line and "--allow-modified" in line
  assert main([*words, "--allow-modified"]) == 0
  note = load("fashion_mnist", data_dir=tmp_path).note
  assert f"({note})" in capsys.readouterr().out
  assert all(file in note for file in OFFICIAL["fashion_mnist"].files)


def test_files_that_are_something_else_leave_nothing(tmp_path):
  for name in ("cifar10", "svhn_cropped"):
    folder = tmp_path / "downloads" / name
    folder.mkdir(parents=True)
    for file in OFFICIAL[name].files:
      (folder / file).write_bytes(b"<html>not found</html>")
    with refused(f"{name}: the files in {folder} are damaged"):
      prepare(name, tmp_path, allow_modified=True)
  assert [path.name for path in tmp_path.iterdir()] == ["downloads"]


def test_a_run_reads_the_folder_that_was_prepared(tmp_path, monkeypatch):
  with refused("data.name = 'cifar10': not prepared in") as error:
    load("cifar10", data_dir=tmp_path)
  assert f"prepare cifar10 --data_dir={tmp_path}`" in str(error.value)
  of.prepared("cifar10", tmp_path)
  monkeypatch.setenv("SPLITJAX_DATA", str(tmp_path))
  assert len(load("cifar10").train_label) == 100


@pytest.mark.parametrize(
  "words", ["--data_dir=/d", "--data_dir /d", "--config.data.dir=/d"]
)
def test_a_run_takes_the_same_folder(words):
  describe = "describe", "--config=quickstart"
  (cell,) = launched.parsed(*describe, *words.split()).plan.cells
  assert cell.config.data.dir == "/d"


CHECKOUT = Path(__file__).resolve().parents[2]
REAL = Path(
  os.environ.get(
    "SPLITJAX_TEST_DATA", CHECKOUT.parent / "shared/data/fashion-mnist"
  )
)


@pytest.mark.skipif(
  not (REAL / "train-images-idx3-ubyte.gz").is_file(),
  reason=f"no official Fashion-MNIST files in {REAL} (SPLITJAX_TEST_DATA)",
)
def test_real_files_are_the_official_ones(tmp_path):
  (tmp_path / "downloads").mkdir()
  (tmp_path / "downloads" / "fashion_mnist").symlink_to(REAL)
  prepare("fashion_mnist", tmp_path)
  data = load("fashion_mnist", data_dir=tmp_path)
  assert data.note == "" and data.train_image.shape == (60_000, 28, 28, 1)
  assert np.bincount(data.train_label).tolist() == [6000] * 10
  assert data.train_label[:5].tolist() == [9, 0, 0, 3, 0]
  assert np.bincount(data.test_label).tolist() == [1000] * 10
