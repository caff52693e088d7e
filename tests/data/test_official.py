"""Official files: every reader, downloads, checksums and the command."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile
from pathlib import Path

import launched
import numpy as np
import pytest
from PIL import Image
from refusals import refused
from scipy.io import savemat

from splitjax.data import OFFICIAL, load, prepare

# A package hands no __main__ on, and a command's process takes seconds.
from splitjax.data.__main__ import main

# Small data sets in the exact official formats: a writer writes files into a
# folder and returns split -> arrays by field, as they are to be read.

NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
TRAIN, TEST = 40, 20
"""Samples of `idx`."""


def write_tar(path, members):
  """Writes a tar.gz with its folders."""
  with tarfile.open(path, "w:gz", compresslevel=1) as tar:
    for name, raw in {path.name.split(".")[0]: None, **members}.items():
      info = tarfile.TarInfo(name)
      info.type = tarfile.DIRTYPE if raw is None else tarfile.REGTYPE
      info.size = len(raw or b"")
      tar.addfile(info, io.BytesIO(raw or b""))


def write_zip(path, members):
  with zipfile.ZipFile(path, "w") as archive:
    for name, raw in members.items():
      archive.writestr(name, raw)


def idx(folder):
  """The four files of MNIST and Fashion-MNIST."""
  rng, made = np.random.default_rng(0), {}
  for split, prefix, n in (("train", "train", TRAIN), ("test", "t10k", TEST)):
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = np.arange(n, dtype=np.uint8) % 10
    for kind, array in (("images-idx3", image), ("labels-idx1", label)):
      head = bytes([0, 0, 8, array.ndim])
      raw = head + np.array(array.shape, ">u4").tobytes() + array.tobytes()
      path = folder / f"{prefix}-{kind}-ubyte.gz"
      path.write_bytes(gzip.compress(raw))
    made[split] = {"image": image[..., None], "label": label}
  return made


def cifar(number, coarse, folder):
  """Records of one label or two and the pixels, in one file or five.

  With `coarse` what is to be read are the superclasses.
  """
  rng, made, members = np.random.default_rng(1), {}, {}
  top = "cifar-10-batches-bin" if number == 10 else "cifar-100-binary"
  batches = {
    10: {"train": [f"data_batch_{i}" for i in range(1, 6)],
         "test": ["test_batch"]},
    100: {"train": ["train"], "test": ["test"]},
  }[number]  # fmt: skip
  for split, files in batches.items():
    n = 100
    image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
    label, above = rng.permutation(n) % number, rng.permutation(n) % 20
    fields = [label] if number == 10 else [above, label]
    planes = image.transpose(0, 3, 1, 2).reshape(n, -1)
    raw = np.column_stack([*fields, planes]).astype(np.uint8)
    for name, part in zip(files, np.split(raw, len(files)), strict=True):
      members[f"{top}/{name}.bin"] = part.tobytes()
    made[split] = {"image": image, "label": above if coarse else label}
  names = {"batches.meta": [*NAMES10, ""]}  # with an empty line, as it is
  if number == 100:
    names = {
      f"{kind}_label_names": [f"{kind}_{c}" for c in range(count)]
      for kind, count in (("fine", 100), ("coarse", 20))
    }
  for name, lines in names.items():
    members[f"{top}/{name}.txt"] = "\n".join(lines).encode() + b"\n"
  members[f"{top}/readme.html"] = b"<html>"
  # The archive has no order.
  shuffled = {k: members[k] for k in sorted(members, key=lambda k: k[::-1])}
  write_tar(folder / f"cifar-{number}-binary.tar.gz", shuffled)
  return made


def svhn(folder):
  made, rng = {}, np.random.default_rng(2)
  for split, n in (("train", 30), ("test", 20)):
    image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
    label = rng.permutation(n) % 10
    digit = np.where(label == 0, 10, label)[:, None].astype("u1")
    held = {"X": np.moveaxis(image, 0, -1), "y": digit}
    savemat(folder / f"{split}_32x32.mat", held, do_compression=True)
    made[split] = {"image": image, "label": label}
  return made


def picture(rng, mode, side, form):
  """A file of noise and its pixels as RGB, by another decoder."""
  noise = rng.integers(0, 256, (side, side, 3), np.uint8)
  file = io.BytesIO()
  Image.fromarray(noise).convert(mode).save(file, form)
  decoded = Image.open(io.BytesIO(file.getvalue())).convert("RGB")
  return file.getvalue(), np.asarray(decoded)


def _stacked(pairs):
  images, labels = zip(*pairs, strict=True)
  return {"image": np.stack(images), "label": np.array(labels)}


def tiny_imagenet(folder):
  """Two hundred classes; one of them is grey, one has two images."""
  rng, made = np.random.default_rng(3), {"train": [], "test": []}
  wnids = [f"n{i:08d}" for i in rng.permutation(200)]
  top, members, lines = "tiny-imagenet-200", {}, []
  for label, wnid in enumerate(wnids):
    members[f"{top}/train/{wnid}/{wnid}_boxes.txt"] = b"0\t0\t9\t9\n"
    mode, found = ("L" if label == 7 else "RGB"), {}
    for number in (1, 0) if label == 3 else (0,):
      raw, found[number] = picture(rng, mode, 64, "jpeg")
      members[f"{top}/train/{wnid}/images/{wnid}_{number}.JPEG"] = raw
    made["train"] += [(found[number], label) for number in sorted(found)]
  for i, label in enumerate(rng.permutation(200)[:30].tolist()):
    raw, image = picture(rng, "RGB", 64, "jpeg")
    members[f"{top}/val/images/val_{i}.JPEG"] = raw
    lines.append(f"val_{i}.JPEG\t{wnids[label]}\t0\t0\t63\t63\n")
    made["test"].append((image, label))
  members[f"{top}/val/val_annotations.txt"] = "".join(lines)
  members[f"{top}/wnids.txt"] = "\n".join(wnids) + "\n"
  members[f"{top}/test/images/test_0.JPEG"] = raw
  write_zip(folder / "tiny-imagenet-200.zip", members)
  return {split: _stacked(pairs) for split, pairs in made.items()}


def cinic10(folder):
  rng, made, members = np.random.default_rng(4), {}, {}
  for split, n in (("valid", 1), ("train", 2), ("test", 1)):
    pairs = []
    for label, kind in enumerate(NAMES10):
      for i in range(n):
        grey = (split, label) == ("test", 3)
        raw, image = picture(rng, "L" if grey else "RGB", 32, "png")
        members[f"CINIC-10/{split}/{kind}/n{i}.png"] = raw
        pairs.append((image, label))
    made[split] = _stacked(pairs)
  names = list(members)
  rng.shuffle(names)  # the archive has no order
  shuffled = {"CINIC-10/README.md": b"#"} | {k: members[k] for k in names}
  write_tar(folder / "CINIC-10.tar.gz", shuffled)
  return {split: made[split] for split in ("train", "test")}


WRITE = {
  "mnist": idx,
  "fashion_mnist": idx,
  "cifar10": functools.partial(cifar, 10, False),
  "cifar100": functools.partial(cifar, 100, False),
  "cifar100_coarse": functools.partial(cifar, 100, True),
  "svhn_cropped": svhn,
  "tiny_imagenet": tiny_imagenet,
  "cinic10": cinic10,
}
"""Name of a data set -> what writes small files of it."""


def prepared(name, data_dir):
  """Writes and prepares a small data set; returns what is in the files."""
  folder = data_dir / "downloads" / (OFFICIAL[name].downloads or name)
  folder.mkdir(parents=True, exist_ok=True)
  made = WRITE[name](folder)
  prepare(name, data_dir, allow_modified=True)
  return made


@pytest.fixture(name="made", scope="module")
def prepare_all(tmp_path_factory):
  """One DATA_DIR, and name -> what was written."""
  data_dir = tmp_path_factory.mktemp("data")
  return data_dir, {name: prepared(name, data_dir) for name in WRITE}


NAMES = {
  "fashion_mnist": ["T-shirt/top", "Trouser"],
  "cifar10": NAMES10,
  "cifar100": ["fine_0", "fine_1"],
  "cifar100_coarse": ["coarse_0", "coarse_1"],
  "cinic10": NAMES10,
}
CLASSES = {"cifar100": 100, "cifar100_coarse": 20, "tiny_imagenet": 200}


@pytest.mark.parametrize("name", WRITE)
def test_what_is_in_the_files_is_loaded_in_their_order(made, name):
  data_dir, written = made
  data = load(name, data_dir=data_dir)
  assert isinstance(data.train_image, np.memmap)
  assert data.note.startswith(f"{name} was prepared from files that are not")
  assert data.classes == CLASSES.get(name, 10)
  names = NAMES.get(name, [])
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
  idx(folder)
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
  assert len(data.train_label) == TRAIN and data.note == ""


def test_files_that_lie_there_need_no_network(tmp_path, capsys):
  folder = tmp_path / "downloads" / "fashion_mnist"
  folder.mkdir(parents=True)
  idx(folder)
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
  prepared("cifar10", tmp_path)
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
