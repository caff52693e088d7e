"""What a config says before it trains: sizes, traffic, work, split depths."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import runs
import tiny
from selected import values

import splitjax
from splitjax import ALLOCATIONS, evaluation, experiment
from splitjax.experiment import Programs, trained


@pytest.fixture(scope="module")
def facts():
  names = ("splitgp", "local")
  return experiment.describe_run(tiny.resolved(**{n: n for n in names}))


def test_sizes_and_work_by_hand(facts):
  # toy, width 6, length 3, 784 inputs, 10 classes:
  # block1 784*6+6 = 4710, block2 6*6+6 = 42, block3 42, exits and head 70.
  assert facts["parameters"] == 4710 + 42 + 42 + 70
  first, second = facts["depths"]
  assert (first["phi"], first["h"], first["theta"]) == (4710, 70, 154)
  assert (second["phi"], second["h"], second["theta"]) == (4752, 70, 112)
  # 120 images through 784*6, 6*6, 6*6 and two classifiers of 6*10; forward and
  # backward are three passes of two operations each. Biases are few.
  products = 784 * 6 + 2 * 36 + 2 * 60
  flops = facts["methods"]["splitgp"]["flops"]
  assert 1 < flops / (120 * 3 * 2 * products) < 1.02
  text = experiment.describe_text(facts)
  assert all(said in text for said in ("toy", "4,710", *facts["notes"]))
  assert "faults" not in text and "None" not in text


def test_traffic_by_hand_and_as_a_round_tells(facts):
  wire = facts["methods"]["splitgp"]["bytes"]
  # 6 clients x 20 samples, features 6 floats at either cut.
  assert wire["up/features"] == 120 * 6 * 4
  assert wire["up/labels"] == 120 * 4
  # 3 clients of each depth: 4710 and 4752 parameters.
  assert wire["up/prefix"] == 3 * 4 * (4710 + 4752)
  assert facts["methods"]["local"]["bytes"] == {}
  task = experiment.build(tiny.resolved(splitgp="splitgp"))
  programs = Programs(experiment.make_subject(task, "splitgp"))
  assert programs.round(programs.begin())[1].wire == wire


def test_clients_and_their_classes_by_depth(facts):
  for client in facts["clients"]:
    assert sum(client["classes"].values()) == client["samples"] == 20
  assert len(facts["clients"]) == 6
  assert {client["depth"] for client in facts["clients"]} == {1, 2}
  c = tiny.changed(tiny.tiny(), data__dealt="by_depth")
  dealt = experiment.describe_run(tiny.resolved(c))["clients"]
  highest = {1: [], 2: []}
  for client in dealt:
    highest[client["depth"]].append(max(client["classes"]))
  assert max(highest[1]) <= min(highest[2])
  assert {client["samples"] for client in dealt} == {20}


def test_parts_with_higher_classes_go_to_deeper_clients():
  labels = np.array([0, 1, 2, 3, 4, 5])
  parts = [np.array([5]), np.array([0, 1]), np.array([0, 3]), np.array([2])]
  depth = np.array([1, 4, 1, 2])
  # In the order of the highest class: parts 1, 3, 2, 0; of depth: 0, 2, 3, 1.
  order = experiment.by_depth(parts, labels, depth)
  assert order.tolist() == [1, 0, 3, 2]
  # So do the groups of a partition.
  c = tiny.changed(tiny.tiny(), num_clients=10, data__dealt="by_depth")
  c.data.partition = "dominant_label(p=100)"
  task = experiment.build(tiny.resolved(c))
  held = task.class_counts.argmax(axis=1)
  assert task.test_sets.groups.tolist() == held.tolist() != sorted(held)


# Split depths that come from the clients' devices.


def config(**fleet):
  c = tiny.tiny(own="splitgp")
  c.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl", alpha=0.1)
  return tiny.resolved(tiny.changed(c, **fleet))


def depths(task):
  return [(c.depth, c.ids) for c in task.network.fleet.cohorts]


@pytest.mark.slow
def test_seeds_have_devices_of_their_own_and_any_order(tmp_path):
  chosen = config()
  experiment.run_seeds(chosen, tmp_path, [0, 1])
  again = experiment.run_seeds(chosen, tmp_path, [1, 0])
  assert again.seeds == [0, 1]
  one, two = (
    experiment.build(dataclasses.replace(chosen, seed=seed)) for seed in (0, 1)
  )
  assert depths(one) != depths(two)
  # A target of another evaluation is looked up in the same rounds; on another
  # test set they were not evaluated.
  assert not values(again, "target_rounds")
  cases = ({"eval.target": 1e-3}, {"eval.target": 1e-3, "eval.rhos": (0.4,)})
  for changes, count in zip(cases, (1, 0), strict=True):
    found = experiment.evaluate_again(tmp_path / "seed0", changes)
    assert len(values(found, "target_rounds")) == count


def test_depths_of_an_earlier_run_are_kept(tmp_path, monkeypatch):
  made = config()
  task = experiment.build(made)
  other = config(fleet__memory=(1.0, 2.0))
  assert depths(experiment.build(other, task.facts["depth"])) == depths(task)
  # Also where a trained run is evaluated after the allocation was edited.
  allocate = ALLOCATIONS["supersfl"]

  @functools.wraps(allocate)
  def edited(*args, **options):
    return allocate(*args, **options)[::-1]

  monkeypatch.setitem(ALLOCATIONS, "supersfl", edited)
  assert depths(experiment.build(made)) != depths(task)
  assert depths(trained.rebuilt(tmp_path, made, task.facts)) == depths(task)


# What a method's rounds cost.


def test_a_cut_of_the_whole_network_costs_what_split_training_does():
  """DFL's plan at one cut for all is that of split clients of this depth."""
  c = tiny.tiny(dfl="dfl", splitfed="splitfed_v1")
  c.backbone.depths = (2,)
  task = experiment.build(tiny.resolved(c))
  dfl, split = (
    evaluation.whole_round(experiment.make_subject(task, key))
    for key in task.config.methods
  )
  np.testing.assert_allclose(dfl[:6], split[:6])
  assert (dfl.server > 0).all()


def test_steps_alone_have_work_of_their_own():
  """SuperSFL's step has two gradients of the encoder, one alone has one."""
  task = experiment.build(tiny.resolved(own="supersfl"))
  work = evaluation.whole_round(experiment.make_subject(task, "own"))
  assert (work.alone > 0).all()
  np.testing.assert_allclose(work.client, work.alone * 5 / 3)


def test_without_a_count_of_flops_no_cost(tmp_path, monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, "cost_analysis", lambda _: None)
  of_its_own = runs.config("local", backbone__width=5)  # counted by no other
  results = experiment.run(of_its_own, tmp_path)
  notes = results.runs[0].notes
  assert any(x.startswith("Cost is not modelled") for x in notes)
  assert not values(results, "modelled_seconds")
