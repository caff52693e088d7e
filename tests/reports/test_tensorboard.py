"""What TensorBoard's own reader finds of a run: every round once."""

import math
import sys

import pytest
import tiny
from events import agree, reader, steps
from runs import ROUNDS, config, stopped

from splitjax import UserError, experiment, reports

LINE = {
  "method": "own",
  "loss": {"client": 0.5, "server": None},
  "wire": {"up/features": 3e6, "up/labels": 24.0},
  "participants": 6,
  "masked": [1, 4],
  "seconds": 10.0,
}


def test_the_gap_is_shown_on_the_global_test_set():
  line = {
    **LINE,
    "round": 1,
    "accuracy": {"own": {"global": 0.7}, "own+FT": {"global": 0.8}},
    "per_class": {"own": [0.9, 0.5, None], "own+FT": [0.8, 0.8, None]},
  }
  found = reports.scalars(line)
  assert found["gap/global"] == pytest.approx(0.2)  # (0 + 0.4) / 2
  assert found["gap+FT/global"] == 0
  line["accuracy"] = {"own": {"0.8": 0.7}}
  assert not [tag for tag in reports.scalars(line) if "gap" in tag]


def test_what_is_shown_of_a_round(tmp_path):
  evaluated = {"own": {"0.0": 0.9, "0.8": 0.7}, "own+FT": {"0.0": 0.95}}
  lines = [
    {**LINE, "round": 1},
    {**LINE, "round": 300, "accuracy": evaluated, "faults": {"dropped": 2}},
  ]
  reports.rewrite(tmp_path, "own", lines)
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
      "accuracy+FT/0.0": 0.95,
    }
  )
  assert steps(tmp_path) == [1, 300]
  assert steps(tmp_path, tag="accuracy/0.0") == [300]
  one, two = (point.wall_time for point in found.Scalars("loss/client"))
  assert two - one == pytest.approx(10, abs=1e-3)


def test_without_the_package_it_is_one_line(tmp_path, monkeypatch):
  reports.event_library.cache_clear()
  monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
  with pytest.raises(UserError, match="or --config.tensorboard=False"):
    experiment.run(config("local"), tmp_path / "w")
  assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_without_the_package_a_run_can_do_without(tmp_path, monkeypatch):
  reports.event_library.cache_clear()
  monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
  experiment.run(config("local", tensorboard=False), tmp_path / "w")
  assert not (tmp_path / "w/tensorboard").exists()


def test_a_reader_that_waits_sees_no_round_twice(tmp_path):
  lines = [{**LINE, "round": n} for n in range(1, 8)]
  path = reports.rewrite(tmp_path, "own", lines[:4])
  reports.append(path, lines[4])
  waits = reader(tmp_path)
  for known in (3, 1):  # killed twice, each time with less
    path = reports.rewrite(tmp_path, "own", lines[:known])
    reports.append(path, lines[known])
    waits.Reload()
    rounds = list(range(1, known + 2))
    assert [x.step for x in waits.Scalars("loss/client")] == rounds
    assert steps(tmp_path) == rounds
  assert len(list(path.parent.iterdir())) <= 2


def test_a_run_that_goes_on_shows_every_round_once(tmp_path):
  resolved, place = config("local", checkpoint__every=2), tmp_path / "w"
  stopped(resolved, place, 3)
  (events,) = (place / reports.FOLDER / "own").iterdir()
  with events.open("ab") as file:
    file.write(b"cut short")
  experiment.run(resolved, place)
  agree(place)
  assert steps(place) == list(range(1, ROUNDS + 1))


@pytest.mark.slow
def test_a_finished_run_has_its_events_again(tmp_path):
  resolved, place = config("local"), tmp_path / "w"
  experiment.run(resolved, place)
  # Gone or not, it is there again, with nothing trained.
  for events in (place / reports.FOLDER / "own").iterdir():
    events.unlink()
  experiment.run(resolved, place)
  agree(place)


@pytest.mark.slow
def test_every_seed_has_its_own(tmp_path):
  experiment.run_seeds(tiny.resolved(own="local"), tmp_path / "s", [0, 3])
  for seed in (0, 3):
    agree(tmp_path / f"s/seed{seed}")
