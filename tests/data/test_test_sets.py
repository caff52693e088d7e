"""Training rows and test sets of clients under every shift."""

import hashlib

import numpy as np
import pytest
from refusals import refused

from splitjax.data import (
  SHIFTS,
  Dataset,
  id_ood_sets,
  main_classes,
  merged,
  realised_rho,
)

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
  # knows everything and sees its 40 ID samples; client 1 is shown ten and ten.
  assert made.rows.shape == (3, 40) and made.rows.dtype == np.int32
  assert (made.rows >= 0).sum(axis=1).tolist() == [40, 20, 40]
  for n in range(3):
    for r in range(3):
      assert listed(made, n, r) == np.flatnonzero(masks[r, n]).tolist()
    shown = made.rows[n] >= 0
    real = made.rows[n, shown]
    np.testing.assert_array_equal(made.label[n, shown], TEST[real])
    np.testing.assert_array_equal(made.known[n, shown], main[n, TEST[real]])


def test_a_client_whose_classes_are_not_tested_is_shown_nothing():
  data = DATA._replace(test_label=TEST[TEST < 2])
  made = make_sets("id_ood", (0.0,), [PARTS[1]], data=data)
  assert made.rows.tolist() == [[-1]] and not made.sets.any()


def test_global_is_the_whole_test_split():
  made = make_sets("global")
  assert made.names == ("global",) and made.rhos is None
  for n in range(3):
    assert listed(made, n, 0) == list(range(len(TEST)))
    assert made.label[n].tolist() == TEST.tolist()


def test_local_holds_a_quarter_out():
  made = make_sets("local")
  assert made.pool == "train" and made.names == ("local",)
  for n, part in enumerate(PARTS):
    held = listed(made, n, 0)
    assert len(held) == round(len(part) / 4)
    assert sorted([*held, *made.parts[n].tolist()]) == part.tolist()
    assert made.label[n, made.sets[0, n]].tolist() == TRAIN[held].tolist()


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
    others = set().union(*(own[m] for m in range(3) if m != n))
    drawn = listed(made, n, 1)
    assert len(drawn) == len(own[n]) and set(drawn) <= others
    three = [*own[n], *made.parts[n], *made.validation[n]]
    assert sorted(three) == PARTS[n].tolist()
  # What is drawn has repeats now and then, and depends on the seed.
  seeds = range(20)
  drifted = [listed(make_sets("out_of_client", seed=s), 2, 1) for s in seeds]
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


def test_bad_input_is_named():
  with refused("num_clients"):
    make_sets("out_of_client", parts=PARTS[:1])
  with refused("num_clients"):
    make_sets("local", parts=[np.array([4])])
  with refused("eval.shift"):
    make_sets("by_domain")


def test_the_same_sets_on_every_machine():
  want = {
    "id_ood": "f5e2f86093e8",
    "global": "b36a5bfc2d4b",
    "local": "11b0903bf360",
    "out_of_client": "0e7c43e09017",
  }
  for name, digest in want.items():
    made = make_sets(name)
    rows = [*made.parts, made.rows.ravel(), np.flatnonzero(made.sets)]
    flat = np.concatenate(rows).astype("<i8")
    assert hashlib.sha256(flat.tobytes()).hexdigest()[:12] == digest


# Photographs by day (0) and night (1): client 0 has classes 0 and 1 by day,
# client 1 class 3 by night, client 2 all classes by day and night.
ROW = np.arange(200)
CITIES = [
  np.flatnonzero((ROW < 100) & (TRAIN < 2)),
  np.flatnonzero((ROW < 100) & (TRAIN == 3)),
  np.arange(100, 200),
]
NIGHT = np.where(ROW < 100, TRAIN == 3, ROW % 3 == 0).astype(np.int32)
TEST_NIGHT = np.arange(40, dtype=np.int32) % 2
PHOTOS = DATA._replace(
  train_domain=NIGHT, test_domain=TEST_NIGHT, domain_names=("day", "night")
)


def test_a_set_for_each_domain_of_a_clients_classes():
  made = make_sets("by_domain", parts=CITIES, data=PHOTOS)
  assert made.names == ("own domain", "day", "night") and made.pool == "test"
  of_client = [TEST < 2, TEST == 3, TEST < 4]
  trained = [TEST_NIGHT == 0, TEST_NIGHT == 1, TEST_NIGHT < 2]
  for n, (classes, domains) in enumerate(zip(of_client, trained, strict=True)):
    for r, within in enumerate((domains, TEST_NIGHT == 0, TEST_NIGHT == 1)):
      want = np.flatnonzero(classes & within).tolist()
      assert listed(made, n, r) == want
  assert made.known[made.sets.any(axis=0)].all()
  # Where all train in the same domains, their own are no set.
  plain = make_sets("by_domain", data=PHOTOS, parts=[CITIES[2]] * 2)
  assert plain.names == ("day", "night")


