"""Damaged, hostile and misleading data files: one line, and nothing left."""

import gzip
import json
import pickle
import re
import shutil
import zipfile

import numpy as np
import official as of
import packed
import pytest
from marks import slow
from refusals import refused
from scipy.io import savemat

import splitjax
from splitjax.data import COPIES, find, load
from splitjax.files import one_line as shortened
from splitjax.files import printable, reason


def half(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def padded(path):
  """Cuts what a reader who stops after the last member never sees."""
  whole = gzip.decompress(path.read_bytes()) + bytes(1 << 22)
  path.write_bytes(gzip.compress(whole)[:-4])


def to(raw):
  return lambda _: raw


gone = to(None)


def holds(raw):
  return lambda path: path.write_bytes(raw)


def inside(member, change):
  """Changes a member of a tar.gz or a zip; to None: leaves it out."""

  def damage(path):
    zipped = path.suffix == ".zip"
    members = (packed.read_zip if zipped else packed.read_tar)(path)
    (name,) = [name for name in members if name.endswith(member)]
    raw = change(members.pop(name))
    members |= {} if raw is None else {name: raw}
    (packed.write_zip if zipped else packed.write_tar)(path, members)

  return damage


def batch(name, **changed):
  """Changes entries of a pickled batch."""

  def change(raw):
    held = {key.decode(): v for key, v in packed.unpickle(raw).items()}
    return packed.python2({**held, **changed})

  return inside(name, change)


def first_byte(value):
  return lambda raw: bytes([value]) + raw[1:]


def named(names):
  raw = packed.python2({"label_names": names})
  return inside("batches.meta", to(raw))


def renamed(raw):
  return raw.replace(b"n00000009", b"n00000900")


def resized(form, side):
  return to(of.picture(np.random.default_rng(0), "RGB", side, form)[0])


def array(values):
  return lambda path: of.write_idx(path, np.asarray(values, "u1"))


def with_cow(path):
  members = packed.read_tar(path)
  members["CINIC-10/train/cow/n0.png"] = members["CINIC-10/train/cat/n0.png"]
  packed.write_tar(path, members)


def digits(image, digit):
  held = {"X": np.asarray(image)} | ({} if digit is None else {"y": digit})
  return lambda path: savemat(path, held)


class Evil:
  def __reduce__(self):
    return exec, ("import pathlib; pathlib.Path('evil').touch()",)


FILES = {
  "cifar10_python": "cifar-10-python.tar.gz",
  "cifar10_binary": "cifar-10-binary.tar.gz",
  "svhn": "train_32x32.mat",
  "tiny_imagenet": "tiny-imagenet-200.zip",
  "cinic10": "CINIC-10.tar.gz",
  "uci_har_inner": "UCI HAR Dataset.zip",
  "ag_news": "test.csv",
}
PY, BIN = "cifar10_python", "cifar10_binary"
TINY, CINIC = "tiny_imagenet", "cinic10"
HAR, NEWS = "uci_har_inner", "ag_news"
GYRO = "train/Inertial Signals/body_gyro_y_train.txt"
EVIL = pickle.dumps(Evil(), protocol=2)
MEMO = b"\x80\x02}r\xff\xff\xff\x7f."  # {} as the two-billionth thing
FROG, FROG1 = "CINIC-10/test/frog/n0.png", "CINIC-10/train/frog/n1.png"
NOTES = "/val_annotations.txt"
DAMAGES = [
  (PY, half, "damaged"),
  (PY, padded, "damaged"),
  (PY, holds(b"<html>"), "damaged"),
  (PY, inside("data_batch_3", gone), "damaged .*data_batch_3"),
  (PY, batch("test_batch", data=np.zeros((2, 9), "u1")), r"uint8 \[2, 9\]"),
  (PY, batch("test_batch", data=np.zeros((20, 3072))), "has images float64"),
  (PY, batch("data_batch_5", labels=[1, 2]), "has 44 labels for 52 images"),
  (PY, batch("data_batch_5", labels=[-1] * 10), "labels -1 to 9, expected 0"),
  (PY, named(["a"]), "batches.meta does not name 10 classes"),
  (PY, named([*of.NAMES10, "ship"]), "does not name 10 classes"),
  (PY, named([*of.NAMES10[:9], "two\nlines"]), "does not name 10 classes"),
  (PY, named([*of.NAMES10[:9], 3]), "is damaged or not what its name says"),
  (PY, inside("batch_2", to(EVIL)), "damaged .*it asks for __builtin__.exec"),
  (PY, inside("test_batch", to(MEMO)), "is damaged.*KeyError"),
  (BIN, inside("batch_1.bin", lambda raw: raw[:-1]), "damaged .*36875"),
  (BIN, inside("test_batch.bin", to(b"")), "has 0 labels for 0 images"),
  (BIN, inside("test_batch.bin", first_byte(10)), "has labels 0 to 10, exp"),
  ("svhn", half, "train_32x32.mat is damaged"),
  (TINY, half, "zip is damaged"),
  (TINY, inside("/wnids.txt", lambda r: r[:-10]), "txt does not name 200"),
  (TINY, inside("/wnids.txt", renamed), "KeyError: 'n00000009'"),
  (TINY, inside(NOTES, to(b"")), "has 0 labels for 0 images"),
  (HAR, inside(GYRO, gone), "no item named .*body_gyro_y_train"),
  (HAR, inside(GYRO, lambda r: r[: r.index(b"\n") + 1]), "damaged"),
  (HAR, inside(GYRO, lambda r: r.replace(b"e", b"x", 1)), "damaged"),
  (HAR, inside(GYRO, lambda r: b" nan" + r[16:]), "that is no number"),
  (HAR, inside("/y_test.txt", lambda r: b"7" + r[1:]), "labels 1 to 7, expect"),
  (HAR, inside("/y_test.txt", lambda r: b"1.5" + r[1:]), "no whole numbers"),
  (HAR, inside("activity_labels.txt", to(b"1 A\n")), "does not number six"),
  (NEWS, holds(b'"5","a","b"\n'), "has labels 5 to 5, expected 1 to 4"),
  (NEWS, holds(b'"1","a"\n'), "rows of other than three columns"),
  (NEWS, holds(b'"1","a","b'), "test.csv is damaged"),
  (NEWS, holds(b"\xff\xfe"), "test.csv is damaged"),
  (CINIC, inside(FROG, gone), "test has no image of class 6"),
  (CINIC, inside(FROG, resized("png", 33)), r"n0.png .*\(33, 33\) pixels, exp"),
  (CINIC, inside(FROG1, to(b"GIF89a" + bytes(99))), "frog/n1.png is damaged"),
  (CINIC, with_cow, "'cow' is not in list"),
]
LABELS, IMAGES = "t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"
SHORT = gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 20, 1]))
FOUR, ONES = np.zeros((32, 32, 3, 4), "u1"), [[1]] * 4
DIGITS = "svhn", "test_32x32.mat"
OF_FILES = [
  ("idx", IMAGES, holds(gzip.compress(b"P5")), "is damaged"),
  ("idx", LABELS, array(np.zeros(3)), "3 labels for 20"),
  ("idx", LABELS, array(np.full(20, 10)), "has labels 10 to 10, expected 0"),
  ("idx", LABELS, holds(SHORT), r"its header is not that of \[1\] bytes"),
  ("idx", IMAGES, array(np.zeros((20, 14, 56))), r"not that of \[20, 28, 28\]"),
  (*DIGITS, digits(FOUR[..., 0], ONES), r"has images uint8 \[3, 32, 32\]"),
  (*DIGITS, digits(FOUR, [[0]] * 4), "has labels 0 to 0, expected 1 to"),
  (*DIGITS, digits(FOUR, [[1.0]] * 4), "TypeError: Cannot cast"),
  (*DIGITS, digits(FOUR, None), "KeyError"),
  # Found where hundreds are read.
  *slow((TINY, FILES[TINY], inside("/val_3.JPEG", gone), "no item .*/val_3.")),
]


