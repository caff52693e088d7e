"""Arrays of a user's own, and every way in which they cannot be used."""

import functools
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
  npz,
  partition_util,
  sources,
  test_part,
)
from splitjax.experiment.setup import data_summary, tasks
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


ZEROS = functools.partial(np.zeros, dtype=np.uint8)
X, Y = ZEROS((12, 8, 6, 3)), np.arange(12) % 3
NUMBERS = np.linspace(-3, 900, X.size).reshape(X.shape).astype("f4")
WRONG = [
  (
    {"x_train": NUMBERS},
    "x_test has samples uint8 and x_train float32: make them",
  ),
  (
    {"x_test": NUMBERS[:5]},
    "x_test has samples float32 and x_train uint8: make",
  ),
  ({"x_train": X.astype("i8") - 1}, "x_train has the one value -1 everywhere"),
  (
    {"x_train": X.astype("U1")},
    r"x_train is <U1 \[12, 8, .*: give images as u",
  ),
  (
    {"x_train": X[:, 0, 0, 0]},
    r"x_train is uint8 \[12\]: give images as uint8",
  ),
  ({"x_train": X[:, :0]}, r"x_train is of shape \[12, 0, .* no empty axis"),
  ({"x_train": X[:0], "y_train": Y[:0]}, r"of shape \[0, 8.* no empty axis"),
  ({"x_test": X[:0]}, "x_test has 0 samples and y_test 5 labels"),
  (
    {"x_train": np.zeros((12, 3, 8, 8), np.uint8)},
    r"x_train is of shape \[12, 3, 8, 8\], channels first: transpose images",
  ),
  (
    {"x_train": np.zeros((12, 3, 8, 9), np.uint8)},
    r"x_train is of shape \[12, 3, 8, 9\], channels first: transpose images",
  ),
  (
    {"x_test": np.zeros((12, 1, 9, 5), np.uint8)},
    r"x_test is of shape \[12, 1, 9, 5\], channels first: transpose images",
  ),
  (
    {"x_test": X[:5, :, :5]},
    r"x_test has samples \[8, 5, 3\] and x_train \[8, 6, 3\]: make them alike",
  ),
  ({"y_train": Y[:-1]}, "x_train has 12 samples and y_train 11 labels: give"),
  ({"y_train": Y - 1}, "y_train has a negative label, -1: leave samples with"),
  ({"y_train": Y * 3 - 3}, "y_train has a negative label, -3: .* no regress"),
  ({"y_test": Y[:5] - 1}, "y_test has a negative label, -1: leave samples"),
  ({"x_test": None}, "lacks x_test, found x_train, y_train, y_test"),
  ({"y_train": None}, "lacks y_train, found x_train, x_test, y_test"),
  (
    {"y_test": np.array(["a"] * 5, object)},
    r"y_test holds Python objects, .* write np.array\(y_test.tolist\(\)\)",
  ),
  (
    {"client_train": np.array(["a"] * 12, object)},
    r"client_train holds Python .*: write np.array\(client_train.tolist\(\)\)",
  ),
  ({"classes": 2}, "has a label 2 and 2 classes .data.classes, or classes in"),
  ({"classes": np.arange(3)}, r"classes is int64\[3\]: give their number, one"),
  ({"classes": 3.5}, r"classes is float64\[\]: give their number, one integer"),
  (
    {"y_train": 0 * Y, "y_test": 0 * Y[:5]},
    "all labels are 0: give samples of",
  ),
  (
    {"x_train": X > 0},
    r"x_train is bool \[12, 8, 6, 3\]: give images as uint8",
  ),
  ({"x_train": X}, "x_train has the one value 0 everywhere: multiply pix"),
  (
    {"x_train": X[..., 0] + np.arange(8, dtype=np.uint8)[:, None]},
    r"x_train \[8, 6, 1\] .x_train without a channel axis: read as grey",
  ),
  ({"y_train": Y.astype("S1")}, r"y_train is .S1: number .*return_inverse"),
]
# Inputs of no kind that networks take.
IDS = np.arange(84).reshape(12, 7) % 20
NO_INPUTS = [
  ({"x_train": np.full(12, "a text")}, r"is <U6 \[12\]: give images as"),
  ({"x_train": NUMBERS.astype(complex)}, "is complex128 .*: give images as"),
  ({"x_train": np.full((12, 5), np.nan)}, "has NaN or infinite numbers: fill"),
  ({"x_train": np.full((12, 5), np.inf)}, "has NaN or infinite numbers"),
  ({"x_train": IDS * 2**40}, "is int64, from 0 to .*, which int32 does not"),
  ({"x_train": ZEROS((12, 1, 128, 9))}, "channels first: transpose images"),
  ({"x_train": NUMBERS.transpose(0, 3, 1, 2)[:, :, :6]}, "channels first: tr"),
  ({"x_train": ZEROS((12, 128, 1, 9))}, "one pixel high or wide: give series"),
  ({"x_train": ZEROS((12, 1, 7, 1))}, "one pixel high or wide: give series"),
  ({"x_train": ZEROS((12, 7, 1))}, "one pixel high or wide: give series"),
  ({"vocabulary": 20}, r"uint8 \[12, .*: with vocabulary=20 it must be token"),
  ({"x_train": IDS / 2, "vocabulary": 20}, "float64 .*: with vocabulary=20 it"),
  ({"x_train": IDS, "vocabulary": 19}, "token ids 0 to 19: number them 0 to"),
  ({"x_train": IDS - 1, "vocabulary": 20}, "token ids -1 to 18: number them 0"),
  ({"x_train": IDS, "vocabulary": 20.0}, r"vocabulary is float64\[\]: give th"),
  ({"x_train": IDS, "vocabulary": 1}, r"vocabulary is int64\[\]: give the num"),
  (
    {"standardise": "pixel"},
    "standardise is pixel: give one of channel, fe",
  ),
  ({"standardise": 3}, "standardise is 3: give one of channel, feature, n"),
  (
    {"x_train": IDS, "vocabulary": 20, "standardise": "channel"},
    "standardise is channel, and vocabulary says that the inputs are token ids",
  ),
]
TARGET = np.linspace(25, 346, 12)
NO_CLASSES = [
  ({"y_train": TARGET}, "y_train is float64"),
  ({"y_train": np.rint(TARGET)}, "is float64: cast numbers of classes to int"),
  (
    {"y_train": TARGET.astype(int)},
    r"up to 346, of which \d+ occur: .*np.unique",
  ),
  ({"y_train": 1000 * Y}, r"up to \d+, of which .* occur: .*np.concatenate"),
  (
    {"y_train": np.unique(np.arange(25) * 7, return_inverse=True)[1][-12:]},
    "up to 24, of which .* in 12 training samples",
  ),
  ({"y_test": np.array([0, 1, 2, 3, 90])}, "labels up to 90"),
  ({"y_train": np.ones((12, 3), int)}, r"is of shape \[12, 3\]"),
  ({"y_train": np.ones((12, 3)) / 3}, r"is of shape \[12, 3\]"),
  ({"y_train": ZEROS((12, 8, 6))}, r"is of shape \[12, 8, 6\]"),
  ({"y_train": Y.astype("M8[D]")}, "is datetime64"),
]


