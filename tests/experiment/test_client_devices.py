"""Runs whose split depths come from the clients' devices, and their cost."""

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
from splitjax.experiment import trained


def config(**fleet):
  draft = tiny.tiny(own="splitgp")
  draft.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl", alpha=0.1)
  for name, value in fleet.items():
    setattr(draft.fleet, name, value)
  return tiny.resolved(draft)


def depths(task):
  return [(c.depth, c.ids) for c in task.network.fleet.cohorts]


@pytest.mark.slow
def test_seeds_have_devices_of_their_own_and_any_order(tmp_path):
  chosen = config()
  experiment.run_seeds(chosen, tmp_path / "w", [0, 1])
  again = experiment.run_seeds(chosen, tmp_path / "w", [1, 0])
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
    found = experiment.evaluate_again(tmp_path / "w" / "seed0", changes)
    assert len(values(found, "target_rounds")) == count


def test_depths_of_an_earlier_run_are_kept(tmp_path, monkeypatch):
  made = config()
  task = experiment.build(made)
  again = experiment.build(config(memory=(1.0, 2.0)), task.facts["depth"])
  assert depths(again) == depths(task)
  # Also where a trained run is evaluated after the allocation was edited.
  allocate = ALLOCATIONS["supersfl"]

  @functools.wraps(allocate)
  def edited(*args, **options):
    return allocate(*args, **options)[::-1]

  monkeypatch.setitem(ALLOCATIONS, "supersfl", edited)
  assert depths(experiment.build(made)) != depths(task)
  assert depths(trained.rebuilt(tmp_path, made, task.facts)) == depths(task)


def test_a_cut_of_the_whole_network_costs_what_split_training_does():
  """DFL's plan at one cut for all is that of split clients of this depth."""
  draft = tiny.tiny(dfl="dfl", splitfed="splitfed_v1")
  draft.backbone.depths = (2,)
  task = experiment.build(tiny.resolved(draft))
  dfl, split = (
    experiment.make_subject(task, key) for key in task.config.methods
  )
  got = evaluation.whole_round(dfl)
  np.testing.assert_allclose(got[:6], evaluation.whole_round(split)[:6])
  assert (got.server > 0).all()


def test_steps_alone_have_work_of_their_own():
  """SuperSFL's step has two gradients of the encoder, one alone has one."""
  draft = tiny.tiny(own="supersfl")
  task = experiment.build(tiny.resolved(draft))
  work = evaluation.whole_round(experiment.make_subject(task, "own"))
  assert (work.alone > 0).all()
  np.testing.assert_allclose(work.client, work.alone * 5 / 3)


def test_without_a_count_of_flops_no_cost(tmp_path, monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, "cost_analysis", lambda _: None)
  of_its_own = runs.config("local", backbone__width=5)  # counted by no other
  results = experiment.run(of_its_own, tmp_path / "w")
  assert [
    x for x in results.runs[0].notes if x.startswith("Cost is not modelled")
  ]
  assert not values(results, "modelled_seconds")


def test_parts_with_higher_classes_go_to_deeper_clients():
  labels = np.array([0, 1, 2, 3, 4, 5])
  parts = [np.array([5]), np.array([0, 1]), np.array([0, 3]), np.array([2])]
  depth = np.array([1, 4, 1, 2])
  # In the order of the highest class: parts 1, 3, 2, 0; of depth: 0, 2, 3, 1.
  order = experiment.by_depth(parts, labels, depth)
  assert order.tolist() == [1, 0, 3, 2]


def test_groups_go_with_the_parts_to_deeper_clients():
  c = tiny.changed(tiny.tiny(), num_clients=10, data__dealt="by_depth")
  c.data.partition = "dominant_label(p=100)"
  task = experiment.build(tiny.resolved(c))
  held = task.class_counts.argmax(axis=1)
  assert task.test_sets.groups.tolist() == held.tolist() != sorted(held)
