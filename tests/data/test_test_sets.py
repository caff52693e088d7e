"""Training rows and test sets of clients under every shift."""

import numpy as np
import pytest
from refusals import refused

from splitjax.data import SHIFTS, Dataset, id_ood_sets, main_classes, merged
from splitjax.registry import read_spec

CLASSES = 4
TRAIN = np.tile(np.arange(CLASSES, dtype=np.int32), 50)
TEST = np.repeat(np.arange(CLASSES, dtype=np.int32), 10)


def pictures(label, first):
  """Images [Z, 2, 2, 1] that carry their own number."""
  number = first + np.arange(len(label), dtype=np.uint8)
  return np.broadcast_to(number[:, None, None, None], (len(label), 2, 2, 1))


DATA = Dataset("x", 4, pictures(TRAIN, 0), TRAIN, pictures(TEST, 200), TEST)
# Client 0 holds classes 0 and 1, client 1 class 3 alone, client 2 everything.
PARTS = [
  np.flatnonzero(TRAIN < 2)[:40],
  np.flatnonzero(TRAIN == 3)[:24],
  np.flatnonzero(TRAIN < 4)[150:],
]


def make_sets(name, rhos=None, parts=PARTS, seed=3, data=DATA, **options):
  return SHIFTS[name](data, parts, rhos, seed, **options)


def listed(made, n, r):
  """The rows of client n's r-th set."""
  return made.rows[n, made.sets[r, n]].tolist()


def test_id_ood_is_the_masks_on_what_clients_are_shown():
  rhos = (0.0, 0.5, 1.0)
  made = make_sets("id_ood", rhos)
  main = main_classes(TRAIN, PARTS, CLASSES)
  masks = id_ood_sets(TEST, main, rhos, 3)
  assert made.names == ("0.0", "0.5", "1.0") and made.rhos == rhos
  assert made.pool == "test" and made.parts == PARTS
  # The widest set: client 0 has 20 ID samples and as many others; client 2
  # knows everything and sees its 40 ID samples.
  assert made.rows.shape == (3, 40) and made.rows.dtype == np.int32
  for n in range(3):
    for r in range(3):
      assert listed(made, n, r) == np.flatnonzero(masks[r, n]).tolist()
    real = made.rows[n][made.rows[n] >= 0]
    assert sorted(set(real)) == np.flatnonzero(masks[:, n].any(0)).tolist()
    shown = made.rows[n] >= 0
    np.testing.assert_array_equal(made.label[n, shown], TEST[real])
    np.testing.assert_array_equal(made.known[n, shown], main[n, TEST[real]])
  assert (made.rows[1] >= 0).sum() == 20  # ten of class 3, ten others
  assert not made.sets[:, 1, made.rows[1] < 0].any()


def test_a_client_whose_classes_are_not_tested_is_shown_nothing():
  data = DATA._replace(test_label=TEST[TEST < 2], test_image=DATA.test_image)
  made = make_sets("id_ood", (0.0,), [PARTS[1]], data=data)
  assert made.rows.tolist() == [[-1]] and not made.sets.any()


def test_global_is_the_whole_test_split():
  made = make_sets("global")
  assert made.names == ("global",) and made.rhos is None
  for n in range(3):
    assert listed(made, n, 0) == list(range(len(TEST)))
    np.testing.assert_array_equal(made.label[n], TEST)


def test_local_holds_a_quarter_out():
  made = make_sets("local")
  assert made.pool == "train" and made.names == ("local",)
  for n, part in enumerate(PARTS):
    held = listed(made, n, 0)
    assert len(held) == round(len(part) / 4)
    assert sorted([*held, *made.parts[n].tolist()]) == part.tolist()
    np.testing.assert_array_equal(
      made.label[n, made.sets[0, n]], TRAIN[made.rows[n, made.sets[0, n]]]
    )
  half = make_sets("local", train_fraction=0.5)
  assert [len(part) for part in half.parts] == [20, 12, 25]