@pytest.mark.parametrize(
  ("changed", "found", "told"),
  [(*case, "") for case in NO_INPUTS]
  + [(*case, npz.ONLY_CLASSES) for case in NO_CLASSES],
)
def test_what_is_no_input_of_one_class_is_refused(
  changed, found, told, tmp_path
):
  with pytest.raises(UserError, match=found) as error:
    load(saved(tmp_path, {**arrays(), **changed}))
  line = str(error.value)
  assert told in line and "\n" not in line
  for advice in ("reshape it", "bring it", "number the classes"):
    assert advice not in line


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
      {},
      "i2",
      "series",
      "series of 8 steps and 6 channels (int16), standardised per channel",
    ),
    (
      NUMBERS[:, 0, 0].astype(float),
      {},
      "f4",
      "table",
      "a table of 3 features (float32), standardised per feature",
    ),
    (IDS, {}, "i4", "table", "a table of 7 features (int32), standardised"),
    (
      IDS.astype("u1"),
      {},
      "u1",
      "table",
      "a table of 7 features (uint8), stan",
    ),
    (
      NUMBERS[..., 0],
      {"standardise": "feature"},
      "f4",
      "series",
      "series of 8 steps and 6 channels (float32), standardised per feature",
    ),
    (
      IDS.astype("u2"),
      {"vocabulary": 20},
      "u2",
      "token ids",
      "texts of 7 token ids below 20",
    ),
    (
      IDS.astype("u1")[..., None],
      {"vocabulary": 20},
      None,
      "",
      "with vocabulary=20 it must be token ids",
    ),
  ],
)
def test_inputs_keep_shape_and_dtype(x, more, dtype, kind, note, tmp_path):
  name = saved(tmp_path, {**arrays(), "x_train": x, "x_test": x[:5], **more})
  if dtype is None:
    with pytest.raises(UserError, match=note):
      load(name)
    return
  data = load(name, mapped=True)
  assert data.kind == kind and data.told.startswith(f"Inputs are {note}")
  assert data.train_image.dtype == np.dtype(dtype)
  np.testing.assert_allclose(data.train_image, x, rtol=1e-7)
  np.testing.assert_array_equal(data.test_image, data.train_image[:5])
  assert data.vocabulary == more.get("vocabulary", 0)


