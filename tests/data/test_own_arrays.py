"""Arrays of a user's own: what is read, and every kind that is refused."""

import itertools
import json
import pickle

import numpy as np
import pytest
import tiny
from refusals import refused

from splitjax import experiment
from splitjax.data import PARTITIONS, SHIFTS, load, merged

natural, own_test = PARTITIONS["natural"], SHIFTS["own_test"]
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (12, 8, 6, 3), np.uint8), np.arange(12) % 3
ARRAYS = {
  "train_image": X,
  "train_label": Y,
  "test_image": X[:5],
  "test_label": np.array([2, 0, 0, 1, 2]),
}
NAMED = {
  "train_client": np.array(list("bbaabbccbbaa")),
  "test_client": np.array(list("aabab")),
}


def changed(more):
  """The arrays with changes, those that are None left out."""
  held = {**ARRAYS, **more}
  return {key: value for key, value in held.items() if value is not None}


def saved(folder, more=(), **facts):
  """An npz file of the arrays with changes; its name in a config."""
  held = changed(dict(more))
  np.savez_compressed(folder / "mine.npz", allow_pickle=True, **held, **facts)
  return f"npz:{folder / 'mine.npz'}"


def in_folder(folder, more=(), **facts):
  """A folder of the arrays with changes; its name in a config."""
  for file in folder.glob("*.npy"):
    file.unlink()
  for key, array in changed(dict(more)).items():
    np.save(folder / f"{key}.npy", array)
  (folder / "facts.json").write_text(json.dumps(facts))
  return f"npz:{folder}"


@pytest.mark.parametrize("write", [saved, in_folder])
def test_arrays_are_read_as_they_are(write, tmp_path):
  name = write(tmp_path, {"extra": np.zeros(2)}, classes=7)
  data = load(name)
  assert data.name == name and data.classes == 7
  for key, array in ARRAYS.items():
    np.testing.assert_array_equal(getattr(data, key), array)
  assert data.train_label.dtype == np.int32
  assert isinstance(data.train_image, np.memmap) == (write is in_folder)
  part = load(name, train_samples=6, test_samples=3)
  assert np.bincount(part.train_label).tolist() == [2, 2, 2]
  assert part.test_image.shape == (3, 8, 6, 3)


@pytest.mark.parametrize("write", [saved, in_folder])
def test_classes_clients_and_domains_have_names(write, tmp_path):
  more = {
    "train_label": np.array(["dog", "cat", "emu"])[Y],
    "test_label": np.array(["emu", "dog", "dog", "cat", "emu"]),
    **NAMED,
    "train_domain": np.array(["rain", "sun"])[Y % 2],
  }
  data = load(write(tmp_path, more))
  assert data.class_names == ("cat", "dog", "emu") and data.classes == 3
  assert data.test_label.tolist() == [2, 1, 1, 0, 2]
  assert data.client_names == ("a", "b", "c")
  assert data.train_client.tolist() == [1, 1, 0, 0, 1, 1, 2, 2, 1, 1, 0, 0]
  assert data.test_client.tolist() == [0, 0, 1, 0, 1]
  assert data.domain_names == ("rain", "sun") and data.test_domain is None
  assert data.train_domain.tolist() == (Y % 2).tolist()
  # In the order of a list of names, and with classes that do not occur.
  names = ["emu", "dog", "cat", "fox"]
  data = load(write(tmp_path, more, classes=names))
  assert data.class_names == tuple(names)
  assert data.test_label.tolist() == [0, 1, 1, 2, 0]


NUMBERS = np.linspace(-3, 900, X.size).reshape(X.shape).astype("f4")
IDS = np.arange(84).reshape(12, 7) % 20


@pytest.mark.parametrize(
  ("x", "facts", "dtype", "kind"),
  [
    (NUMBERS, {}, "f4", "arrays"),
    (NUMBERS[..., 0].astype(">i2"), {}, "i2", "series"),
    (NUMBERS[:, 0, 0].astype(">f8"), {}, "f4", "table"),
    (IDS, {}, "i4", "table"),
    (IDS * 2**40, {}, "f4", "table"),
    (IDS.astype("u2"), {"vocabulary": 20}, "u2", "token ids"),
  ],
)
def test_inputs_keep_shape_and_kind(x, facts, dtype, kind, tmp_path):
  name = saved(tmp_path, {"train_image": x, "test_image": x[:5]}, **facts)
  data = load(name)
  assert data.kind == kind and data.train_image.shape == x.shape
  assert data.train_image.dtype == np.dtype(dtype)
  assert data.train_image.dtype.isnative
  np.testing.assert_allclose(data.train_image, x, rtol=1e-7)
  assert data.vocabulary == facts.get("vocabulary", 0)


