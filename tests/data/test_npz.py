"""Arrays of a user's own: what is read, and every kind that is refused."""

import functools
import io
import zipfile

import numpy as np
import pytest
import tiny
from data_command import main
from refusals import refused

import splitjax
from splitjax import experiment
from splitjax.data import PARTITIONS, SOURCES, known, load


def arrays():
  rng = np.random.default_rng(0)
  return {
    "x_train": rng.integers(0, 256, (12, 8, 6, 3), np.uint8),
    "y_train": np.arange(12) % 3,
    "x_test": rng.integers(0, 256, (5, 8, 6, 3), np.uint8),
    "y_test": np.array([2, 0, 0, 1, 2]),
  }


def saved(tmp_path, changed):
  """A file of `arrays` with changes, those that are None left out; its name."""
  held = {**arrays(), **changed}
  held = {key: value for key, value in held.items() if value is not None}
  np.savez_compressed(tmp_path / "mine.npz", **held)
  return f"npz:{tmp_path / 'mine.npz'}"


def test_arrays_are_read_as_they_are(tmp_path, monkeypatch, capsys):
  held, name = arrays(), saved(tmp_path, {})
  data = load(name)
  assert data.name.startswith("npz:") and data.classes == 3
  assert data.note == ""
  for split in ("train", "test"):
    image, label = getattr(data, f"{split}_image"), f"{split}_label"
    np.testing.assert_array_equal(image, held[f"x_{split}"])
    np.testing.assert_array_equal(getattr(data, label), held[f"y_{split}"])
    assert getattr(data, label).dtype == np.int32
  part = load(name, train_samples=6, test_samples=3)
  assert np.bincount(part.train_label).tolist() == [2, 2, 2]
  assert part.test_image.shape == (3, 8, 6, 3)
  monkeypatch.setenv("HOME", str(tmp_path))
  assert load("npz:~/mine.npz").classes == 3
  monkeypatch.chdir(tmp_path)
  assert load("npz:mine.npz").classes == 3

  assert main(["check", name]) == 0
  train, test = capsys.readouterr().out.splitlines()
  said = "train: 12 samples 8x6x3, 4 to 4 per class: classes 0 to 2"
  assert train.endswith(said)
  assert test.endswith("5 samples 8x6x3, 1 to 2 per class: classes 0 to 2")
  assert main(["prepare", name]) == 0
  assert "your own arrays" in capsys.readouterr().out
  saved(tmp_path, {"y_test": np.full(5, 2)})
  assert main(["check", name]) == 0
  assert "0 to 5 per class, none of class 0, 1:" in capsys.readouterr().out
  saved(tmp_path, {"y_test": np.arange(5) - 1})
  assert main(["prepare", name]) == 2
  assert "y_test has a negative label" in capsys.readouterr().err


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
  data = load(saved(tmp_path, {"y_train": Y + 1, "y_test": Y[:5] + 1}))
  assert "No label is 0: subtract 1" in data.note and data.classes == 4


def test_known():
  assert known("npz:anywhere.npz") == "npz:anywhere.npz"
  for name in ("npz:", "mnst"):
    with refused("data.name"):
      known(name)
  with refused("data.name") as caught:
    known("cifr10")
  near = [name for name in SOURCES if name in str(caught.value)]
  assert "cifar10" in near and len(near) <= 4  # one may be part of another
  assert load("digits", classes=12).classes == 12
  with refused("data.classes"):
    load("digits", classes=9)


ZEROS = functools.partial(np.zeros, dtype=np.uint8)
X, Y = ZEROS((12, 8, 6, 3)), np.arange(12) % 3
NUMBERS = np.linspace(-3, 900, X.size).reshape(X.shape).astype("f4")
IDS = np.arange(84).reshape(12, 7) % 20
TARGET = np.linspace(25, 346, 12)
GREY = np.broadcast_to(np.arange(8, dtype=np.uint8)[:, None], (12, 8, 6))
RARE = np.unique(np.arange(25) * 7, return_inverse=True)[1][-12:]
OBJECTS = np.array(["a"] * 12, object)
REFUSED = [
  # Inputs.
  {"x_train": X > 0},
  {"x_train": X[:, 0, 0, 0]},
  {"x_train": X[:, :0]},
  {"x_train": X[:0], "y_train": Y[:0]},
  {"x_train": np.zeros((12, 3, 8, 9))},
  {"x_train": ZEROS((12, 1, 7, 1))},
  {"x_train": np.full((12, 5), np.nan)},
  {"x_train": IDS * 2**40},
  {"x_train": X},
  {"x_test": X[:0]},
  {"x_test": NUMBERS[:5]},
  {"x_test": X[:5, :, :5]},
  {"x_train": GREY},
  {"x_test": None},
  # Token ids, and how inputs are standardised.
  {"x_train": IDS / 2, "vocabulary": 20},
  {"x_train": IDS, "vocabulary": 19},
  {"x_train": IDS - 1, "vocabulary": 20},
  {"x_train": IDS, "vocabulary": 1},
  {"x_train": ZEROS((12, 1, 9, 5))},
  {"x_train": IDS, "vocabulary": 20.0},
  {"standardise": "pixel"},
  {"vocabulary": 20, "standardise": "channel"},
  # Labels.
  {"y_train": Y - 1},
  {"y_train": Y.astype("S1")},
  {"y_train": np.rint(TARGET)},
  {"y_train": TARGET},
  {"y_train": ZEROS((12, 8, 6))},
  {"y_train": np.eye(3)[Y]},
  {"y_train": TARGET.astype(int)},
  {"y_train": RARE},
  {"y_train": 0 * Y, "y_test": 0 * Y[:5]},
  {"y_train": OBJECTS},
  {"classes": 2},
  {"classes": 3.5},
]


