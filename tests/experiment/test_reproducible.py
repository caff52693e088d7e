"""The same config and seed give the same bits; another seed another run."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from launched import config_file, launch
from runs import config, same_run

from splitjax import experiment
from splitjax.engine import round, schedules
from splitjax.experiment import Programs

pytestmark = pytest.mark.optimized


@pytest.mark.slow
def test_two_processes_give_the_same_bits(tmp_path, monkeypatch):
  """The second takes the programs that the first has compiled."""
  path, cache = config_file(tmp_path, "fedavg"), tmp_path / "cache"
  kept = []
  for place, salt in (("one", "1"), ("two", "2")):
    # Whatever order sets have, and wherever the global generators stand.
    monkeypatch.setitem(os.environ, "PYTHONHASHSEED", salt)
    process = launch(path, tmp_path / place, cache=cache)
    _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    kept.append({x.name for x in cache.iterdir() if x.suffix != ".tmp"})
  same_run(tmp_path / "one", tmp_path / "two")
  # Small programs are kept only if they happened to take a tenth of a second.
  first, new = kept[0], kept[1] - kept[0]
  for names, some in ((first, True), (new, False)):
    assert any(re.search("run_round.*-cache$", n) for n in names) == some


def drawn(seed):
  """Everything that a seed decides: name -> array."""
  task = experiment.build(
    config("harmony", seed=seed, participants_per_round=3)
  )
  subject = experiment.make_subject(task, "own")
  full = experiment.fresh_network(task)
  state = Programs(subject).begin()
  key = jax.random.fold_in(state.key, 1)
  shard = subject.shards[0]
  own = schedules.draw(key, 2, (1,), shard.rows.shape[1], shard.size[0])
  numbers = [jnp.array(c.ids) for c in subject.fleet.cohorts]
  sampled = round.sample(subject.fleet.layout, key, numbers)
  return {
    "partition": np.concatenate(task.test_sets.parts),
    "test sets": np.array(task.test_sets.rows),
    "depths": np.concatenate(numbers),
    "initialisation": np.concatenate(
      [np.ravel(x) for x in jax.tree.leaves(full.params)]
    ),
    "participation": np.concatenate(
      [np.ravel(leaf) for leaf in jax.tree.leaves(sampled)]
    ),
    "permutations": np.array(own.orders[0]),
    # What drawn depths and every other draw of a round come from.
    "key of the run": np.array(jax.random.key_data(state.key)),
  }


def test_the_seed_decides_every_draw():
  once, again, other = drawn(3), drawn(3), drawn(4)
  for name, value in once.items():
    np.testing.assert_array_equal(value, again[name], err_msg=name)
    same = value.shape == other[name].shape and (value == other[name]).all()
    assert not same, name
