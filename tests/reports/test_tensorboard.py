"""What TensorBoard's own reader finds of a run: every round once."""

import math

import pytest
from events import agree, reader, steps
from runs import ROUNDS, config, stopped

from splitjax import experiment, reports

LINE = {
  "method": "own",
  "loss": {"client": 0.5, "server": None},
  "wire": {"up/features": 3e6, "up/labels": 24.0},
  "participants": 6,
  "masked": [1, 4],
  "seconds": 10.0,
}


def write(workdir, finished, further=()):
  """Writes a file after the finished rounds, and further ones."""
  events = reports.EventFile(workdir, "own", finished)
  for line in further:
    events.append(line)
  events.close()


def test_what_is_shown_of_a_round(tmp_path):
  evaluated = {"own": {"0.0": 0.9, "0.8": 0.7}, "own+FT": {"0.0": 0.95}}
  spread = {"own": {"0.0": 0.1, "0.8": 0.2}, "own+FT": {"0.0": 0.3}}
  lines = [
    {**LINE, "round": 1},
    {
      **LINE, "round": 300, "accuracy": evaluated, "std": spread,
      "faults": {"dropped": 2}, "metrics": {"own": {"ece": {"0.8": 0.4}}},
    },
  ]  # fmt: skip
  write(tmp_path, lines)
  found = reader(tmp_path)
  last = {tag: found.Scalars(tag)[-1].value for tag in found.Tags()["scalars"]}
  assert math.isnan(last.pop("loss/server"))
  assert last == pytest.approx(
    {
      "loss/client": 0.5,
      "bytes/all": 3_000_024,
      "bytes/up/features": 3e6,
      "bytes/up/labels": 24,
      "clients/participants": 6,
      "clients/masked": 2,
      "faults/dropped": 2,
      "seconds/round": 10,
      "accuracy/0.0": 0.9,
      "accuracy/0.8": 0.7,
      "accuracy_std/0.0": 0.1,
      "accuracy_std/0.8": 0.2,
      "ece/0.8": 0.4,
      "accuracy+FT/0.0": 0.95,
      "accuracy_std+FT/0.0": 0.3,
    }
  )
  assert steps(tmp_path) == [1, 300]
  assert steps(tmp_path, tag="accuracy/0.0") == [300]


def test_killed_runs_show_every_round_once(tmp_path):
  lines = [{**LINE, "round": n} for n in range(1, 8)]
  write(tmp_path, lines[:2], lines[2:5])  # no earlier file: all are written
  waits = reader(tmp_path)
  # Killed after round 5; the newest checkpoint is of round 3, then of 0.
  for known in (3, 0, 1):
    write(tmp_path, lines[:known], lines[known : known + 3])
    waits.Reload()
    rounds = list(range(1, known + 4))
    assert [x.step for x in waits.Scalars("loss/client")] == rounds
    assert steps(tmp_path) == rounds


def test_a_run_that_goes_on_shows_every_round_once(tmp_path):
  resolved, place = config("local", checkpoint__every=2), tmp_path / "w"
  stopped(resolved, place, 3)
  (events,) = (place / reports.FOLDER / "own").iterdir()
  with events.open("ab") as file:
    file.write(b"cut short")
  experiment.run(resolved, place)
  agree(place)
  assert steps(place) == list(range(1, ROUNDS + 1))
