"""Damaged, hostile and misleading data files: one line, and nothing left.

Cases by hand, and damage that hypothesis draws: a byte here and there, or a
stretch of them, of files as they are and of what lies below compression.
"""

import functools
import gzip
import json
import pickle
import re
import shutil
import warnings
import zipfile

import numpy as np
import official as of
import pytest
from fuzz import BUDGETS, damages, fuzz, one_line
from hypothesis import strategies as st
from marks import slow
from scipy.io import savemat

from splitjax.data import load, sources, tfds_store
from splitjax.data.official import prepare
from splitjax.data.official.catalog import STORES
from splitjax.files import one_line as shortened
from splitjax.files import printable, reason
from splitjax.types import UserError


def half(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut(path):
  path.write_bytes(path.read_bytes()[:-4])


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
    members = (of.read_zip if zipped else of.read_tar)(path)
    (name,) = [name for name in members if name.endswith(member)]
    raw = change(members.pop(name))
    members |= {} if raw is None else {name: raw}
    (of.write_zip if zipped else of.write_tar)(path, members)

  return damage


def batch(name, **changed):
  """Changes entries of a pickled batch."""

  def change(raw):
    held = {key.decode(): v for key, v in of.unpickle(raw).items()}
    return of.python2({**held, **changed})

  return inside(name, change)


def first_byte(value):
  return lambda raw: bytes([value]) + raw[1:]


def named(names):
  raw = of.python2({"label_names": names})
  return inside("batches.meta", to(raw))


def resized(form, side):
  return to(of.picture(np.random.default_rng(0), "RGB", side, form)[0])


def array(array, gz=True):
  return lambda path: of.write_idx(path, np.asarray(array, "u1"))


def with_cow(path):
  members = of.read_tar(path)
  members["CINIC-10/train/cow/n0.png"] = members["CINIC-10/train/cat/n0.png"]
  of.write_tar(path, members)


def digits(image, digit):
  held = {"X": np.asarray(image)} | ({} if digit is None else {"y": digit})
  return lambda path: savemat(path, held)


class Evil:
  def __reduce__(self):
    return exec, ("import pathlib; pathlib.Path('evil').touch()",)


FILES = {
  "cifar10_python": "cifar-10-python.tar.gz",
  "cifar10_binary": "cifar-10-binary.tar.gz",
  "cifar100_binary": "cifar-100-binary.tar.gz",
  "svhn": "train_32x32.mat",
  "tiny_imagenet": "tiny-imagenet-200.zip",
  "cinic10": "CINIC-10.tar.gz",
  "uci_har_inner": "UCI HAR Dataset.zip",
  "ag_news": "test.csv",
}
PY, BIN, BIN100 = "cifar10_python", "cifar10_binary", "cifar100_binary"
TINY, CINIC = "tiny_imagenet", "cinic10"
HAR, NEWS = "uci_har_inner", "ag_news"
GYRO = "train/Inertial Signals/body_gyro_y_train.txt"
EVIL = pickle.dumps(Evil(), protocol=2)
MEMO = b"\x80\x02}r\xff\xff\xff\x7f."  # {} as the two-billionth thing
FROG, FROG1 = "CINIC-10/test/frog/n0.png", "CINIC-10/train/frog/n1.png"
JPEG, NOTES = "/n00000009_0.JPEG", "/val_annotations.txt"
DAMAGES = [
  (PY, half, "damaged"),
  (PY, cut, "damaged"),
  (PY, padded, "damaged"),
  (PY, holds(b"<html>"), "damaged"),
  (PY, inside("data_batch_3", gone), "damaged .*data_batch_3"),
  (
    PY,
    batch("test_batch", data=np.zeros((20, 3000), "u1")),
    r"has images uint8 \[20, 3000\]",
  ),
  (
    PY,
    batch("test_batch", data=np.zeros((20, 3072))),
    r"has images float64 \[20, 3072\]",
  ),
  (PY, batch("data_batch_5", labels=[1, 2]), "has 44 labels for 52 images"),
  (
    PY,
    batch("data_batch_5", labels=[-1] * 10),
    "has labels -1 to 9, expected 0 to 9",
  ),
  (PY, named(["a"]), "batches.meta does not name 10 classes"),
  (PY, named([*of.NAMES10, "ship"]), "is damaged or not what its name says"),
  *(
    (PY, named([*of.NAMES10[:9], last]), "is damaged or not what its name says")
    for last in ("two\nlines", "", 3, ["list"])
  ),
  (PY, inside("batch_2", to(EVIL)), "damaged .*it asks for __builtin__.exec"),
  (PY, inside("test_batch", to(MEMO)), "is damaged.*KeyError"),
  (BIN, inside("batch_1.bin", lambda raw: raw[:-1]), "damaged .*36875"),
  (BIN, inside("test_batch.bin", to(b"")), "has 0 labels for 0 images"),
  (
    BIN,
    inside("test_batch.bin", first_byte(10)),
    "has labels 0 to 10, expected 0 to 9",
  ),
  (
    BIN100,
    inside("train.bin", first_byte(20)),
    "has labels 0 to 20, expected 0 to 19",
  ),
  (
    BIN100,
    inside("coarse_label_names.txt", gone),
    "damaged .*coarse_label_names.txt",
  ),
  ("svhn", half, "train_32x32.mat is damaged"),
  (TINY, half, "zip is damaged"),
  (TINY, cut, "zip is damaged"),
  (TINY, inside("/wnids.txt", gone), "no item named .*wnids.txt"),
  (
    TINY,
    inside("/wnids.txt", lambda r: r[:-10]),
    "wnids.txt does not name 200",
  ),
  (
    TINY,
    inside("/wnids.txt", lambda r: r.replace(b"n00000009", b"n00000900")),
    "KeyError: 'n00000009'",
  ),
  (TINY, inside(NOTES, to(b"")), "has 0 labels for 0 images"),
  (HAR, half, "damaged"),
  (HAR, inside(GYRO, gone), "no item named .*body_gyro_y_train"),
  (HAR, inside(GYRO, lambda r: r[: r.index(b"\n") + 1]), "damaged"),
  (HAR, inside(GYRO, lambda r: r.replace(b"e", b"x", 1)), "damaged"),
  (HAR, inside(GYRO, lambda r: b" nan" + r[16:]), "that is no number"),
  (HAR, inside("/y_test.txt", lambda r: r[2:]), "has 7 labels for 8 images"),
  (HAR, inside("/y_test.txt", lambda r: b"7" + r[1:]), "labels 1 to 7, expect"),
  (HAR, inside("/y_test.txt", lambda r: b"1.5" + r[1:]), "no whole numbers"),
  (HAR, inside("t_train.txt", lambda r: b"31" + r[1:]), "labels 1 to 31, exp"),
  (HAR, inside("activity_labels.txt", to(b"1 A\n")), "does not number six"),
  (NEWS, holds(b'"5","a","b"\n'), "has labels 5 to 5, expected 1 to 4"),
  (NEWS, holds(b'"1","a"\n'), "rows of other than three columns"),
  (NEWS, holds(b'"1","a","b'), "test.csv is damaged"),
  (NEWS, holds(b'"one","a","b"\n'), "test.csv is damaged"),
  (NEWS, holds(b"\xff\xfe"), "test.csv is damaged"),
  (NEWS, holds(b""), "has 0 labels for 0 images"),
  (CINIC, half, "damaged"),
  (CINIC, cut, "damaged"),
  (CINIC, inside(FROG, gone), "test has no image of class 6"),
  (
    CINIC,
    inside(FROG, resized("png", 33)),
    r"test/frog/n0.png is damaged .*\(33, 33\) pixels, expected 32x32",
  ),
  (
    CINIC,
    inside(FROG1, to(b"GIF89a" + bytes(99))),
    "train/frog/n1.png is damaged",
  ),
  (CINIC, with_cow, "'cow' is not in list"),
]
OF_PICTURES = [  # found where hundreds are read
  (inside(JPEG, gone), "train has no image of class"),
  (
    inside(JPEG, resized("jpeg", 63)),
    r"n00000009_0.JPEG is damaged .*\(63, 63\) pixels, expected 64x64",
  ),
  (inside(JPEG, lambda raw: raw[:700]), "n00000009_0.JPEG is damaged"),
  (inside("/val_3.JPEG", gone), "no item named .*/val_3.JPEG"),
  (inside(NOTES, lambda r: b"val_0.JPEG\tn9\t0\n" + r), "KeyError: 'n9'"),
]
LABELS, IMAGES = "t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"
HUGE = np.array([2**32 - 1, 28, 28], ">u4").tobytes() + bytes(784)
SHORT = gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 20, 1]))
LARGE = gzip.compress(bytes([0, 0, 8, 3]) + HUGE)
FOUR, ONES = np.zeros((32, 32, 3, 4), "u1"), [[1]] * 4
OF_FILES = [
  ("idx", IMAGES, half, "is damaged"),
  ("idx", IMAGES, cut, "is damaged"),
  ("idx", IMAGES, holds(gzip.compress(b"P5")), "is damaged"),
  ("idx", LABELS, array(np.zeros(3)), "3 labels for 20"),
  (
    "idx",
    LABELS,
    array(np.full(20, 10)),
    "has labels 10 to 10, expected 0 to 9",
  ),
  ("idx", LABELS, holds(SHORT), r"its header is not that of \[1\] bytes"),
  (
    "idx",
    IMAGES,
    holds(LARGE),
    r"its header is not that of \[1, 28, 28\] bytes",
  ),
  (
    "idx",
    IMAGES,
    array(np.zeros((20, 14, 56))),
    r"its header is not that of \[20, 28, 28\]",
  ),
  *(
    ("svhn", "test_32x32.mat", digits(image, digit), message)
    for image, digit, message in (
      (FOUR.astype("f4"), ONES, r"images float32 \[4, 32, 32, 3\]"),
      (FOUR[..., 0], ONES, r"has images uint8 \[3, 32, 32\]"),
      (FOUR, ONES[:3], "has 3 labels for 4 images"),
      (FOUR, [[0]] * 4, "has labels 0 to 0, expected 1 to"),
      (FOUR, [[11]] * 4, "has labels 11 to 11, expected 1"),
      (FOUR, [[1.0]] * 4, "TypeError: Cannot cast"),
      (FOUR, None, "KeyError"),
    )
  ),
]


