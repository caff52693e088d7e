"""Runs whose clients lie on the host, against runs on the device."""

import numpy as np
import pytest
import tiny
from families_world import FAMILIES
from runs import PUBLIC, config, rows, same_run, stopped

import splitjax
from splitjax import PARTITIONS, UserError
from splitjax.data import npz
from splitjax.engine.host_clients import data_of
from splitjax.experiment import runner
from splitjax.experiment.describe import describe, timing
from splitjax.experiment.setup import tasks, training_setup
from splitjax.types import Shard

HOST = {"system__clients_on": "host"}
SOME = {"participants_per_round": 3}
RAGGED = {
  "num_clients": 7,
  "data__partition": splitjax.spec(
    PARTITIONS, "dirichlet", alpha=0.5, min_samples=4
  ),
}


def both(tmp_path, name, **changes):
  """The same run on the device and on the host, bit for bit."""
  found = []
  for place in ("device", "host"):
    on = {"system__clients_on": place}
    resolved = config(name, **changes, **on)
    found.append(runner.run(resolved, tmp_path / place))
  same_run(tmp_path / "device", tmp_path / "host")
  assert rows(found[0]) == rows(found[1])


# Personalised exits, and a cohort without a participant; everybody the same,
# but for momentum and families; one set of blocks for clients and server;
# public samples; a share of one's own, a personal row and faults.
@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "changes"),
  [
    ("harmony", {"participants_per_round": 1}),
    ("splitfed_v1", {"optimizer__keep_state": True, **FAMILIES, **SOME}),
    ("supersfl", {"participation": "stratified", **SOME}),
    ("feddf", {"methods__own__distil_steps": 5, **PUBLIC, **SOME}),
    (
      "splitgp",
      {
        "methods__own__lam": 0.9,
        "methods__own__finetune": True,
        "faults__dropout": 0.5,
        "faults__straggler": 0.5,
        **SOME,
        **RAGGED,
      },
    ),
  ],
)
def test_the_same_bits_as_on_the_device(name, changes, tmp_path):
  both(tmp_path, name, **changes)


@pytest.mark.slow
@pytest.mark.optimized
def test_a_run_moves_between_host_and_device(tmp_path):
  """Two rounds on one and two on the other are four."""
  first, second = "host", "device"
  whole = config("fedper", system__clients_on=first, **SOME)
  other = config("fedper", system__clients_on=second, **SOME)
  stopped(whole, tmp_path / "two", 2)
  runner.run(other, tmp_path / "two")
  runner.run(whole, tmp_path / "one")
  same_run(tmp_path / "one", tmp_path / "two")


def test_only_the_sampled_come_to_the_device():
  task = tasks.build(config("splitgp", **HOST, **SOME))
  setup = training_setup.make_setup(task, "own")
  places = [np.array([1, 0]), np.array([2])]
  on = [np.array([True, False]), np.array([True])]
  size = 1 + sum(sorted(map(len, task.test_sets.parts))[-3:])
  stock = task.image, task.label
  stock, own = data_of(*stock, setup.shards, places, on, size)
  found = [Shard(*stock, *each) for each in own]
  assert {isinstance(x, np.ndarray) for x in setup.shards[0]} >= {True}
  image, label = (np.asarray(x) for x in found[0][:2])
  assert len(image) == len(label) == size < len(task.image)
  for shard, cohort, at, active in zip(
    found, setup.fleet.cohorts, places, on, strict=True
  ):
    assert shard.image is found[0].image
    for i, place in enumerate(at):
      own = task.test_sets.parts[cohort.ids[place]]
      assert shard.number[i] == cohort.ids[place]
      local = np.asarray(shard.rows[i])
      assert (local >= 0).sum() == len(own) == shard.size[i]
      if active[i]:
        np.testing.assert_array_equal(image[local[local >= 0]], task.image[own])
        np.testing.assert_array_equal(label[local[local >= 0]], task.label[own])


@pytest.mark.slow
def test_device_memory_is_that_of_the_participants():
  needs = [
    describe.describe(config("splitgp", **HOST, **SOME, **more))["methods"]
    for more in ({}, {"num_clients": 12, "data__partition__num_shards": 24})
  ]
  few, many = (each["own"]["memory"] for each in needs)
  assert many["state"] == few["state"] and many["data"] <= few["data"]
  assert needs[0]["own"]["wire"].keys() == needs[1]["own"]["wire"].keys()


@pytest.mark.slow
def test_it_is_timed():
  found = timing.measure(config("fedavg", **HOST, **SOME), 1)
  assert min(found["methods"]["own"].values()) > 0


@pytest.mark.parametrize(
  ("name", "changes", "message"),
  [
    ("fedamp", {}, r"methods.own: system.clients_on=host: .*by_sums is False"),
    ("hydra", {}, "a round or an answer takes more than one client"),
    ("splitgp", {"data__pool": "all"}, "test sets are of the training split"),
    ("splitgp", {"eval__embeddings": 9}, "excludes eval.embeddings=9"),
  ],
)
def test_what_it_excludes_is_one_line(name, changes, message):
  c = tiny.tiny(own=name)
  if changes.get("data__pool"):
    c.eval.shift = splitjax.spec(splitjax.SHIFTS, "local")
    c.eval.rhos = None
  with pytest.raises(UserError, match=message):
    tasks.build(tiny.resolved(tiny.changed(c, **changes, **HOST)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_training_images_of_a_file_are_mapped(save, tmp_path):
  rng, path = np.random.default_rng(0), tmp_path / "own.npz"
  image = rng.integers(0, 256, (40, 5, 6, 1)).astype(np.uint8)
  label = np.arange(40) % 3
  save(path, x_train=image, y_train=label, x_test=image[:9], y_test=label[:9])
  _, arrays, _ = npz.load(f"npz:{path}", mapped=True)
  np.testing.assert_array_equal(arrays["train_image"], image)
  mapped = isinstance(arrays["train_image"], np.memmap)
  assert mapped == (save is np.savez)
  if mapped:  # a flipped bit is found before the file is mapped
    content = bytearray(path.read_bytes())
    content[content.find(image.tobytes()) + 7] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
      npz.load(f"npz:{path}", mapped=True)
