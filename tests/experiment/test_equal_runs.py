"""Runs that end early, or grow, are as if they had not: bit for bit."""

import dataclasses
import json
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from launched import config_file, launch
from marks import slow
from refusals import refused
from runs import After, config, lines, same_run, stopped
from selected import timeless

import splitjax
from splitjax import experiment
from splitjax.engine import round, schedules
from splitjax.evaluation import Cost
from splitjax.experiment import Programs
from splitjax.types import Metrics

NOISY = {
  "privacy__features__clip": 1.0,
  "privacy__features__noise": 0.5,
  "privacy__gradients__clip": 1.0,
  "privacy__gradients__noise": 0.25,
  "privacy__delta": None,
  "wire__features__form": "int8",
  "wire__gradients__form": "random",
  "wire__gradients__share": 0.5,
}
SAMPLED = {"participants_per_round": 3, "methods__own__finetune": True}
DOMAINS = {
  "data__partition": "iid",
  "data__domains": ("clean", "contrast 3"),
  "eval__shift": "by_domain",
  "eval__rhos": None,
  "eval__domains": "contrast",
  "eval__metrics": "ece",
}
SCHEDULED = {"optimizer__schedule": "cosine"}

# One cohort of whole networks; personalised clients and exits, of whom some are
# sampled; an optimiser of means; two stages, and a memory of the client and of
# the server. With noise: personalised exits; heads of groups, clients in an
# order; one set of blocks for all.
KINDS = [
  ("fedavg_ft", {}),
  *slow(
    ("splitgp", {**SAMPLED, "mean_optimizer__name": "fedadam"}),
    ("splitgp", SCHEDULED),
    ("splitgp", DOMAINS),
    ("scaffold", {"participants_per_round": 3}),
    ("pgfedsplit", {"participants_per_round": 3}),
    ("harmony", NOISY),
    ("hydra", NOISY),
    ("supersfl", {**NOISY, "faults__server_down": 0.5}),
  ),
]


@pytest.mark.parametrize(("name", "changes"), KINDS)
def test_two_rounds_and_two_are_four(name, changes, tmp_path):
  resolved = config(name, **changes)
  one = experiment.run(resolved, tmp_path / "one")
  stopped(resolved, tmp_path / "two", 2)
  two = experiment.run(resolved, tmp_path / "two")
  same_run(tmp_path / "one", tmp_path / "two")
  assert timeless(one) == timeless(two)
  assert one.runs[0].notes == two.runs[0].notes
  shorter = dataclasses.replace(resolved, rounds=2)
  if {"optimizer__schedule", "faults__server_down"} & changes.keys():
    # They depend on the number of rounds: no more can follow.
    longer = dataclasses.replace(resolved, rounds=5)
    with refused("--workdir") as caught:
      experiment.run(longer, tmp_path / "two")
    assert "rounds is 4 there and 5 here" in str(caught.value)
    return
  # A finished run of two rounds goes on, and is stopped after one more.
  experiment.run(shorter, tmp_path / "more")
  stopped(resolved, tmp_path / "more", 1, 2)
  more = experiment.run(resolved, tmp_path / "more")
  same_run(tmp_path / "one", tmp_path / "more")
  assert timeless(one) == timeless(more)


@pytest.mark.slow
@pytest.mark.parametrize("fewer", [3, 4])  # an evaluated round, and one not
def test_the_last_evaluation_of_fewer_rounds_is_none_between(fewer, tmp_path):
  chosen = {"rounds": 6, "eval__every": 3, "eval__samples": 5}
  chosen["eval__metrics"] = "ece"
  begun = config("local", **{**chosen, "rounds": fewer})
  experiment.run(begun, tmp_path / "two")
  two = experiment.run(config("local", **chosen), tmp_path / "two")
  one = experiment.run(config("local", **chosen), tmp_path / "one")
  assert timeless(one) == timeless(two)
  assert lines(tmp_path / "one") == lines(tmp_path / "two")