@pytest.mark.parametrize(
  ("form", "file", "damage", "message"),
  [(form, FILES[form], *rest) for form, *rest in DAMAGES]
  + OF_FILES
  + slow(*((TINY, FILES[TINY], *rest) for rest in OF_PICTURES)),
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
  with pytest.raises(UserError, match=r"found x\\n\\x1b\[2J; write"):
    load(f"npz:{tmp_path / 'mine.npz'}")
  with pytest.raises(UserError, match=r"data.name = 'npz:a\\nb': no such"):
    load("npz:a\nb")
  assert reason(ValueError("a\n  b\x00")) == r"ValueError: a b\x00"
  assert len(shortened("x" * 10**6)) < 400
  assert printable("a  b\n") == r"a  b\n"


@pytest.fixture(name="copied")
def copy_small(small, tmp_path):
  """A prepared data set of one's own, its version's folder and its pixels."""
  data_dir, made = small
  shutil.copytree(data_dir / "fashion_mnist", tmp_path / "fashion_mnist")
  return tmp_path, tfds_store.find("fashion_mnist", tmp_path), made


ORIGIN = json.dumps({tfds_store.ORIGIN: [{"file": 3, "official": False}]})


@pytest.mark.parametrize(
  ("file", "change", "message"),
  [
    ("dataset_info.json", ('"40"', '"30"'), "30 train samples announced, 40"),
    (
      "features.json",
      ('"28"', '"14"'),
      r"\(28, 28, 1\), announced as \(14, 28",
    ),
    ("features.json", ('"label"', '"level"'), "cannot be read"),
    ("metadata.json", ORIGIN, "cannot be read"),
  ],
)
def test_prepared_data_described_wrongly(file, change, message, copied):
  data_dir, folder, _ = copied
  path = folder / file
  if not isinstance(change, str):
    assert change[0] in path.read_text()
    change = path.read_text().replace(*change, 1)
  path.write_text(change)
  with pytest.raises(UserError, match=message):
    load("fashion_mnist", data_dir=data_dir)


@pytest.mark.parametrize("key", ["train_image", "train_label"])
@pytest.mark.parametrize(
  "change",
  [
    lambda raw: raw[:-1],
    lambda raw: raw[:64],  # a header has 128 bytes
    lambda raw: raw + b"0",
    lambda raw: raw.replace(b"'shape': (", b"'sh99999999"),  # TokenError
    lambda raw: b"",
  ],
)
def test_a_damaged_copy_is_made_anew(key, change, copied):
  data_dir, _, made = copied
  load("fashion_mnist", data_dir=data_dir)
  (kept,) = (data_dir / tfds_store.COPIES / "fashion_mnist").iterdir()
  path = kept / f"{key}.npy"
  raw = path.read_bytes()
  path.unlink()  # it may be mapped
  path.write_bytes(change(raw))
  data = load("fashion_mnist", data_dir=data_dir)
  assert of.bag(data.train_image, data.train_label) == of.bag(*made["train"])
  assert isinstance(data.train_image, np.memmap)


@pytest.fixture(name="as_users")
def warn_as_users_are_warned():
  """What warns elsewhere is an error in tests, which a reader may catch."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    yield


def in_gzip(path, damage, number):
  path.write_bytes(gzip.compress(damage(gzip.decompress(path.read_bytes())), 1))


def in_file(path, damage, number):
  raw = path.read_bytes()
  path.unlink()  # it may be mapped
  path.write_bytes(damage(raw))


def in_member(path, damage, number):
  """Changes one member of an archive; of a zip half the time one of text."""
  zipped = path.suffix in (".zip", ".npz")
  members = (of.read_zip if zipped else of.read_tar)(path)
  names = [name for name, raw in members.items() if raw is not None]
  texts = [name for name in names if name.endswith(".txt")]
  names = texts if zipped and texts and number % 2 else names
  members[names[number // 2 % len(names)]] = damage(
    members[names[number // 2 % len(names)]]
  )
  (of.write_zip if zipped else of.write_tar)(path, members)


LAYERS = {
  "idx": [in_file, in_gzip, in_gzip],
  TINY: [in_file, in_member],
  **dict.fromkeys(
    [PY, BIN, "cifar100_python", BIN100, CINIC],
    [in_file, in_gzip, in_member, in_member],
  ),
}
"""Form -> where its files are changed. scipy may crash on a damaged MATLAB
file, whose md5 prepare compares before."""


def changed(folder, layers, damage, number):
  """Changes one file in a folder; returns which."""
  paths = sorted(folder.iterdir())
  number, place = divmod(number, len(paths))
  number, layer = divmod(number, len(layers))
  layers[layer](paths[place], damage, number)
  return paths[place]


def copied_anew(whole, files):
  shutil.rmtree(files, ignore_errors=True)
  shutil.copytree(whole, files)


def assert_usable(name, found):
  """Images and labels of one shape and number, as the data set has them."""
  facts = sources.FACTS[name]
  assert set(found.splits) == {"train", "test"}
  for content in found.splits.values():
    images = [
      tfds_store._pixels(image) if isinstance(image, bytes) else image
      for image in content.images
    ]
    assert {(i.shape, i.dtype.str) for i in images} == {(facts.shape, "|u1")}
    for label in content.labels.values():
      assert label.shape == (len(images),) and label.dtype == np.int64
    label = content.labels["label"]
    assert label.min() >= 0 and label.max() < facts.classes
    assert not content.ids or len(content.ids) == len(images)
  for field, said in found.names.items():
    count = facts.classes if field == "label" else 20
    assert len(set(said)) == len(said) == count
    assert all(isinstance(n, str) and n and n.isprintable() for n in said)


FEW = ("idx", PY, CINIC)
numbers = st.integers(0, 10**6)


@pytest.mark.parametrize(
  ("form", "large"),
  [
    *((form, False) for form in FEW),
    *(pytest.param(f, True, marks=pytest.mark.slow) for f in LAYERS),
  ],
)
def test_modified_official_files(form, large, tmp_path, as_users):
  name, write = of.FORMS[form]
  whole, files = tmp_path / "whole", tmp_path / "files"
  whole.mkdir()
  write(whole)

  def official_files(damage, number):
    copied_anew(whole, files)
    changed(files, LAYERS[form], damage, number)
    try:
      (chosen,) = (
        form
        for form in STORES[name].forms
        if all((files / file).is_file() for file in form.files)
      )
      found = chosen.parse({file: files / file for file in chosen.files})
      assert_usable(name, found)
    except UserError as error:
      assert str(files) in str(error)
      return one_line(error)
    return "usable"

  fuzz(official_files, damages, numbers, large=large, examples=(20, 50))


@BUDGETS
def test_official_files_are_known_by_their_checksums(
  large, tmp_path, monkeypatch, as_users
):
  whole, files = tmp_path / "whole", tmp_path / "files"
  whole.mkdir()
  of.idx(whole)
  of.trust(monkeypatch, whole)

  def checksums(damage, number):
    copied_anew(whole, files)
    path = changed(files, LAYERS["idx"], damage, number)
    if path.read_bytes() == (whole / path.name).read_bytes():
      return "unchanged"
    with pytest.raises(UserError, match="is not the official file") as error:
      prepare.prepare("fashion_mnist", tmp_path / "data", files)
    assert not (tmp_path / "data").exists()
    return one_line(error)

  fuzz(checksums, damages, numbers, large=large, examples=(20, 80))


@BUDGETS
@pytest.mark.parametrize("form", ["idx", CINIC])  # of TFDS's builders or not
def test_prepared_data(form, large, tmp_path_factory, tmp_path, as_users):
  whole, _ = of.prepared(tmp_path_factory, form)
  name, held = of.FORMS[form][0], tmp_path / "data"
  right = load(name, data_dir=whole)

  def prepared_files(damage, number):
    shutil.rmtree(held, ignore_errors=True)
    shutil.copytree(whole / name, held / name)
    (folder,) = (held / name).iterdir()
    changed(folder, [in_file], damage, number)
    try:
      data = load(name, data_dir=held)
    except UserError as error:
      return one_line(error)
    assert data.classes == right.classes
    for a, b in zip(data[2:6], right[2:6], strict=True):
      assert a.dtype == b.dtype
      np.testing.assert_array_equal(a, b)
    return "right"

  fuzz(prepared_files, damages, numbers, large=large, examples=(20, 60))


@BUDGETS
def test_arrays_of_ones_own(large, tmp_path, as_users):
  folder, rng = tmp_path / "own", np.random.default_rng(0)
  folder.mkdir()
  image = functools.partial(rng.integers, 0, 256, dtype=np.uint8)
  arrays = {"x_train": image((12, 8, 6, 3)), "x_test": image((5, 8, 6, 3))}
  arrays |= {"y_train": np.arange(12) % 3, "y_test": np.arange(5) % 3}

  def own_files(damage, number, packed):
    save = np.savez_compressed if packed else np.savez
    save(folder / "mine.npz", **arrays)
    changed(folder, [in_file, in_member, in_member], damage, number)
    try:
      data = load(f"npz:{folder / 'mine.npz'}")
    except UserError as error:
      return one_line(error)
    for split in ("train", "test"):
      image = getattr(data, f"{split}_image")
      label = getattr(data, f"{split}_label")
      assert image.dtype == np.uint8 and image.ndim == 4
      assert image.shape[1:] == data.train_image.shape[1:]
      assert label.dtype == np.int32 and label.shape == (len(image),) != (0,)
      assert 0 <= label.min() and label.max() < data.classes
    return "usable"

  fuzz(
    own_files,
    damages,
    numbers,
    st.booleans(),
    large=large,
    examples=(60, 300),
  )