# Eight test samples of four classes.
LABEL = np.array([0, 1, 2, 3, 0, 1, 2, 3])
# Client 0 knows classes 0 and 1, client 1 only class 3, client 2 all of them.
MAIN = np.array([[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]], bool)


def test_mixtures_by_hand():
  # Client 0 has four ID samples, rows 0 1 4 5. rho 0.5: 2 OOD, one of class 2
  # (rows 2 6) and one of class 3 (rows 3 7); rho 1.0: 4, all there is. Client 1
  # has two, rows 3 7. rho 0.5: one of classes 0 1 2; rho 1.0: 2, of two
  # classes. To client 2 everything is ID.
  none, half, full = sets = id_ood_sets(LABEL, MAIN, [0.0, 0.5, 1.0], seed=0)
  np.testing.assert_array_equal(none, MAIN[:, LABEL])
  assert half[0, [0, 1, 4, 5]].all()
  assert half[0, [2, 6]].sum() == 1 and half[0, [3, 7]].sum() == 1
  assert full[0].all()
  assert half[1, [3, 7]].all() and half[1].sum() == 3
  drawn = LABEL[full[1] & ~MAIN[1, LABEL]]
  assert len(drawn) == 2 and len(set(drawn)) == 2
  assert sets[:, 2].all()
  np.testing.assert_allclose(
    realised_rho(sets, MAIN[:, LABEL]),
    [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 1.0, 0.0]],
  )
  # Numbers are rounded: 0.1 * 4 = 0.4 -> 0, 0.4 * 4 = 1.6 -> 2.
  sets = id_ood_sets(LABEL, MAIN[:1], [0.1, 0.4], seed=0)
  assert sets.sum(axis=-1).tolist() == [[4], [6]]


def test_the_others_fill_in_for_an_exhausted_class():
  # ID: six of class 0. OOD: one of class 1, two of class 2, five of class 3.
  # Turn by turn: 1 2 3 | 2 3 | 3 | 3 | 3, so after 3, 5 and 6 samples the
  # classes have given (1, 1, 1), (1, 2, 2) and (1, 2, 3).
  label = np.repeat([0, 1, 2, 3], [6, 1, 2, 5])
  main = np.array([[1, 0, 0, 0]], bool)
  sets = id_ood_sets(label, main, [3 / 6, 5 / 6, 1.0], seed=1)
  counts = [np.bincount(label[s[0]], minlength=4)[1:].tolist() for s in sets]
  assert counts == [[1, 1, 1], [1, 2, 2], [1, 2, 3]]


def test_the_cap_is_reported():
  # Two ID samples and six OOD ones: rho 3 takes all six, others cannot.
  sets = id_ood_sets(LABEL, MAIN[1:2], [3.0, 5.0, 1e308], seed=0)
  assert sets.all()
  rhos = realised_rho(sets, MAIN[1:2, LABEL])
  np.testing.assert_allclose(rhos, [[3.0]] * 3)
  # A client whose class 4 is not in the test split has no samples at all.
  main = np.array([[0, 0, 0, 0, 1]], bool)
  sets = id_ood_sets(LABEL, main, [0.8, np.inf], seed=0)
  assert not sets.any()
  assert np.isnan(realised_rho(sets, main[:, LABEL])).all()


# Ten classes of 100 test samples, 12 clients that know two of them.
RNG = np.random.default_rng(0)
LABELS = RNG.permutation(np.repeat(np.arange(10), 100))
KNOWN = RNG.permuted(np.repeat([[1] * 2 + [0] * 8], 12, axis=0), axis=1) > 0


def test_balanced_nested_and_of_the_right_size():
  rhos = [0.0, 0.2, 0.4, 0.6, 0.8]
  sets = id_ood_sets(LABELS, KNOWN, rhos, seed=5)
  assert (sets[:-1] <= sets[1:]).all()
  for rho, of_rho in zip(rhos, sets, strict=True):
    for known, mask in zip(KNOWN, of_rho, strict=True):
      counts = np.bincount(LABELS[mask], minlength=10)
      assert (counts[known] == 100).all()
      assert counts[~known].sum() == round(rho * 200)
      assert np.ptp(counts[~known]) <= 1


def test_mixtures_depend_on_seed_and_client_alone():
  sets = id_ood_sets(LABELS, KNOWN, [0.2, 0.8], seed=5)
  again = id_ood_sets(LABELS, KNOWN[:3], [0.8, 0.4], seed=5)
  np.testing.assert_array_equal(sets[1, :3], again[0])
  other = id_ood_sets(LABELS, KNOWN, [0.2, 0.8], seed=6)
  assert not np.array_equal(sets, other)
  # Two clients that know the same are not tested on the same draw.
  twins = id_ood_sets(LABELS, KNOWN[[0, 0]], [0.8], seed=5)
  assert not np.array_equal(twins[0, 0], twins[0, 1])
