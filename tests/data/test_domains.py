"""Clients' domains, and test sets under drift: rows and pixels by hand."""

import numpy as np
import pytest
from refusals import refused

from splitjax import CORRUPTIONS, DOMAINS, SHIFTS
from splitjax.data import GROUPS, Dataset, assign, changed, described, load
from splitjax.registry import Spec, read_spec

TRAIN = np.tile(np.arange(3, dtype=np.int32), 10)
TEST = np.repeat(np.arange(3, dtype=np.int32), 4)
PARTS = [
  np.flatnonzero(TRAIN == 0),
  np.flatnonzero(TRAIN == 1)[:6],
  np.flatnonzero((TRAIN == 2) & (np.arange(30) > 10)),
]


def pictures(count, first):
  """Images [Z, 2, 3, 1] that carry their own number."""
  number = first + np.arange(count, dtype=np.uint8)
  return np.array(
    np.broadcast_to(number[:, None, None, None], (count, 2, 3, 1))
  )


DATA = Dataset("x", 3, pictures(30, 0), TRAIN, pictures(12, 60), TEST)


@pytest.fixture(autouse=True)
def add(monkeypatch):
  """Corruptions whose result is easy to say."""
  monkeypatch.setitem(CORRUPTIONS, "add", lambda image, s, key: image + 20 * s)
  monkeypatch.setitem(CORRUPTIONS, "double", lambda image, s, key: 2 * image)


def spec(name, **options):
  return read_spec(DOMAINS, {"name": name, **options}, "data.domain")


def built(domain, shift, data=DATA, parts=PARTS, seed=0, **options):
  """The data and test sets of a run with these domains and test sets."""
  named = assign(domain, data, parts, None, seed)
  made = SHIFTS[shift](data, parts, None, seed, **options)
  return changed(data, made._replace(domains=named), seed)


MIXED = spec("by_group", corruptions="none, add:1, double")


def test_samples_are_changed_once_by_their_clients_domain():
  data, made = built(MIXED, "global")
  want = DATA.train_image.astype(int)
  want[PARTS[1]] += 20
  want[PARTS[2]] *= 2  # the others, and what nobody has, stay
  np.testing.assert_array_equal(data.train_image, want)
  # All test images in each of three domains.
  assert len(data.test_image) == 36 and made.rows.shape == (3, 12)
  for n, want in enumerate((np.arange(60, 72), np.arange(80, 92))):
    np.testing.assert_array_equal(data.test_image[made.rows[n], 0, 0, 0], want)
  np.testing.assert_array_equal(
    data.test_image[made.rows[2], 0, 0, 0], 2 * np.arange(60, 72)
  )
  np.testing.assert_array_equal(data.test_label[made.rows[1]], TEST)
  assert DATA.train_image[PARTS[1][0], 0, 0, 0] == PARTS[1][0]  # untouched


def test_a_clients_severities_by_hand():
  data, made = built(MIXED, "covariate", corruptions="add, double")
  assert made.names == ("severity 0", *(f"severity {s}" for s in range(1, 6)))
  own = [lambda x: x, lambda x: x + 20, lambda x: 2 * x]
  for n, domain in enumerate(own):
    clean = domain(60 + np.flatnonzero(TEST == n))
    for s in range(6):
      rows = made.rows[n, made.sets[s, n]]
      each = [clean + 20 * s, 2 * clean] if s else [clean]
      want = np.minimum(np.concatenate(each), 255)
      np.testing.assert_array_equal(data.test_image[rows, 1, 2, 0], want)
      assert (data.test_label[rows] == n).all()
      assert (made.label[n, made.sets[s, n]] == n).all()
  assert made.known[made.sets.any(axis=0)].all() and made.looks


def test_samples_of_other_clients_stay_in_their_domain():
  parts = [PARTS[0], np.flatnonzero(TRAIN == 1)]
  domain = spec("by_group", corruptions="none, add:5")
  data, made = built(domain, "out_of_client", parts=parts)
  for n in range(2):
    rows = made.rows[n, made.sets[1, n]]
    other = 1 - n
    assert set(rows) <= set(parts[other]) - set(made.parts[other])
    found = data.train_image[rows, 0, 0, 0]
    np.testing.assert_array_equal(found, rows + 100 * other)


def test_nobody_trains_on_an_unseen_domain():
  shift = {"shift": "unseen_domain", "corruption": "add", "severity": 2}
  data, made = built(spec("by_group", corruptions="none, double"), **shift)
  assert made.names == ("own domain", "unseen domain")
  for n in range(3):
    clean = 60 + np.flatnonzero(TEST == n)
    seen, unseen = (
      data.test_image[made.rows[n, each[n]], 0, 0, 0] for each in made.sets
    )
    np.testing.assert_array_equal(seen, clean * (2 if n == 1 else 1))
    np.testing.assert_array_equal(unseen, clean + 40)
  with refused("eval.shift.corruption"):
    built(MIXED, **shift)
  # Images as they are can be the unseen ones.
  built(spec("drawn", corruptions="add, double"), "unseen_domain",
        corruption="none")  # fmt: skip
  with refused("eval.shift.corruption"):
    built(MIXED, "unseen_domain", corruption="none")