def test_grey_images_get_an_axis_of_channels_and_repeats_are_counted(tmp_path):
  test = np.concatenate([X[:3, ..., 0], 255 - X[:2, ..., 0]])
  more = {"train_image": X[..., 0], "test_image": test}
  data = load(saved(tmp_path, more))
  assert data.train_image.shape == (12, 8, 6, 1)
  assert data.note.startswith("3 of 5 test samples")


def test_classes_are_as_many_as_is_said(tmp_path):
  for more, classes in (
    ({"train_label": Y + 1}, 4),  # nobody has class 0
    ({"test_label": np.array([4, 0, 0, 1, 2])}, 5),
    ({"train_label": 30 * Y, "classes": 61}, 61),
    ({"test_image": None, "test_label": None}, 3),
  ):
    data = load(saved(tmp_path, more))
    assert data.classes == classes
    assert len(data.test_label) == (0 if "test_image" in more else 5)


def table(column):
  """Inputs of which the second entry is `column`."""
  values = np.resize(np.asarray(column, float), 12)
  return {
    "train_image": np.stack([np.arange(12.0), values], 1),
    "test_image": np.stack([np.arange(5.0), values[:5]], 1),
  }


RAGGED = np.array([[1, 2], [3]] * 6, object)
WORDS = np.array([["goal", "team"], ["oil", "bank"]] * 6)
ONE = "entry 1 of the last axis"
REFUSED = [
  # Inputs, and the remedy.
  ({"train_image": RAGGED}, "pad series to one length"),
  ({"train_image": np.array([[1, None]] * 12)}, "fill what is None"),
  ({"train_image": WORDS}, "give words as token ids"),
  ({"train_image": X[:, 0, 0, 0]}, "tables as [Z, F]"),
  ({"train_image": X[:0], "train_label": Y[:0]}, "no training samples"),
  ({"train_image": X.transpose(0, 3, 1, 2)[..., :5]}, "(0, 2, 3, 1)"),
  ({"test_image": NUMBERS[:5]}, "make them alike"),
  ({"test_image": X[:4]}, "[5]: give each of 4"),
  ({"test_image": None}, "test_image is missing"),
  ({"train_image": None}, "write train_image, train_label"),
  # Tiny, huge and missing numbers.
  (table([0, np.nan]), f"{ONE} ranges from nan to nan: fill"),
  (table([0, 1e30]), f"{ONE} ranges from 0 to 1e+30: subtract"),
  (table([0, 1e-40]), f"{ONE} ranges from 0 to 1e-40: subtract"),
  (table([1.7e9, 1.7e9 + 50]), "subtract an offset"),
  # Token ids, and facts.
  ({"train_image": IDS, "vocabulary": 19}, "token ids 0 to 19"),
  ({"train_image": IDS - 1, "vocabulary": 20}, "token ids -1 to 18"),
  ({"vocabulary": 20.0}, "integer of 2 or more"),
  ({"classes": 2}, "state how many there are"),
  ({"classes": 10**9}, "give their number, 2 to 100000"),
  # Labels.
  ({"train_label": Y.astype(object)}, "np.array(names, str)"),
  ({"train_label": Y + 0.5}, "there is no regression"),
  ({"train_label": np.eye(3)[Y]}, "of one-hot rows give the argmax"),
  ({"train_label": Y[:, None]}, "samples an integer"),
  ({"train_label": 0 * Y, "test_label": Y[:5] * 0}, "classes is 1"),
  ({"train_label": Y.astype(str)}, "both splits alike"),
  # Names.
  ({"train_client": np.zeros(12)}, "an integer from 0 on, or a name"),
  ({"test_client": Y[:5]}, "give that of the training samples"),
  ({**NAMED, "test_client": Y[:5]}, "both splits alike"),
  ({"train_client": np.array(["Oslo", "oslo "])[Y % 2]}, "but spaces, case"),
  ({"train_client": np.array(["\u00e5", "a\u030a"])[Y % 2]}, "of accents"),
  ({"train_client": np.array(["a", " "])[Y % 2]}, "are empty"),
  ({"train_label": np.array(["A", "a"])[Y % 2],
    "test_label": np.array(["A"] * 5)}, "label names: 'A' and 'a'"),
  ({"classes": ("a", "b", "c\rd")}, "has a control character"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "remedy"), REFUSED)
