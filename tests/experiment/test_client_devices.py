"""Runs whose split depths come from the clients' devices, and their cost."""

import dataclasses

import jax
import numpy as np
import pytest
import runs
import tiny

import splitjax
from splitjax import ALLOCATIONS, experiment, reports


def config(**fleet):
  draft = tiny.tiny(own="splitgp")
  draft.fleet.allocation = splitjax.spec(ALLOCATIONS, "supersfl", alpha=0.1)
  draft.fleet.update(fleet)
  return tiny.resolved(draft)


def depths(task):
  return [(c.depth, c.ids) for c in task.network.fleet.cohorts]


@pytest.mark.slow
def test_seeds_have_devices_of_their_own_and_any_order(tmp_path):
  chosen = config()
  experiment.run_seeds(chosen, tmp_path / "w", [0, 1])
  again = experiment.run_seeds(chosen, tmp_path / "w", [1, 0])
  assert again["seeds"] == [0, 1]
  one, two = (
    experiment.build(dataclasses.replace(chosen, seed=seed)) for seed in (0, 1)
  )
  assert depths(one) != depths(two)

  # A target of another evaluation is looked up in the same rounds.
  row = again["rows"][0]
  assert "to_target" not in row and row["cost"]["seconds"] > 0
  for target, reached in ((1e-3, True), (1.0, False)):
    other = dataclasses.replace(chosen.eval, target=target)
    asked = dataclasses.replace(chosen, eval=other)
    found = experiment.evaluate_again(tmp_path / "w" / "seed0", asked)
    (row,) = found["rows"]
    assert (row["to_target"] is not None) is reached
    page = (tmp_path / "w" / "seed0" / "evaluate" / "report.md").read_text()
    assert f"To an accuracy of {100 * target:g} %" in page
    assert ("Not reached: " in page) is not reached

  # On another test set: power by the accuracy that stands beside it.
  (row,) = again_on(tmp_path / "w" / "seed0", chosen, rhos=(0.4,))["rows"]
  accuracy = row["summary"]["accuracy"][0]
  want = row["cost"]["watts"] / (100 * accuracy)
  assert row["cost"]["watts_per_point"] == pytest.approx(want)
  again_on(tmp_path / "w" / "seed0", chosen, rhos=(0.4,), target=0.2)
  page = (tmp_path / "w" / "seed0" / "evaluate" / "report.md").read_text()
  assert "The cost to 20 % is not known" in page


def again_on(workdir, config, **fields):
  """A finished run evaluated with other fields of eval."""
  asked = dataclasses.replace(config.eval, **fields)
  return experiment.evaluate_again(
    workdir, dataclasses.replace(config, eval=asked)
  )


def test_a_grid_shows_costs_and_what_was_not_reached():
  def cell(reached):
    row = {
      "label": "A",
      "method": "a",
      "summary": {"accuracy": [0.5], "latency": [1.0]},
      "cost": {"seconds": 3.0, "watts": 2.0},
      "to_target": {"rounds": 4.0} if reached else None,
    }
    return {"config": {}, "sets": ["global"], "rows": [row]}

  found = [
    record
    for value in (True, False)
    for record in reports.collect(cell(value), {"x": value})
  ]
  text = "\n".join(reports.of_grid(found))
  assert "| time [s] |" in text
  lines = [line for line in text.splitlines() if line.startswith("| False")]
  assert lines[-1].split("|")[3].strip() == "–"


def test_devices_of_a_file_are_kept(tmp_path):
  path = tmp_path / "devices.csv"
  lines = [f"{n},{2 + 4 * n},{20 * n + 20},10,10" for n in range(6)]
  head = "client,memory,latency,compute,bandwidth"
  path.write_text("\n".join([head, *lines]))
  task = experiment.build(config(profiles=str(path)))
  path.unlink()
  again = experiment.build(
    experiment.from_scratch(task.config), task.facts["devices"]
  )
  assert depths(again) == depths(task)
  assert again.network.fleet.hardware == task.network.fleet.hardware


def test_a_cut_of_the_whole_network_costs_what_split_training_does():
  """DFL's plan at one cut for all is that of split clients of this depth."""
  draft = tiny.tiny(dfl="dfl", splitfed="splitfed_v1")
  draft.backbone.depths = (2,)
  task = experiment.build(tiny.resolved(draft))
  dfl, split = (experiment.make_setup(task, key) for key in task.config.methods)
  got = experiment.whole_round(dfl)
  for mine, want in zip(got, experiment.whole_round(split), strict=True):
    np.testing.assert_allclose(mine, want)
  assert (got.server > 0).all()


def test_without_a_count_of_flops_no_cost(tmp_path, monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, "cost_analysis", lambda _: None)
  of_its_own = runs.config("local", backbone__width=5)  # counted by no other
  results = experiment.run(of_its_own, tmp_path / "w")
  assert [x for x in results["notes"] if x.startswith("Cost is not modelled")]
  assert "cost" not in results["rows"][0]