def test_what_is_no_input_of_one_class_is_refused(tmp_path):
  for changed in REFUSED:
    name = saved(tmp_path, changed)
    with refused(f"data.name = '{name}'"):
      load(name)


@pytest.mark.parametrize(
  ("x", "more", "dtype", "kind", "note"),
  [
    (NUMBERS, {}, "f4", "arrays", "arrays 8x6x3 (float32), standardised per c"),
    (
      NUMBERS[..., 0],
      {"standardise": "none"},
      "f4",
      "series",
      "series of 8 steps and 6 channels (float32), not standardised",
    ),
    (
      NUMBERS[..., 0].astype("i2"),
      {"standardise": "feature"},
      "i2",
      "series",
      "series of 8 steps and 6 channels (int16), standardised per feature",
    ),
    (NUMBERS[:, 0, 0].astype(float), {}, "f4", "table", "a table of 3 feat"),
    (IDS, {}, "i4", "table", "a table of 7 features (int32), standardised"),
    (
      IDS.astype("u2"),
      {"vocabulary": 20},
      "u2",
      "token ids",
      "texts of 7 token ids below 20",
    ),
  ],
)
def test_inputs_keep_shape_and_dtype(x, more, dtype, kind, note, tmp_path):
  name = saved(tmp_path, {"x_train": x, "x_test": x[:5], **more})
  data = load(name)
  assert data.kind == kind and data.told.startswith(f"Inputs are {note}")
  assert data.train_image.dtype == np.dtype(dtype)
  np.testing.assert_allclose(data.train_image, x, rtol=1e-7)
  np.testing.assert_array_equal(data.test_image, data.train_image[:5])
  assert data.vocabulary == more.get("vocabulary", 0)


@pytest.mark.parametrize(
  ("changed", "config", "classes"),
  [
    ({"y_train": Y + 1}, None, 4),  # nobody has class 0
    ({"y_test": np.array([4, 0, 0, 1, 2])}, None, 5),  # of the test split alone
    ({"classes": np.array([7])}, None, 7),
    ({"classes": 7}, 9, 9),  # the config's count
    ({"y_train": TARGET.astype(int)}, 400, 400),  # classes, it says
    ({"more": np.array([{}], object)}, None, 3),  # nothing uses it
    ({"x_test": None, "y_test": None}, None, 3),
  ],
)
def test_classes_are_as_many_as_is_said(changed, config, classes, tmp_path):
  data = load(saved(tmp_path, changed), classes=config)
  assert data.classes == classes
  assert data.train_image.shape == X.shape
  tested = 0 if "x_test" in changed else 5
  assert len(data.test_image) == len(data.test_label) == tested


def test_a_class_that_nobody_trains_is_said(tmp_path):
  rng, y = np.random.default_rng(0), np.array([0, 1, 2, 4])
  held = {
    "x_train": rng.integers(0, 256, (96, 8, 8, 1), np.uint8),
    "y_train": y[np.arange(96) % 4],
    "x_test": rng.integers(0, 256, (20, 8, 8, 1), np.uint8),
    "y_test": np.arange(20) % 5,
  }
  draft = tiny.tiny(own="splitgp")
  draft.num_clients = 4
  draft.data.name = saved(tmp_path, held)
  draft.data.train_samples = draft.data.test_samples = None
  draft.data.partition = splitjax.spec(PARTITIONS, "dominant_label")
  task = experiment.build(tiny.resolved(draft))
  assert task.network.backbone.classes == 5
  assert "No client trains on class 3." in experiment.notes(task)
  # Its test samples are of nobody's classes.
  assert not task.test_sets.main[:, 3].any()


def test_files_that_are_something_else(tmp_path):
  with refused("data.name"):
    load(f"npz:{tmp_path}/absent.npz")
  with refused("data.name"):
    load(f"npz:{tmp_path}")
  name, path = saved(tmp_path, {}), tmp_path / "mine.npz"
  raw = path.read_bytes()
  doubled = io.BytesIO(raw)
  with zipfile.ZipFile(doubled, "a") as archive:
    archive.writestr("y_test", "text")  # found before y_test.npy
  one = io.BytesIO()
  np.save(one, np.zeros(3))
  for held in (b"", raw[:-30], doubled.getvalue(), one.getvalue()):
    path.write_bytes(held)
    with refused("data.name"):
      load(name)