def test_local_knows_what_it_trains_on_alone():
  # One sample of class 2 among 19 of class 0: where it is held out, the client
  # does not know class 2 any more.
  part = np.append(np.flatnonzero(TRAIN == 0)[:19], 2)
  seen = set()
  for seed in range(40):
    made = make_sets("local", parts=[part], seed=seed)
    assert made.main[0, 2] == (2 in made.parts[0])
    seen.add(bool(made.main[0, 2]))
  assert seen == {True, False}


def test_out_of_client_by_its_parts():
  made = make_sets("out_of_client")
  assert made.names == ("w/o drift", "w/ drift") and made.pool == "train"
  own = [set(listed(made, n, 0)) for n in range(3)]
  assert [len(rows) for rows in own] == [8, 5, 10]
  for n in range(3):
    assert own[n] <= set(PARTS[n].tolist())
    assert not own[n] & set(made.parts[n].tolist())
    others = set().union(*(own[m] for m in range(3) if m != n))
    drawn = listed(made, n, 1)
    assert len(drawn) == len(own[n]) and set(drawn) <= others
    # Training part, test part, and the validation part that nothing reads.
    rest = set(PARTS[n].tolist()) - own[n] - set(made.parts[n].tolist())
    assert len(rest) == pytest.approx(0.2 * len(PARTS[n]), abs=1)
  # What is drawn has repeats now and then, and depends on the seed.
  drifted = [
    listed(make_sets("out_of_client", seed=s), 2, 1) for s in range(20)
  ]
  assert any(len(set(rows)) < len(rows) for rows in drifted)
  assert len(set(map(tuple, drifted))) == 20


def test_every_other_client_is_drawn_from_in_proportion():
  count = np.zeros(3)
  for seed in range(200):
    made = make_sets("out_of_client", seed=seed)
    origin = [set(part.tolist()) for part in PARTS]
    for row in listed(made, 0, 1):
      count += [row in rows for rows in origin]
  # Client 1 has 5 test samples, client 2 has 10: 200 * 8 draws, one to two.
  assert count[0] == 0
  assert count[1] / count.sum() == pytest.approx(1 / 3, abs=0.04)


def test_merged_puts_the_test_split_behind():
  data = merged(DATA)
  assert len(data.train_label) == 240 and len(data.test_label) == 0
  np.testing.assert_array_equal(data.train_label[200:], TEST)
  assert data.train_image[200, 0, 0, 0] == 200
  made = make_sets("local", data=data, parts=[np.arange(150, 240)])
  assert max(listed(made, 0, 0)) >= 200
  for name in ("id_ood", "global"):
    with refused("eval.shift"):
      make_sets(name, data=data)


@pytest.mark.parametrize(
  ("name", "given", "field"),
  [
    ("global", {"rhos": (0.2,)}, "eval.rhos"),
    ("out_of_client", {"validation_fraction": 0.4}, "eval.shift"),
    ("out_of_client", {"parts": PARTS[:1]}, "num_clients"),
    ("local", {"parts": [np.array([4])]}, "num_clients"),
  ],
)
def test_bad_input_is_named(name, given, field):
  with refused(field):
    make_sets(name, **given)


def test_a_fraction_out_of_bounds_is_refused():
  given = {"name": "local", "train_fraction": 0.0}
  with refused("eval.shift.train_fraction"):
    read_spec(SHIFTS, given, "eval.shift")


@pytest.mark.parametrize("name", [x for x in SHIFTS if x != "own_test"])
def test_the_same_seed_gives_the_same_sets(name):
  one, two, other = (make_sets(name, seed=seed) for seed in (3, 3, 4))
  np.testing.assert_array_equal(one.rows, two.rows)
  np.testing.assert_array_equal(one.sets, two.sets)
  changed = not np.array_equal(one.rows, other.rows)
  drawn = name not in ("global", "covariate", "unseen_domain")
  assert changed == drawn
