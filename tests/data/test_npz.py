"""Arrays of a user's own, and every way in which they cannot be used."""

import io
import zipfile

import numpy as np
import pytest
import tiny

import splitjax
from splitjax.data import (
  PARTITIONS,
  SHIFTS,
  __main__,
  load,
  sources,
  test_sets,
)
from splitjax.experiment import task as tasks
from splitjax.types import UserError


def arrays():
  rng = np.random.default_rng(0)
  return {
    "x_train": rng.integers(0, 256, (12, 8, 6, 3), np.uint8),
    "y_train": np.arange(12) % 3,
    "x_test": rng.integers(0, 256, (5, 8, 6, 3), np.uint8),
    "y_test": np.array([2, 0, 0, 1, 2]),
  }


def saved(tmp_path, held):
  np.savez_compressed(tmp_path / "mine.npz", **held)
  return f"npz:{tmp_path / 'mine.npz'}"


def test_arrays_are_read_as_they_are(tmp_path):
  held = arrays()
  data = load(saved(tmp_path, held))
  assert data.name.startswith("npz:") and data.classes == 3
  assert data.note == ""
  for split in ("train", "test"):
    image, label = getattr(data, f"{split}_image"), f"{split}_label"
    np.testing.assert_array_equal(image, held[f"x_{split}"])
    np.testing.assert_array_equal(getattr(data, label), held[f"y_{split}"])
    assert getattr(data, label).dtype == np.int32


def test_one_channel_and_columns_of_labels(tmp_path):
  held = arrays()
  for split in ("train", "test"):
    held[f"x_{split}"] = held[f"x_{split}"][..., 0]
    held[f"y_{split}"] = held[f"y_{split}"][:, None].astype(np.uint8)
  data = load(saved(tmp_path, {**held, "more": np.zeros(3)}))
  assert data.train_image.shape == (12, 8, 6, 1)
  assert data.note == (
    "x_train and x_test without a channel axis: read as grey images."
  )
  assert data.test_label.tolist() == [2, 0, 0, 1, 2]


def test_a_part_of_it(tmp_path):
  data = load(saved(tmp_path, arrays()), train_samples=6, test_samples=3)
  assert np.bincount(data.train_label).tolist() == [2, 2, 2]
  assert data.test_image.shape == (3, 8, 6, 3)


def test_home_and_the_working_directory(tmp_path, monkeypatch):
  saved(tmp_path, arrays())
  monkeypatch.setenv("HOME", str(tmp_path))
  assert load("npz:~/mine.npz").classes == 3
  monkeypatch.chdir(tmp_path)
  assert load("npz:mine.npz").classes == 3


def test_known():
  assert sources.known("npz:anywhere.npz") == "npz:anywhere.npz"
  for name in ("npz:", "npz", "mnst"):
    with pytest.raises(UserError, match="no such data set; .* npz:PATH"):
      sources.known(name)
  with pytest.raises(UserError) as caught:
    sources.known("cifr10")
  near = [name for name in sources.SOURCES if name in str(caught.value)]
  assert "cifar10" in near and len(near) <= 4  # one may be part of another


