"""More rounds of a finished run, an early end, and rounds that are kept."""

import dataclasses
import shutil

import pytest
import tiny
from broken import data_file, flip
from marks import slow
from refusals import refused
from runs import config, same_run, stopped
from selected import timeless

import splitjax
from splitjax import UserError, experiment


@pytest.fixture(scope="module")
def half(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("half") / "w"
  experiment.run(dataclasses.replace(config("local"), rounds=2), workdir)
  return workdir


def test_a_kill_while_a_run_is_opened_again_loses_nothing(half, tmp_path):
  workdir, place = tmp_path / "w", tmp_path / "w/methods/own"
  shutil.copytree(half, workdir)
  about = (place / "about.json").read_bytes()
  stopped(config("local"), workdir, 1, 2)
  (place / "about.json").write_bytes(about)  # before it was deleted
  shutil.rmtree(place / "checkpoints/3")
  experiment.run(config("local"), workdir)
  experiment.run(config("local"), tmp_path / "one")
  same_run(tmp_path / "one", workdir)


@pytest.mark.parametrize(
  ("then", "now", "field"),
  [
    ({}, {"rounds": 1}, "rounds"),
    ({}, {"optimizer__lr": 0.5}, "optimizer.lr"),
    *slow(
      (
        {"optimizer__schedule": "cosine"},
        {"optimizer__schedule": "cosine"},
        "optimizer.schedule",
      )
    ),
  ],
)
def test_another_run_is_not_continued(then, now, field, half, tmp_path):
  place = half
  if then:
    place = tmp_path / "w"
    experiment.run(
      dataclasses.replace(config("local", **then), rounds=2), place
    )
  before = (place / "config.json").read_bytes()
  with refused("--workdir") as error:
    experiment.run(config("local", **now), place)
  assert field in str(error.value)
  assert (place / "config.json").read_bytes() == before


def test_damaged_states_are_not_continued(half, tmp_path):
  shutil.copytree(half, tmp_path / "w")
  flip(data_file(tmp_path / "w/methods/own"))
  with pytest.raises(UserError, match="no checkpoint is sound; delete"):
    experiment.run(config("local"), tmp_path / "w")
  assert (tmp_path / "w/methods/own/about.json").exists()


@pytest.mark.slow
def test_rows_of_fewer_rounds_are_named(tmp_path):
  c = tiny.tiny(one="local", two="fedavg")
  two = tiny.resolved(c)
  experiment.run(two, tmp_path / "w")
  one = {"one": two.methods["one"]}
  more = dataclasses.replace(two, rounds=3, methods=one)
  notes = experiment.run(more, tmp_path / "w").runs[0].notes
  (said,) = (x for x in notes if "until now" in x)
  assert said.startswith("two was trained for 2 of 3 rounds")


@pytest.mark.slow
def test_seeds_of_fewer_rounds_wait(tmp_path):
  two = dataclasses.replace(config("local"), rounds=2)
  experiment.run_seeds(two, tmp_path / "w", (0, 1))
  for seeds in ((0,), (0, 1)):
    merged = experiment.run_seeds(config("local"), tmp_path / "w", seeds)
    assert merged.seeds == list(seeds)
    assert merged.numbers["round"].max() == 4
    again = splitjax.report_again(tmp_path / "w")
    assert again.seeds == list(seeds)


@pytest.mark.slow
def test_the_last_evaluation_of_fewer_rounds_is_none_between(tmp_path):
  chosen = {"rounds": 6, "eval__every": 3, "eval__samples": 5}
  experiment.run(config("local", **{**chosen, "rounds": 4}), tmp_path / "two")
  two = experiment.run(config("local", **chosen), tmp_path / "two")
  one = experiment.run(config("local", **chosen), tmp_path / "one")
  assert timeless(one) == timeless(two)


def test_networks_of_chosen_rounds_load(tmp_path):
  chosen = {"checkpoint__rounds": (1, 3), "checkpoint__every": 50}
  experiment.run(config("local", rounds=5, **chosen), tmp_path / "w")
  kept = {p.name for p in (tmp_path / "w/methods/own/checkpoints").iterdir()}
  assert {"1", "3"} <= kept and "2" not in kept
  for number in (1, 3):
    found = splitjax.load(tmp_path / "w", "own", round=number)
    assert int(found.state.round) == number
