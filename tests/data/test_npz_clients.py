"""Clients that the data name: `natural`, own test samples."""

import numpy as np
import pytest
import tiny
from data_command import main
from refusals import refused

import splitjax
from splitjax import experiment
from splitjax.data import (
  PARTITIONS,
  SHIFTS,
  load,
  merged,
)

natural, own_test = PARTITIONS["natural"], SHIFTS["own_test"]


def saved(tmp_path, **more):
  """A file of three hospitals, of which the last has no test sample."""
  rng = np.random.default_rng(0)
  held = {
    "x_train": rng.integers(0, 256, (12, 8, 6, 3), np.uint8),
    "y_train": np.arange(12) % 3,
    "x_test": rng.integers(0, 256, (5, 8, 6, 3), np.uint8),
    "y_test": np.array([2, 0, 0, 1, 2]),
    "client_train": np.array(list("bbaabbccbbaa")),
    "client_test": np.array(list("aabab")),
    **more,
  }
  held = {key: value for key, value in held.items() if value is not None}
  np.savez_compressed(tmp_path / "mine.npz", **held)
  return f"npz:{tmp_path / 'mine.npz'}"


def test_clients_of_the_data(tmp_path):
  data = load(saved(tmp_path))
  assert data.train_client.tolist() == [1, 1, 0, 0, 1, 1, 2, 2, 1, 1, 0, 0]
  assert data.test_client.tolist() == [0, 0, 1, 0, 1]
  part = load(saved(tmp_path), train_samples=6)
  kept = [np.flatnonzero((data.train_image == x).all((1, 2, 3)))[0]
          for x in part.train_image]  # fmt: skip
  assert part.train_client.tolist() == data.train_client[kept].tolist()
  both = merged(data)
  assert both.train_client.tolist() == [*data.train_client, *data.test_client]
  again = load(
    saved(tmp_path, client_train=np.array(list("bbaabbccbbaa"), "S"))
  )
  np.testing.assert_array_equal(again.train_client, data.train_client)

  # Each client's own test samples.
  owners = data.train_client
  parts = natural(owners, 3, 0)
  shown = own_test(data, parts, None, 0)
  assert shown.names == ("own",) and shown.pool == "test"
  for rows, real, part in zip(shown.rows, shown.sets[0], parts, strict=True):
    mine = np.flatnonzero(data.test_client == owners[part[0]])
    assert rows[real].tolist() == mine.tolist()
  with refused("num_clients"):
    natural(owners, 3, 0, min_samples=3)
  with refused("eval.shift"):
    own_test(data, [np.arange(3), np.arange(3, 6)], None, 0)
  with refused("eval.shift"):
    own_test(data, [np.array([6, 7])], None, 0)
  with refused("eval.shift"):
    nobody = saved(tmp_path, client_train=None, client_test=None)
    own_test(load(nobody), parts, None, 0)


def test_a_file_without_a_test_split(tmp_path):
  name = saved(tmp_path, x_test=None, y_test=None, client_test=None)
  data = load(name)
  assert merged(data).train_client is data.train_client
  parts = natural(data.train_client, 2, 0, min_samples=3)
  assert SHIFTS["local"](data, parts, None, 0).pool == "train"
  for shift in ("id_ood", "global"):
    with refused("eval.shift"):
      SHIFTS[shift](data, parts, None, 0)
  with refused("eval.shift"):
    own_test(data, parts, None, 0)
  assert main(["check", name]) == 0


def test_clients_that_cannot_be_used(tmp_path):
  for more in (
    {"client_train": np.zeros(12)},
    {"client_test": np.arange(5)},
    {"client_train": None},
  ):
    with refused("data.name"):
      load(saved(tmp_path, **more))


@pytest.mark.parametrize(
  ("train", "names"),
  [
    ([f"{c}\u00e5" for c in "bbaabbccbbaa"], ["a\u00e5", "b\u00e5", "c\u00e5"]),
    ([10, 10, 9, 9, 10, 10, 100, 100, 10, 10, 9, 9], ["9", "10", "100"]),
  ],
)
def test_client_n_is_the_nth_owner(tmp_path, train, names):
  """For every seed; of fewer clients the chosen are in the same order."""
  data = load(saved(tmp_path, client_train=np.array(train), client_test=None))
  rows = [[2, 3, 10, 11], [0, 1, 4, 5, 8, 9]]
  for seed in range(4):
    parts = natural(data.train_client, 3, seed)
    assert [p.tolist() for p in parts] == [*rows, [6, 7]]
    assert experiment.owner_names(data, natural, parts) == names
    two = natural(data.train_client, 2, seed, min_samples=3)
    assert [p.tolist() for p in two] == rows
    two = natural(data.train_client, 2, seed)
    assert experiment.owner_names(data, natural, two) in (
      names[:2], names[1:], names[::2],
    )  # fmt: skip
  # Whoever has a sample of several owners has no name.
  mixed = [np.arange(4), np.arange(4, 12)]
  assert experiment.owner_names(data, natural, mixed) == []
  assert experiment.owner_names(data, PARTITIONS["iid"], parts) == []


@pytest.mark.parametrize(
  ("test", "count"),
  [
    ("aabab", 3),  # all of them train
    ("aabaz", 3),  # z does not, c has no test sample
    ("aaccb", 2),  # c is not chosen
  ],
)
def test_clients_are_tested_on_their_own_samples(tmp_path, test, count):
  data = load(saved(tmp_path, client_test=np.array(list(test))))
  least = 3 if count == 2 else 1  # leaves c out for every seed
  for seed in range(3):
    parts = natural(data.train_client, count, seed, min_samples=least)
    shown = own_test(data, parts, None, seed)
    assert shown.names == ("own",)
    held = np.array(list(test))[shown.rows]
    for n, name in enumerate("abc"[:count]):
      own = shown.sets[0, n]
      assert (held[n][own] == name).all() and own.sum() == test.count(name)
    again = shown.in_random_order(seed)
    for n, size in enumerate(again.sets[0].sum(axis=1)):
      assert again.sets[0, n, :size].all()


def test_a_run_on_hospitals(tmp_path):
  """Natural clients through a config; without them one clear line."""
  draft = tiny.tiny(own="local")
  rng = np.random.default_rng(0)
  draft.data.name = saved(
    tmp_path,
    x_train=rng.integers(0, 256, (60, 8, 8, 1), np.uint8),
    y_train=np.arange(60) % 3,
    x_test=rng.integers(0, 256, (18, 8, 8, 1), np.uint8),
    y_test=np.arange(18) % 3,
    client_train=np.arange(60) % 7,
    client_test=np.arange(18) % 7,
  )
  draft.data.train_samples = draft.data.test_samples = None
  draft.data.partition = splitjax.spec(PARTITIONS, "natural", min_samples=2)
  draft.eval.shift, draft.eval.rhos = splitjax.spec(SHIFTS, "own_test"), None
  task = experiment.build(tiny.resolved(draft))
  data = task.data
  assert sorted(map(len, task.test_sets.parts))[-1] == 9
  first = [int(data.train_client[p[0]]) for p in task.test_sets.parts]
  assert task.network.names == (*map(str, sorted(first)),) and len(first) == 6
  draft.data.dealt = "by_depth"
  with refused("data.dealt"):
    experiment.build(tiny.resolved(draft))
  draft.data.dealt = "any"
  draft.data.name = "digits"
  with refused("data.partition"):
    experiment.build(tiny.resolved(draft))