def test_without_domains_nothing_is_copied():
  data, made = built(Spec("none", {}), "global")
  assert data is DATA and made.rows.tolist() == [list(range(12))] * 3
  assert described(made, 0) == ([], [])
  # Test sets alone drift: training images, and their digest, stay.
  data, made = built(Spec("none", {}), "covariate", corruptions="add")
  assert data.train_image is DATA.train_image
  assert described(made, 0)[0] == []


def test_domains_are_dealt_evenly_and_by_the_seed():
  parts = [np.array([i]) for i in range(30)]
  choose = DOMAINS["drawn"]
  how = {"corruptions": "none, add:1, add:2, double", "severity": 4}
  found = choose(DATA, parts, None, 5, **how)
  counts = dict(zip(*np.unique(found, return_counts=True), strict=True))
  assert counts == {"none": 8, "add:1": 8, "add:2": 7, "double:4": 7}
  assert found == choose(DATA, parts, None, 5, **how)
  assert found != choose(DATA, parts, None, 6, **how)


def test_groups_are_those_of_the_partition():
  groups = GROUPS["dominant_label"](TRAIN, 7)
  found = DOMAINS["by_group"](
    DATA, [np.array([i]) for i in range(7)], groups, 0,
    corruptions="add, none, double",
  )  # fmt: skip
  assert found == [("add:3", "none", "double:3")[g] for g in groups]


def file(path, **more):
  """A file of three clients' images; returns its name in a config."""
  arrays = {
    "train_image": DATA.train_image, "train_label": TRAIN,
    "test_image": DATA.test_image, "test_label": TEST,
    "train_client": np.array(["Rome", "Oslo", "Bern"])[TRAIN],
    "test_client": np.array(["Rome", "Oslo", "Paris"])[TEST],
    "train_domain": np.array(["add:2", "none", "double:1"])[TRAIN],
  } | more  # fmt: skip
  kept = {key: array for key, array in arrays.items() if array is not None}
  np.savez(path / "mine.npz", **kept)
  return f"npz:{path}/mine.npz"


def test_the_data_name_domains(tmp_path):
  data = load(file(tmp_path), train_samples=20)
  assert data.client_names == ("Bern", "Oslo", "Paris", "Rome")
  assert data.domain_names == ("add:2", "double:1", "none")
  parts = [np.flatnonzero(data.train_client == n) for n in (0, 1, 3)]
  found, made = built(spec("from_data"), "own_test", data, parts)
  assert made.domains.clients == ("double:1", "none", "add:2")
  clean = data.train_image[parts[2]]
  np.testing.assert_array_equal(found.train_image[parts[2]], clean + 40)
  # Rome's own test images are in its domain, and keep their owner.
  rows = made.rows[2, made.sets[0, 2]]
  assert found.test_image[rows, 0, 0, 0].tolist() == [100, 101, 102, 103]
  assert (found.test_client[rows] == 3).all()


def test_a_files_domains_are_checked(tmp_path):
  with refused("data.name"):
    load(file(tmp_path, train_domain=np.array(["none"])))


SERIES = DATA._replace(
  train_image=np.zeros((30, 5, 2), np.float32),
  test_image=np.zeros((12, 5, 2), np.float32),
)

NAMED = DATA._replace(
  train_client=TRAIN,
  train_domain=TRAIN,
  domain_names=("add:1", "blurred", "none"),
)
UNTESTED = DATA._replace(test_image=DATA.test_image[:0], test_label=TEST[:0])
NONE = {"name": "none"}
TWO_UNSEEN = {"shift": "unseen_domain", "corruption": "add, double"}


@pytest.mark.parametrize(
  ("domain", "shift", "data", "field"),
  [
    ({"corruptions": "fog"}, {}, DATA, "data.domain.corruptions"),
    ({"corruptions": "saturate"}, {}, DATA, "data.domain"),
    ({}, {}, SERIES, "data.domain"),
    ({"name": "from_data"}, {}, DATA, "data.domain"),
    ({"name": "from_data"}, {}, NAMED, "train_domain"),
    (NONE, {"corruptions": "add"}, SERIES, "eval.shift.corruptions"),
    (NONE, {"corruptions": "add:2"}, DATA, "eval.shift.corruptions"),
    (NONE, {"corruptions": "saturate"}, DATA, "eval.shift.corruptions"),
    (NONE, TWO_UNSEEN, DATA, "eval.shift.corruption"),
    (NONE, {}, UNTESTED, "eval.shift"),
  ],
)
def test_what_does_not_fit_is_refused_in_one_line(domain, shift, data, field):
  with refused(field):
    built(
      spec(**{"name": "drawn", **domain}),
      **{"shift": "covariate", "data": data, **shift},
    )


def test_clients_that_mix_owners_have_no_domain_of_the_data():
  with refused("data.domain"):
    built(spec("from_data"), "global", NAMED, [np.arange(30)])


@pytest.mark.parametrize("given", [["none"], [0, 1, 2]])
def test_an_own_function_gives_every_client_a_domain(given, monkeypatch):
  monkeypatch.setitem(DOMAINS, "mine", lambda data, parts, groups, seed: given)
  with refused("data.domain"):
    built(spec("mine"), "global")