def test_one_hot_rows_are_told_apart_from_several_labels(tmp_path):
  for kind in (int, "f4", bool):
    held = {**arrays(), "y_train": np.eye(3)[Y].astype(kind)}
    with pytest.raises(UserError, match="take the argmax of its one-hot rows"):
      load(saved(tmp_path, held))


@pytest.mark.parametrize(
  ("changed", "config", "classes"),
  [
    ({}, None, 3),
    ({"y_train": Y + 1}, None, 4),  # nobody has class 0
    ({"y_train": Y * 2}, None, 5),
    ({"y_test": np.array([4, 0, 0, 1, 2])}, None, 5),  # of the test split alone
    ({"classes": 7}, None, 7),
    ({"classes": np.array([7])}, 9, 9),  # the config's count
    ({"y_train": TARGET.astype(int)}, 400, 400),  # classes, it says
    ({"more": np.array([{}], object)}, None, 3),  # nothing uses it
    ({"x_test": None, "y_test": None}, None, 3),
  ],
)
def test_classes_are_as_many_as_is_said(changed, config, classes, tmp_path):
  held = {**arrays(), **changed}
  held = {key: value for key, value in held.items() if value is not None}
  data = load(saved(tmp_path, held), classes=config)
  assert data.classes == classes
  assert data.train_image.shape == X.shape
  assert len(data.test_image) == len(data.test_label) == 5 * ("x_test" in held)


DEALT = {
  "iid": {},
  "shard": {"k": 2, "num_shards": 12},
  "dirichlet": {"alpha": 5.0},
  "pathological": {"k": 2},
  "dominant_label": {},
  "custom_shard": {},
}


@pytest.mark.parametrize("partition", DEALT)
def test_a_class_that_nobody_trains_is_said(partition, tmp_path):
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
  draft.data.partition = splitjax.spec(
    PARTITIONS, partition, **DEALT[partition]
  )
  task = tasks.build(tiny.resolved(draft))
  assert task.network.backbone.classes == 5
  assert "No client trains on class 3." in data_summary.notes(task)
  # Its test samples are of nobody's classes.
  assert not task.test_sets.main[:, 3].any()


def test_a_file_without_a_test_split(tmp_path):
  held = {k: v for k, v in owned().items() if k not in ("x_test", "y_test")}
  del held["client_test"]
  name = saved(tmp_path, held)
  data = load(name)
  assert partition_util.merged(data).train_client is data.train_client
  parts = PARTITIONS["natural"](data.train_client, 2, 0, min_samples=3)
  shown = SHIFTS["local"](data, parts, None, 0)
  assert shown.pool == "train"
  for shift in ("id_ood", "global"):
    with pytest.raises(UserError, match=r"no test split .x_test of npz:PATH"):
      SHIFTS[shift](data, parts, None, 0)
  with pytest.raises(UserError, match="no test sample of these clients"):
    SHIFTS["own_test"](data, parts, None, 0)
  assert __main__.main(["check", name]) == 0


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
  both = partition_util.merged(data)
  assert both.train_client.tolist() == [*data.train_client, *data.test_client]

  # Texts of bytes are texts.
  byte = {k: v.astype("S1") for k, v in owned().items() if "client" in k}
  again = load(saved(tmp_path, owned(**byte)))
  np.testing.assert_array_equal(again.train_client, data.train_client)
  np.testing.assert_array_equal(again.test_client, data.test_client)

  # Each client's own test samples.
  owners = data.train_client
  parts = PARTITIONS["natural"](owners, 3, 0)
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
  with pytest.raises(UserError, match="name each test sample's client"):
    SHIFTS["own_test"](load(saved(tmp_path, arrays())), parts, None, 0)