@pytest.mark.parametrize(
  ("form", "file", "damage", "message"),
  [(form, FILES[form], *rest) for form, *rest in DAMAGES] + OF_FILES,
)
def test_damage(form, file, damage, message, tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  name, write = of.FORMS[form]
  files = tmp_path / "files"
  files.mkdir()
  write(files)
  damage(files / file)
  err = of.refused(tmp_path, capsys, name, files)
  if form == "idx":
    assert str(files / file) in err or str(files / LABELS) in err
  else:
    assert err.startswith(f"error: {files / file}")
  assert re.search(message, err), err
  assert not (tmp_path / "evil").exists()


def test_names_in_archives_are_written_in_one_line(tmp_path, capsys):
  of.tiny_imagenet(tmp_path)
  with zipfile.ZipFile(tmp_path / FILES[TINY], "a") as archive:
    archive.writestr("tiny-imagenet-200/train/n\n9/images/a.JPEG", b"")
  assert r"KeyError: 'n\n9'" in of.refused(tmp_path, capsys, TINY, tmp_path)
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


ORIGIN = json.dumps({splitjax.data.ORIGIN: [{"file": 3, "official": False}]})


@pytest.mark.parametrize(
  ("file", "change"),
  [
    ("dataset_info.json", ('"40"', '"30"')),
    ("features.json", ('"28"', '"14"')),
    ("features.json", ('"label"', '"level"')),
    ("metadata.json", ORIGIN),
  ],
)
def test_prepared_data_described_wrongly(file, change, copied):
  data_dir, folder, _ = copied
  path = folder / file
  if not isinstance(change, str):
    assert change[0] in path.read_text()
    change = path.read_text().replace(*change, 1)
  path.write_text(change)
  with refused(str(folder)):
    load("fashion_mnist", data_dir=data_dir)


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