X, Y = np.zeros((12, 8, 6, 3), np.uint8), np.arange(12) % 3
WRONG = [
  (
    {"x_train": X.astype("f4")},
    "x_train is float32, from 0.0 to 0.0: multiply by 255 and cast it to uint8",
  ),
  (
    {"x_test": np.full(X.shape, 255.0)},
    "x_test is float64, from 255.0 to 255.0: cast it to uint8",
  ),
  (
    {"x_train": X.astype("i8") - 1},
    "x_train is int64, from -1 to -1: bring it",
  ),
  ({"x_train": X.astype("U1")}, "x_train is <U1, no numbers: bring it"),
  ({"x_train": X[0, 0]}, r"x_train is of shape \[6, 3\]: reshape it to \[Z, H"),
  ({"x_test": X[:0]}, r"x_test is of shape \[0, 8, 6, 3\]: .* an empty axis"),
  (
    {"x_train": np.zeros((12, 3, 8, 8), np.uint8)},
    r"x_train is of shape \[12, 3, 8, 8\], channels first: transpose it",
  ),
  (
    {"x_train": np.zeros((12, 3, 8, 9), np.uint8)},
    r"x_train is of shape \[12, 3, 8, 9\], channels first: transpose it",
  ),
  (
    {"x_test": np.zeros((12, 1, 9, 5), np.uint8)},
    r"x_test is of shape \[12, 1, 9, 5\], channels first: transpose it",
  ),
  (
    {"x_test": X[:5, :, :5]},
    r"x_test has images \[8, 5, 3\] and x_train \[8, 6, 3\]: make them alike",
  ),
  ({"y_train": Y[:-1]}, "x_train has 12 images and y_train 11 labels: give"),
  ({"y_test": Y.astype("f8")}, "y_test is float64: number the classes 0 to C"),
  (
    {"y_train": np.eye(3, dtype=int)[Y]},
    r"y_train is of shape \[12, 3\]: reshape it to \[Z\].*argmax",
  ),
  ({"y_train": Y + 1}, "y_train has a label 1 and none of class 0: number the"),
  ({"y_train": Y * 2}, "y_train has a label 2 and none of class 1: number the"),
  ({"y_train": Y - 1}, "y_train has a negative label, -1: number the classes"),
  ({"y_train": Y * 3 - 3}, "y_train has a negative label, -3: number the cl"),
  ({"y_test": Y[:5] + 1}, "y_test has a label 3, the classes of y_train are 0"),
  ({"y_test": Y[:5] - 1}, "y_test has a negative label, -1: number the cla"),
  ({"x_test": None, "y_test": None}, "lacks x_test, y_test, found x_train, y_"),
  (
    {"y_test": np.array(["a"] * 5, object)},
    r"y_test holds Python objects, .* write y_test.astype\(int\)",
  ),
  (
    {"client_train": np.array(["a"] * 12, object)},
    r"client_train holds Python .*: write client_train.astype\(str\)",
  ),
  ({"x_train": X}, "x_train has the one value 0 everywhere: multiply pix"),
  (
    {"x_train": X[..., 0] + np.arange(8, dtype=np.uint8)[:, None]},
    r"x_train \[8, 6, 1\] .x_train without a channel axis: read as grey",
  ),
  ({"y_train": Y.astype("S1")}, r"y_train is .S1: number .*return_inverse"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_invalid_arrays(changed, message, tmp_path):
  held = {**arrays(), **changed}
  held = {key: value for key, value in held.items() if value is not None}
  name = saved(tmp_path, held)
  with pytest.raises(UserError, match=message) as error:
    load(name)
  assert str(error.value).startswith(f"data.name = '{name}'")
  assert "\n" not in str(error.value)


def test_files_that_are_something_else(tmp_path):
  with pytest.raises(UserError, match="npz': no such file; give its path"):
    load(f"npz:{tmp_path}/absent.npz")
  path = tmp_path / "mine.npz"
  whole = (tmp_path / "whole.npz", saved(tmp_path, arrays()))
  raw = path.read_bytes()
  for held in (b"", b"text", raw[:-30], raw[: len(raw) // 2]):
    path.write_bytes(held)
    with pytest.raises(UserError, match="no whole .npz file of plain") as error:
      load(whole[1])
    assert "pickle" not in str(error.value)
  file = io.BytesIO(raw)
  with zipfile.ZipFile(file, "a") as archive:
    archive.writestr("y_test", "text")  # found before y_test.npy
  path.write_bytes(file.getvalue())
  with pytest.raises(UserError, match="no whole .npz file of plain arrays"):
    load(whole[1])
  np.save(tmp_path / "one.npy", np.zeros(3))
  with pytest.raises(UserError, match="no whole .npz file of plain arrays"):
    load(f"npz:{tmp_path}/one.npy")
  with pytest.raises(UserError, match="cannot be read"):
    load(f"npz:{tmp_path}")


def test_check(tmp_path, capsys):
  name = saved(tmp_path, arrays())
  assert __main__.main(["check", name]) == 0
  train, test = capsys.readouterr().out.splitlines()
  assert train.endswith(
    "train: 12 samples 8x6x3, 4 to 4 per class: classes 0 to 2"
  )
  assert test.endswith(
    "test: 5 samples 8x6x3, 1 to 2 per class: classes 0 to 2"
  )
  assert __main__.main(["prepare", name]) == 0
  assert "your own arrays" in capsys.readouterr().out


def test_check_counts_the_classes_that_do_not_occur(tmp_path, capsys):
  name = saved(tmp_path, {**arrays(), "y_test": np.array([2, 2, 2, 2, 2])})
  assert __main__.main(["check", name]) == 0
  train, test = capsys.readouterr().out.splitlines()
  assert "4 to 4 per class: classes" in train
  assert "0 to 5 per class, none of class 0, 1: classes 0 to 2" in test


def test_prepare_checks_the_file(tmp_path, capsys):
  assert __main__.main(["prepare", f"npz:{tmp_path}/absent"]) == 2
  out, err = capsys.readouterr()
  assert not out and "absent': no such file; give its path" in err
  name = saved(tmp_path, {**arrays(), "y_test": np.arange(5)})
  assert __main__.main(["prepare", name]) == 2
  assert "y_test has a label 4" in capsys.readouterr().err


def owned(**more):
  """`arrays` of three hospitals, of which the last has no test sample."""
  return {
    **arrays(),
    "client_train": np.array(list("bbaabbccbbaa")),
    "client_test": np.array(list("aabab")),
    **more,
  }


def test_clients_of_the_data(tmp_path):
  data = load(saved(tmp_path, owned()))
  assert data.train_client.tolist() == [1, 1, 0, 0, 1, 1, 2, 2, 1, 1, 0, 0]
  assert data.test_client.tolist() == [0, 0, 1, 0, 1]
  part = load(saved(tmp_path, owned()), train_samples=6)
  kept = [np.flatnonzero((data.train_image == x).all((1, 2, 3)))[0]
          for x in part.train_image]  # fmt: skip
  assert part.train_client.tolist() == data.train_client[kept].tolist()
  both = test_sets.merged(data)
  assert both.train_client.tolist() == [*data.train_client, *data.test_client]

  # Texts of bytes are texts.
  byte = {k: v.astype("S1") for k, v in owned().items() if "client" in k}
  again = load(saved(tmp_path, owned(**byte)))
  np.testing.assert_array_equal(again.train_client, data.train_client)
  np.testing.assert_array_equal(again.test_client, data.test_client)

  # The partition, some of its clients, and each one's own test samples.
  owners = data.train_client
  parts = PARTITIONS["natural"](owners, 3, 0)
  assert sorted(map(tuple, parts)) == [
    (0, 1, 4, 5, 8, 9), (2, 3, 10, 11), (6, 7),
  ]  # fmt: skip
  parts = PARTITIONS["natural"](owners, 2, 1, min_samples=3)
  assert {tuple(owners[p]) for p in parts} == {(0,) * 4, (1,) * 6}
  shown = SHIFTS["own_test"](data, parts, None, 0)
  assert shown.names == ("own",) and shown.pool == "test"
  for rows, real, part in zip(shown.rows, shown.sets[0], parts, strict=True):
    mine = np.flatnonzero(data.test_client == owners[part[0]])
    assert rows[real].tolist() == mine.tolist()
  with pytest.raises(UserError, match="have 2 clients of at least 3 samples"):
    PARTITIONS["natural"](owners, 3, 0, min_samples=3)
  with pytest.raises(UserError, match="clients as the data have them: choose"):
    SHIFTS["own_test"](data, [np.arange(3), np.arange(3, 6)], None, 0)
  with pytest.raises(UserError, match="no test sample of these clients"):
    SHIFTS["own_test"](data, [np.array([6, 7])], None, 0)
  with pytest.raises(UserError, match="whose each test sample is"):
    SHIFTS["own_test"](load(saved(tmp_path, arrays())), parts, None, 0)


@pytest.mark.parametrize(
  ("more", "said"),
  [
    ({"client_train": np.zeros(12)}, r"client_train is float64\[12\]: give an"),
    ({"client_train": np.arange(5)}, r"client_train is int64\[5\]: give an"),
    ({"client_test": np.array(list("aabaz"))}, "has 'z', who has no sample in"),
  ],
)
def test_clients_that_cannot_be_used(tmp_path, more, said):
  with pytest.raises(UserError, match=said):
    load(saved(tmp_path, owned(**more)))
  held = owned()
  del held["client_train"]
  with pytest.raises(UserError, match="client_test and no client_train"):
    load(saved(tmp_path, held))


def test_a_run_on_hospitals(tmp_path):
  """Natural clients through a config; without them one clear line."""
  draft = tiny.tiny(own="local")
  rng = np.random.default_rng(0)
  held = {
    "x_train": rng.integers(0, 256, (60, 8, 8, 1), np.uint8),
    "y_train": np.arange(60) % 3,
    "x_test": rng.integers(0, 256, (18, 8, 8, 1), np.uint8),
    "y_test": np.arange(18) % 3,
    "client_train": np.arange(60) % 7,
    "client_test": np.arange(18) % 7,
  }
  draft.data.name = saved(tmp_path, held)
  draft.data.train_samples = draft.data.test_samples = None
  draft.data.partition = splitjax.spec(PARTITIONS, "natural", min_samples=2)
  draft.eval.shift, draft.eval.rhos = splitjax.spec(SHIFTS, "own_test"), None
  task = tasks.build(tiny.resolved(draft))
  assert sorted(map(len, task.test_sets.parts))[-1] == 9
  draft.data.name = "digits"
  with pytest.raises(UserError, match="natural: digits does not say whose"):
    tasks.build(tiny.resolved(draft))