@pytest.mark.parametrize(
  ("more", "said"),
  [
    ({"client_train": np.zeros(12)}, r"client_train is float64\[12\]: give an"),
    ({"client_train": np.arange(5)}, r"client_train is int64\[5\]: give an"),
    ({"client_test": np.arange(5)}, "one .* has numbers, the other texts: wri"),
  ],
)
def test_clients_that_cannot_be_used(tmp_path, more, said):
  with pytest.raises(UserError, match=said):
    load(saved(tmp_path, owned(**more)))
  held = owned()
  del held["client_train"]
  with pytest.raises(UserError, match="client_test and no client_train"):
    load(saved(tmp_path, held))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
  ("train", "names"),
  [
    (list("bbaabbccbbaa"), ["a", "b", "c"]),
    ([f"{c}\u00e5" for c in "bbaabbccbbaa"], ["a\u00e5", "b\u00e5", "c\u00e5"]),
    ([10, 10, 9, 9, 10, 10, 100, 100, 10, 10, 9, 9], ["9", "10", "100"]),
    ([0, 0, -1, -1, 0, 0, 7, 7, 0, 0, -1, -1], ["-1", "0", "7"]),
  ],
)
def test_client_n_is_the_nth_owner(tmp_path, train, names, seed):
  """For every seed; of fewer clients the chosen are in the same order."""
  held = owned(client_train=np.array(train))
  del held["client_test"]
  data = load(saved(tmp_path, held))
  natural, rows = PARTITIONS["natural"], [[2, 3, 10, 11], [0, 1, 4, 5, 8, 9]]
  parts = natural(data.train_client, 3, seed)
  assert [p.tolist() for p in parts] == [*rows, [6, 7]]
  assert partition_util.owner_names(data, natural, parts) == names
  two = natural(data.train_client, 2, seed, min_samples=3)
  assert [p.tolist() for p in two] == rows
  two = natural(data.train_client, 2, seed)
  assert partition_util.owner_names(data, natural, two) in (
    names[:2], names[1:], names[::2],
  )  # fmt: skip
  # Whoever has a sample of several owners has no name.
  mixed = [np.arange(4), np.arange(4, 12)]
  assert partition_util.owner_names(data, natural, mixed) == []
  assert partition_util.owner_names(data, PARTITIONS["iid"], parts) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
  ("test", "count", "new", "drawn"),
  [
    ("aabab", 3, "", [0, 0, 0]),  # all of them train
    ("aabaz", 3, "z", [1, 1, 0]),  # z does not, c has no test sample
    ("azzzz", 3, "z", [1, 0, 0]),  # as many as a client's own
    ("aaaaz", 3, "z", [1, 0, 0]),  # or all
    ("aaccb", 2, "c", [2, 1]),  # of those that are not chosen
  ],
)
def test_owners_that_do_not_train_are_new_clients(
  tmp_path, test, count, new, drawn, seed
):
  data = load(saved(tmp_path, owned(client_test=np.array(list(test)))))
  least = 3 if count == 2 else 1  # leaves c out for every seed
  parts = PARTITIONS["natural"](
    data.train_client, count, seed, min_samples=least
  )
  shown = SHIFTS["own_test"](data, parts, None, seed)
  held = np.array(list(test))[shown.rows]
  for n, name in enumerate("abc"[:count]):
    own = shown.sets[0, n]
    assert (held[n][own] == name).all() and own.sum() == test.count(name)
  # In no test set, so that no other result changes.
  assert shown.names == ("own",)
  assert (held[shown.new] == new).all()
  assert shown.new.sum(axis=1).tolist() == drawn
  again = test_part.in_random_order(shown, seed)
  own = again.sets[0].sum(axis=1)
  for n, count in enumerate(own):
    assert again.sets[0, n, :count].all()
    assert again.new[n, count : count + drawn[n]].all()


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
  data = task.data
  assert sorted(map(len, task.test_sets.parts))[-1] == 9
  first = [int(data.train_client[p[0]]) for p in task.test_sets.parts]
  assert task.network.names == (*map(str, sorted(first)),) and len(first) == 6
  draft.data.dealt = "by_depth"
  with pytest.raises(UserError, match="by_depth: natural gives client n the n"):
    tasks.build(tiny.resolved(draft))
  draft.data.dealt = "any"
  draft.data.name = "digits"
  with pytest.raises(UserError, match="does not name its samples' clients"):
    tasks.build(tiny.resolved(draft))


def test_prepare_checks_the_file(tmp_path, capsys):
  name = saved(tmp_path, {**arrays(), "y_test": np.arange(5) - 1})
  assert __main__.main(["prepare", name]) == 2
  assert "y_test has a negative label" in capsys.readouterr().err


def test_check_counts_the_classes_that_do_not_occur(tmp_path, capsys):
  name = saved(tmp_path, {**arrays(), "y_test": np.array([2, 2, 2, 2, 2])})
  assert __main__.main(["check", name]) == 0
  train, test = capsys.readouterr().out.splitlines()
  assert "4 to 4 per class: classes" in train
  assert "0 to 5 per class, none of class 0, 1: classes 0 to 2" in test


def test_known_data_may_have_more_classes_and_not_fewer():
  assert load("digits", classes=12).classes == 12
  with pytest.raises(UserError, match="data.classes = 9: digits has 10; set"):
    load("digits", classes=9)


def test_a_part_of_it(tmp_path):
  data = load(saved(tmp_path, arrays()), train_samples=6, test_samples=3)
  assert np.bincount(data.train_label).tolist() == [2, 2, 2]
  assert data.test_image.shape == (3, 8, 6, 3)
