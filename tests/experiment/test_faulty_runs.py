"""A run with faults: its log, its description, its identity."""

import dataclasses

import numpy as np
import pytest
import tiny
from refusals import refused
from runs import lines

from splitjax import experiment


def drafted(method="splitgp", **fields):
  c = tiny.tiny(own=method)
  for name, value in fields.items():
    setattr(c.faults, name, value)
  return c


@pytest.mark.slow
def test_the_log_says_what_went_wrong(tmp_path):
  config = tiny.resolved(drafted(server_down=0.5))
  found = experiment.run(config, tmp_path / "run")
  task = experiment.build(config)
  (away,) = np.flatnonzero(task.faults.server_down[0])
  both = lines(tmp_path / "run")
  down, up = both[away], both[1 - away]
  assert up["faults"] == {"dropped": 0, "stragglers": 0, "alone": 0}
  assert down["faults"] == {"dropped": 0, "stragglers": 0, "alone": 6}
  assert down["participants"] == 6
  assert down["loss"]["server"] is None and down["loss"]["client"] > 0
  assert down["wire"]["up/features"] == 0 < up["wire"]["up/features"]
  # What went wrong is the simulation's business, and not a warning.
  assert not [n for n in found.runs[0].notes if "finite" in n]
  # With more rounds the server would be away in others.
  more = dataclasses.replace(config, rounds=4)
  with refused("--workdir"):
    experiment.run(more, tmp_path / "run")


def test_only_what_can_go_wrong_is_drawn():
  faults = experiment.build(tiny.resolved(drafted(dropout=0.5))).faults
  assert faults.dropped.shape == (6, 2)
  assert faults.share is faults.server_down is None


def test_updates_that_are_not_finite_are_noted(tmp_path):
  c = tiny.tiny(local="local")
  c.optimizer.lr = 1e30
  found = experiment.run(tiny.resolved(c), tmp_path / "w")
  assert any(
    "not finite and left out in 2 rounds" in n for n in found.runs[0].notes
  )
  for line in lines(tmp_path / "w"):
    assert line["masked"] == [0, 1, 2, 3, 4, 5]
    assert line["loss"] == {"client": None}
