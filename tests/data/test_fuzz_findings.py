"""Regression tests of the bugs that fuzzing found (test_fuzz_*.py)."""

import gzip
import json
import shutil
import zipfile

import numpy as np
import official_archives as oa
import official_files as of
import official_pictures as op
import pytest
import tiny
from forms import in_tar, refused

from splitjax import Config, UserError
from splitjax.data import load, ood_mixture, tfds_store
from splitjax.files import one_line, printable, reason

PY10 = "cifar-10-batches-py/"


@pytest.fixture(name="files")
def make_folder(tmp_path):
  folder = tmp_path / "files"
  folder.mkdir()
  return folder


def test_a_size_larger_than_memory(files, tmp_path, capsys):
  of.official(files)
  path = files / "train-images-idx3-ubyte.gz"
  head = bytes([0, 0, 8, 3]) + np.array([2**32 - 1, 28, 28], ">u4").tobytes()
  path.write_bytes(gzip.compress(head + bytes(784)))
  err = refused(tmp_path, capsys, "fashion_mnist", files)
  assert "its header is not that of [1, 28, 28] bytes" in err


def test_a_pickle_that_asks_for_gigabytes(files, tmp_path, capsys):
  oa.cifar10_python(files)
  memo = b"\x80\x02}r\xff\xff\xff\x7f."  # {} as the two-billionth thing
  in_tar(f"{PY10}test_batch", lambda _: memo)(files / "cifar-10-python.tar.gz")
  err = refused(tmp_path, capsys, "cifar10", files)
  assert "cifar-10-python.tar.gz is damaged" in err and "KeyError" in err


@pytest.mark.parametrize(
  "names",
  [
    [*oa.NAMES10, "ship"],  # ten, one of them twice
    [*oa.NAMES10[:9], "two\nlines"],
    [*oa.NAMES10[:9], ""],
    [*oa.NAMES10[:9], 3],
    [*oa.NAMES10[:9], ["list"]],
  ],
)
def test_invalid_class_names(names, files, tmp_path, capsys):
  oa.cifar10_python(files)
  raw = oa.python2({"label_names": names})
  in_tar(f"{PY10}batches.meta", lambda _: raw)(files / "cifar-10-python.tar.gz")
  err = refused(tmp_path, capsys, "cifar10", files)
  assert "is damaged or not what its name says" in err


def test_names_in_archives_are_written_in_one_line(files, tmp_path, capsys):
  op.tiny_imagenet(files)
  path = files / "tiny-imagenet-200.zip"
  with zipfile.ZipFile(path, "a") as archive:
    archive.writestr("tiny-imagenet-200/train/n\n9/images/a.JPEG", b"")
  err = refused(tmp_path, capsys, "tiny_imagenet", files)
  assert r"KeyError: 'n\n9'" in err
  path = tmp_path / "mine.npz"
  np.savez(path, **{"x\n\x1b[2J": np.zeros(1)})
  with pytest.raises(UserError, match=r"found x\\n\\x1b\[2J; write"):
    load(f"npz:{path}")
  with pytest.raises(UserError, match=r"data.name = 'npz:a\\nb': no such"):
    load("npz:a\nb")


def test_words_of_errors_are_one_line():
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(one_line("x" * 10**6)) < 400
  assert printable("a  b\n") == r"a  b\n"


@pytest.fixture(name="copied")
def copy_small(small, tmp_path):
  """A prepared data set of one's own, its version's folder and its pixels."""
  data_dir, made = small
  shutil.copytree(data_dir / "fashion_mnist", tmp_path / "fashion_mnist")
  return tmp_path, tfds_store.find("fashion_mnist", tmp_path), made


@pytest.mark.parametrize(
  ("file", "old", "new", "message"),
  [
    ("dataset_info.json", '"40"', '"30"', "30 train samples announced, 40"),
    ("features.json", '"28"', '"14"', r"\(28, 28, 1\), announced as \(14, 28"),
    ("features.json", '"label"', '"level"', "cannot be read"),
  ],
)
def test_prepared_data_described_wrongly(file, old, new, message, copied):
  data_dir, folder, _ = copied
  text = (folder / file).read_text()
  assert old in text
  (folder / file).write_text(text.replace(old, new, 1))
  with pytest.raises(UserError, match=message):
    load("fashion_mnist", data_dir=data_dir)


def test_an_origin_that_is_no_text(copied):
  data_dir, folder, _ = copied
  told = {tfds_store.ORIGIN: [{"file": 3, "official": False}]}
  (folder / "metadata.json").write_text(json.dumps(told))
  with pytest.raises(UserError, match="cannot be read"):
    load("fashion_mnist", data_dir=data_dir)


@pytest.mark.parametrize(
  "change",
  [
    lambda raw: raw[:-1],
    lambda raw: raw + b"0",
    lambda raw: raw.replace(b"'shape': (", b"'sh99999999"),  # TokenError
    lambda raw: b"",
  ],
)
def test_a_damaged_copy_is_made_anew(change, copied):
  data_dir, _, made = copied
  load("fashion_mnist", data_dir=data_dir)
  (kept,) = (data_dir / tfds_store.COPIES / "fashion_mnist").iterdir()
  path = kept / "train_image.npy"
  raw = path.read_bytes()
  path.unlink()
  path.write_bytes(change(raw))
  data = load("fashion_mnist", data_dir=data_dir)
  assert of.bag(data.train_image, data.train_label) == of.bag(*made["train"])
  assert isinstance(data.train_image, np.memmap)


def test_a_huge_ratio_takes_all_there_is():
  main = np.array([[True, False]])
  sets = ood_mixture.id_ood_sets(np.array([0, 1, 0]), main, (1e308,), 0)
  assert sets.all()


HUGE = 10**400
MISTAKES = [
  ({"method": 3}, "method"),
  ({"method": {"name": ["x"]}}, "method.name"),
  ({"backbone": {"name": {}}}, "backbone.name"),
  ({"batch_size": 10**30}, "batch_size"),
  ({"rounds": 2**31}, "rounds"),
  ({"seed": 10**5000}, "seed"),
  ({"title": "a\nb"}, "title"),
  ({"title": "\ud800"}, "title"),
  ({"optimizer": {"lr": HUGE}}, "optimizer.lr"),
  ({"optimizer": {"lr": 1e300}}, "optimizer.lr"),
  ({"eval": {"rhos": (HUGE,)}}, "eval.rhos"),
  ({"eval": {"thresholds": np.array([[1], [2]])}}, "eval.thresholds"),
  ({"participation": np.array(["uniform", "b"])}, "participation"),
  ({"x\ny": 3}, "config: unknown field"),
]


@pytest.mark.parametrize(("change", "field"), MISTAKES)
def test_values_that_no_field_can_have(change, field):
  with pytest.raises(UserError) as caught:
    Config.from_dict(tiny.tiny().to_dict() | change)
  message = str(caught.value)
  assert message.startswith(field) and message.isprintable()
  assert len(message) < 600


@pytest.mark.parametrize(
  "methods", [3, [1], {1: {"name": "local"}}, {"a" * 101: {"name": "local"}}]
)
def test_methods_that_are_no_group(methods):
  tree = tiny.tiny().to_dict()
  del tree["method"]
  with pytest.raises(UserError, match="^methods"):
    Config.from_dict(tree | {"methods": methods})


@pytest.mark.parametrize("given", [None, 3, [], "x"])
def test_configs_that_are_no_group(given):
  with pytest.raises(UserError, match="^config="):
    Config.from_dict(given)