def test_a_failing_metric_loses_no_round(tmp_path, monkeypatch, capsys):
  """Nor its evaluation, which the same command makes once the metric works."""
  failing = [True]

  def mine(labels, answers):
    right = np.mean(labels == answers)
    if failing and right < 1:  # not on the made-up samples of a check
      raise ZeroDivisionError("of the metric")
    return right

  monkeypatch.setitem(splitjax.METRICS, "mine", mine)
  made = config(eval__metrics=("mine",), checkpoint__every=50)
  for _ in range(2):
    with pytest.raises(ZeroDivisionError):
      experiment.run(made, tmp_path / "w")
    assert rounds_kept(tmp_path / "w") == {2}
  failing.clear()
  experiment.run(made, tmp_path / "w")
  assert "resumes after round 2" in capsys.readouterr().out
  experiment.run(made, tmp_path / "one")
  same_run(tmp_path / "one", tmp_path / "w")


def test_a_stop_leaves_a_checkpoint_that_was_not_due(tmp_path):
  stopped(config(checkpoint__every=50), tmp_path / "w", 2)
  assert rounds_kept(tmp_path / "w") == {2}


def test_a_run_that_is_stopped_between_methods_goes_on(tmp_path):
  c = tiny.tiny(one="local", two="local")
  with pytest.raises(experiment.Stopped, match="two: 0 of 2"):
    experiment.run(tiny.resolved(c), tmp_path, stop=After(tmp_path, 2))
  assert not (tmp_path / "numbers.csv").exists()
  experiment.run(tiny.resolved(c), tmp_path)
  for key in ("one", "two"):
    assert [line["round"] for line in lines(tmp_path, key)] == [1, 2]


# The same config and seed, and another seed.


@pytest.mark.slow
@pytest.mark.optimized
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


@pytest.mark.optimized
def test_the_seed_decides_every_draw():
  once, again, other = drawn(3), drawn(3), drawn(4)
  for name, value in once.items():
    np.testing.assert_array_equal(value, again[name], err_msg=name)
    same = value.shape == other[name].shape and (value == other[name]).all()
    assert not same, name


# Checkpoints.


def rounds_kept(workdir):
  place = workdir / "methods/own/checkpoints"
  return {int(path.name) for path in place.iterdir()}


@pytest.mark.parametrize(
  ("chosen", "kept"),
  [
    ({"every": 3}, {3, 4}),  # the last round, whatever `every`
    ({}, {3, 4}),
    *slow(({"keep": 1}, {4}), ({"every": 50}, {4})),
  ],
)
def test_as_many_stay_as_are_asked_for(chosen, kept, tmp_path):
  changes = {f"checkpoint__{name}": value for name, value in chosen.items()}
  for _ in range(2):  # trained, and found finished
    experiment.run(config("local", **changes), tmp_path / "w")
    assert rounds_kept(tmp_path / "w") == kept
  for number in kept:
    trained = splitjax.load(tmp_path / "w", "own", round=number)
    assert trained.state.round == number and trained.thresholds is None
  with refused(str(tmp_path / "w")):
    splitjax.load(tmp_path / "w", "own", round=99)


# Logs.


def of_a_round(clients, on=(0, 2)):
  """Metrics and cost of a round in which few of many clients take part."""
  some = np.zeros(clients)
  some[list(on)] = 3.0
  metrics = Metrics(
    losses={"client": 0.5},
    wire={"up/features": 60.0},
    participants=len(on),
    masked=np.zeros(clients, bool),
    undone=False,
    bytes=10 * some,
    steps=some,
    alone=some / 3,
    faults={},
  )
  return metrics, Cost(1.0, some / 7, some / 9, 2.0)


@pytest.mark.parametrize("clients", [4, 100_000])
def test_a_line_costs_what_took_part(clients):
  few, line = (
    json.dumps(experiment.log_line("own", 1, metrics, 0.25, cost))
    for metrics, cost in (of_a_round(3), of_a_round(clients))
  )
  assert line == few
  # Summed up it is what each client did.
  log = [json.loads(line), json.loads(few)]
  _, totals = experiment.read_history(log, clients)
  want = {"steps": 6, "bytes": 60, "served": 4, "visits": 2}
  for name, value in want.items():
    assert totals[name][:4].tolist() == [value, 0, value, 0]
    assert totals[name].shape == (clients,)
  np.testing.assert_allclose(totals["seconds"][[0, 2]], 6 / 7, rtol=1e-4)
