"""Damaged and misleading files: one line that names them, and nothing left.

test_damaged_pictures.py has Tiny-ImageNet and CINIC-10.
"""

import gzip
import pickle
import re

import numpy as np
import official_archives as oa
import official_files as of
import pytest
from forms import FORMS, but_the_end, first_byte, gone, half, in_tar, refused
from scipy.io import savemat


def in_batch(**changed):
  """Changes entries of a pickled batch."""

  def change(raw):
    held = {key.decode(): v for key, v in oa.unpickle(raw).items()}
    return oa.python2({**held, **changed})

  return change


def padded_but_the_end(path):
  """Cuts what a reader who stops after the last member never sees."""
  whole = gzip.decompress(path.read_bytes()) + bytes(1 << 22)
  path.write_bytes(gzip.compress(whole)[:-4])


class Evil:
  def __reduce__(self):
    return exec, ("import pathlib; pathlib.Path('evil').touch()",)


PY10, BIN10 = "cifar-10-batches-py/", "cifar-10-batches-bin/"
PYTHON10, BINARY10 = "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"
BINARY100 = "cifar-100-binary.tar.gz"
DAMAGES = [
  ("cifar10_python", PYTHON10, half, "damaged"),
  ("cifar10_python", PYTHON10, but_the_end, "damaged"),
  ("cifar10_python", PYTHON10, padded_but_the_end, "damaged"),
  ("cifar10_python", PYTHON10, lambda p: p.write_text("<html>"), "damaged"),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}data_batch_3", gone),
    "damaged .*data_batch_3",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}test_batch", in_batch(data=np.zeros((20, 3000), np.uint8))),
    r"has images uint8 \[20, 3000\]",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}test_batch", in_batch(data=np.zeros((20, 3072)))),
    r"has images float64 \[20, 3072\]",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}data_batch_5", in_batch(labels=[1, 2])),
    "has 44 labels for 52 images",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}data_batch_5", in_batch(labels=[-1] * 10)),
    "has labels -1 to 9, expected 0 to 9",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}batches.meta", lambda _: oa.python2({"label_names": ["a"]})),
    "batches.meta does not name 10 classes",
  ),
  (
    "cifar10_python",
    PYTHON10,
    in_tar(f"{PY10}data_batch_2", lambda _: pickle.dumps(Evil(), protocol=2)),
    "damaged .*it asks for __builtin__.exec",
  ),
  (
    "cifar10_binary",
    BINARY10,
    in_tar(f"{BIN10}data_batch_1.bin", lambda raw: raw[:-1]),
    "damaged .*36875",
  ),
  (
    "cifar10_binary",
    BINARY10,
    in_tar(f"{BIN10}test_batch.bin", lambda raw: b""),
    "has 0 labels for 0 images",
  ),
  (
    "cifar10_binary",
    BINARY10,
    in_tar(f"{BIN10}test_batch.bin", first_byte(10)),
    "has labels 0 to 10, expected 0 to 9",
  ),
  (
    "cifar100_binary",
    BINARY100,
    in_tar("cifar-100-binary/train.bin", first_byte(20)),
    "has labels 0 to 20, expected 0 to 19",
  ),
  (
    "cifar100_binary",
    BINARY100,
    in_tar("cifar-100-binary/coarse_label_names.txt", gone),
    "damaged .*coarse_label_names.txt",
  ),
  ("svhn", "train_32x32.mat", half, "train_32x32.mat is damaged"),
]


@pytest.mark.parametrize(("form", "file", "damage", "message"), DAMAGES)
def test_damage(form, file, damage, message, tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  name, write = FORMS[form]
  files = tmp_path / "files"
  files.mkdir()
  write(files)
  damage(files / file)
  err = refused(tmp_path, capsys, name, files)
  assert err.startswith(f"error: {files / file}")
  assert re.search(message, err), err
  assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
  ("image", "digit", "message"),
  [
    (
      np.zeros((32, 32, 3, 4), "f4"),
      [[1]] * 4,
      r"images float32 \[4, 32, 32, 3\]",
    ),
    (np.zeros((32, 32, 3), "u1"), [[1]] * 4, r"has images uint8 \[3, 32, 32\]"),
    (np.zeros((32, 32, 3, 4), "u1"), [[1]] * 3, "has 3 labels for 4 images"),
    (
      np.zeros((32, 32, 3, 4), "u1"),
      [[0]] * 4,
      "has labels 0 to 0, expected 1 to",
    ),
    (
      np.zeros((32, 32, 3, 4), "u1"),
      [[11]] * 4,
      "has labels 11 to 11, expected 1",
    ),
    (np.zeros((32, 32, 3, 4), "u1"), [[1.0]] * 4, "TypeError: Cannot cast"),
  ],
)
def test_svhn_of_other_arrays(image, digit, message, tmp_path, capsys):
  files = tmp_path / "files"
  files.mkdir()
  oa.svhn(files)
  savemat(files / "test_32x32.mat", {"X": image, "y": np.array(digit)})
  err = refused(tmp_path, capsys, "svhn_cropped", files)
  assert "test_32x32.mat" in err and re.search(message, err), err
  whole = np.zeros((32, 32, 3, 4), "u1")
  savemat(files / "test_32x32.mat", {"X": whole})
  assert "KeyError" in refused(tmp_path, capsys, "svhn_cropped", files)


LABELS, IMAGES = "t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"


@pytest.mark.parametrize(
  ("file", "damage", "message"),
  [
    (IMAGES, half, "is damaged"),
    (IMAGES, but_the_end, "is damaged"),
    (
      IMAGES,
      lambda p: p.write_bytes(gzip.compress(b"P5")),
      "is damaged",
    ),
    (LABELS, lambda p: of.write_idx(p, np.zeros(3, "u1")), "3 labels for 20"),
    (
      LABELS,
      lambda p: of.write_idx(p, np.full(20, 10, "u1")),
      "has labels 10 to 10, expected 0 to 9",
    ),
    (
      LABELS,
      lambda p: p.write_bytes(
        gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 20, 1]))
      ),
      r"its header is not that of \[1\] bytes",
    ),
    (
      IMAGES,
      lambda p: of.write_idx(p, np.zeros((20, 14, 56), "u1")),
      r"its header is not that of \[20, 28, 28\]",
    ),
  ],
)
def test_damaged_idx(file, damage, message, tmp_path, capsys):
  files = tmp_path / "files"
  files.mkdir()
  of.official(files)
  damage(files / file)
  err = refused(tmp_path, capsys, "fashion_mnist", files)
  assert str(files / file) in err or str(files / LABELS) in err
  assert re.search(message, err), err