def test_what_no_network_takes_is_refused_with_a_remedy(more, remedy, tmp_path):
  name = saved(tmp_path, more)
  with refused(f"data.name = '{name}'") as error:
    load(name)
  assert remedy in str(error.value)


def test_wrong_facts_are_refused(tmp_path):
  name = in_folder(tmp_path, {"train_client": Y % 2})
  facts = {"classes": ["a", "b"]}, {"classes": "abc"}, {"clases": 3}, [3]
  for content in facts:
    (tmp_path / "facts.json").write_text(json.dumps(content))
    with refused(f"data.name = '{name}'"):
      load(name)


def test_files_that_are_something_else(tmp_path):
  path = tmp_path / "mine.npz"
  name = saved(tmp_path)
  raw = path.read_bytes()
  for content in (b"", raw[:-30], pickle.dumps(np.array([{}], object))):
    path.write_bytes(content)
    with refused(f"data.name = '{name}'"):
      load(name)
  for wrong in (tmp_path / "absent.npz", tmp_path / "a\nb"):
    with refused("data.name"):
      load(f"npz:{wrong}")
  name = in_folder(tmp_path)
  path = tmp_path / "train_image.npy"
  raw = path.read_bytes()
  for damaged in (raw[:-1], raw[:60], b""):
    path.write_bytes(damaged)
    with refused(f"data.name = '{name}': {path} cannot"):
      load(name)


def test_a_class_that_nobody_trains_is_named(tmp_path):
  names = {
    "train_label": np.array(["ant", "bee", "cow"])[Y],
    "test_label": np.array(["bee", "ant", "dog", "cow", "ant"]),
  }
  draft = tiny.changed(
    tiny.tiny(own="splitgp"),
    num_clients=2,
    data__name=saved(tmp_path, names),
    data__train_samples=None,
    data__test_samples=None,
    data__partition="iid",
  )
  task = experiment.build(tiny.resolved(draft))
  assert task.network.class_names == ("ant", "bee", "cow", "dog")
  assert "No client trains on class dog." in experiment.notes(task)


def test_clients_of_the_data_and_their_own_test_samples(tmp_path):
  data = load(saved(tmp_path, NAMED))
  both = merged(data)
  assert both.train_client.tolist() == [*data.train_client, *data.test_client]
  parts = natural(data.train_client, 3, 0)
  shown = own_test(data, parts, None, 0)
  assert shown.names == ("own",) and shown.pool == "test"
  for n in range(3):  # the owners in ascending order
    own = np.flatnonzero(data.test_client == n)
    assert shown.rows[n, shown.sets[0, n]].tolist() == own.tolist()
  without = load(saved(tmp_path))
  for wrong in (
    (data, [np.arange(3), np.arange(3, 6)]),  # of several owners
    (data, [np.array([6, 7])]),  # c, which is not tested
    (without, parts),
  ):
    with refused("eval.shift"):
      own_test(*wrong, None, 0)
  # Without a test split.
  more = {"test_image": None, "test_label": None, "test_client": None}
  data = load(saved(tmp_path, {**NAMED, **more}))
  assert merged(data) is data
  assert SHIFTS["local"](data, parts, None, 0).pool == "train"
  for shift in ("id_ood", "global", "own_test"):
    with refused("eval.shift"):
      SHIFTS[shift](data, parts, None, 0)


def test_client_n_is_the_nth_owner(tmp_path):
  """For every seed; of fewer clients the chosen are in the same order."""
  tables = [
    ([f"{c}\u00e5" for c in "bbaabbccbbaa"], ["a\u00e5", "b\u00e5", "c\u00e5"]),
    ([10, 10, 9, 9, 10, 10, 100, 100, 10, 10, 9, 9], ["9", "10", "100"]),
  ]
  rows = [[2, 3, 10, 11], [0, 1, 4, 5, 8, 9], [6, 7]]
  for train, names in tables:
    data = load(saved(tmp_path, {"train_client": np.array(train)}))
    pairs = set()
    for seed in range(20):
      parts = natural(data.train_client, 3, seed)
      assert [p.tolist() for p in parts] == rows
      assert [data.client_names[n] for n in data.owners(parts)] == names
      two = data.owners(natural(data.train_client, 2, seed))
      pairs.add(tuple(data.client_names[n] for n in two))
    assert pairs == set(itertools.combinations(names, 2))
    # Whoever has a sample of several owners has no name.
    assert data.owners([np.arange(4), np.arange(4, 12)]) is None
