"""A run that ends early goes on as if it had not."""

import contextlib
import dataclasses
import json
import time

import jax
import pytest
from marks import slow
from refusals import refused
from runs import After, config, lines, same_run, stopped
from selected import timeless

import splitjax
from splitjax import UserError, experiment
from splitjax.config import Checkpoint

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


# One cohort of whole networks; personalised clients and exits, of whom some are
# sampled; an optimiser of means; two stages, and a memory of the client and of
# the server. With noise: personalised exits; heads of groups, clients in an
# order; one set of blocks for all.
@pytest.mark.parametrize(
  ("name", "changes"),
  [
    ("fedavg_ft", {}),
    *slow(
      ("splitgp", {**SAMPLED, "mean_optimizer__name": "fedadam"}),
      ("scaffold", {"participants_per_round": 3}),
      ("pgfedsplit", {"participants_per_round": 3}),
      ("harmony", NOISY),
      ("hydra", NOISY),
      ("supersfl", NOISY),
    ),
  ],
)
def test_two_rounds_and_two_are_four(name, changes, tmp_path):
  resolved = config(name, **changes)
  one = experiment.run(resolved, tmp_path / "one")
  stopped(resolved, tmp_path / "two", 2)
  two = experiment.run(resolved, tmp_path / "two")
  same_run(tmp_path / "one", tmp_path / "two")
  assert timeless(one) == timeless(two)
  assert one.runs[0].notes == two.runs[0].notes
  # A finished run of two rounds goes on, and is stopped after one more.
  experiment.run(dataclasses.replace(resolved, rounds=2), tmp_path / "more")
  stopped(resolved, tmp_path / "more", 1, 2)
  more = experiment.run(resolved, tmp_path / "more")
  same_run(tmp_path / "one", tmp_path / "more")
  assert timeless(one) == timeless(more)
  assert splitjax.load(tmp_path / "more", "own").config.rounds == 4


@pytest.mark.slow
def test_rounds_without_the_server_are_resumed(tmp_path):
  # They are drawn among all rounds, so that no more rounds can follow.
  resolved = config("supersfl", **NOISY, faults__server_down=0.5)
  one = experiment.run(resolved, tmp_path / "one")
  stopped(resolved, tmp_path / "two", 2)
  two = experiment.run(resolved, tmp_path / "two")
  same_run(tmp_path / "one", tmp_path / "two")
  assert timeless(one) == timeless(two)
  with pytest.raises(UserError, match="faults.server_down"):
    experiment.run(dataclasses.replace(resolved, rounds=5), tmp_path / "two")


@pytest.mark.slow
def test_a_schedule_goes_on_where_it_was(tmp_path):
  keep = {"optimizer__schedule": "cosine", "optimizer__warmup": 1.5}
  keep |= {"local_steps": 5, "mean_weights": "uniform"}
  resolved = config("splitgp", **keep)
  experiment.run(resolved, tmp_path / "one")
  for before in (0, 1, 2):
    stopped(resolved, tmp_path / "two", 1, before)
  experiment.run(resolved, tmp_path / "two")
  same_run(tmp_path / "one", tmp_path / "two")


def test_a_finished_run_keeps_no_checkpoint(runs):
  workdir = runs / "whole"
  names = {path.name for path in (workdir / "methods/own").iterdir()}
  assert names == {
    "state", "exits.npz", "about.json", "rounds.jsonl", "numbers.csv",
  }  # fmt: skip
  assert not (workdir / experiment.LOCK).exists()


def test_the_newest_stay_and_the_best(tmp_path):
  resolved = config(
    rounds=6,
    eval__every=1,
    checkpoint__best="0.8",
    checkpoint__keep_best=1,
    checkpoint__keep=2,
  )
  with pytest.raises(experiment.Stopped):
    experiment.run(resolved, tmp_path / "w", stop=After(tmp_path, 5))
  at = [line["accuracy"]["own"]["0.8"] for line in lines(tmp_path / "w")]
  best = max(range(5), key=lambda i: (at[i], i)) + 1
  place = tmp_path / "w/methods/own/checkpoints"
  kept = {int(path.name) for path in place.iterdir()}
  assert kept == {4, 5, best}
  experiment.run(resolved, tmp_path / "w")
  at = [line["accuracy"]["own"]["0.8"] for line in lines(tmp_path / "w")]
  best = max(range(6), key=lambda i: (at[i], i)) + 1
  assert {int(path.name) for path in place.iterdir()} == {5, 6, best}
  trained = splitjax.load(tmp_path / "w", "own", round=best)
  assert int(trained.state.round) == best and trained.thresholds is None
  with pytest.raises(UserError, match=r"no checkpoint after round 99"):
    splitjax.load(tmp_path / "w", "own", round=99)


@contextlib.contextmanager
def record_of(place):
  """The record of a checkpoint, which is changed."""
  path = place / "record.json"
  record = json.loads(path.read_text())
  yield record
  path.write_text(json.dumps(record))


@pytest.mark.slow
def test_the_best_outlives_the_process_that_wrote_it(tmp_path):
  resolved = config(checkpoint__best="loss", checkpoint__keep=1)
  place = tmp_path / "w/methods/own/checkpoints"
  stopped(resolved, tmp_path / "w", 1)
  with record_of(place / "1") as record:
    record["metrics"]["loss"] = 0.0  # no later round is better
  for before in (1, 2):
    stopped(resolved, tmp_path / "w", 1, before)
  assert sorted(path.name for path in place.iterdir()) == ["1", "3"]
  experiment.run(resolved, tmp_path / "w")
  assert sorted(path.name for path in place.iterdir()) == ["1", "4"]
  # What was asked for then holds, whatever the next command says.
  experiment.run(config(), tmp_path / "w")
  assert sorted(path.name for path in place.iterdir()) == ["1", "4"]


def test_an_unknown_best_is_refused(tmp_path):
  with refused("checkpoint.best"):
    experiment.run(config(checkpoint__best="9"), tmp_path / "w")
  assert not (tmp_path / "w").exists()


def test_how_often_is_kept_is_no_other_run(runs, tmp_path, capsys):
  stopped(config(), tmp_path / "w", 2)
  experiment.run(config(checkpoint__every=3), tmp_path / "w")
  assert "resumes after round 2" in capsys.readouterr().out
  same_run(runs / "whole", tmp_path / "w")


def test_another_version_is_said(tmp_path, capsys):
  stopped(config(), tmp_path / "w", 2)
  with record_of(tmp_path / "w/methods/own/checkpoints/2") as record:
    record["versions"]["jax"] = "0.1"
  results = experiment.run(config(), tmp_path / "w")
  said = f"from round 3 on with jax {jax.__version__} instead of 0.1"
  assert said in capsys.readouterr().out
  assert any(said in note for note in results.runs[0].notes)


@pytest.mark.slow
def test_seeds_go_on_too(tmp_path):
  resolved = config("local")
  with pytest.raises(experiment.Stopped):
    stop = After(tmp_path / "w", 6)
    experiment.run_seeds(resolved, tmp_path / "w", [0, 1], stop=stop)
  assert (tmp_path / "w/seed0/numbers.csv").exists()
  assert not (tmp_path / "w/seed1/numbers.csv").exists()
  two = experiment.run_seeds(resolved, tmp_path / "w", [0, 1])
  one = experiment.run_seeds(resolved, tmp_path / "one", [0, 1])
  assert timeless(one) == timeless(two)
  for n in (0, 1):
    assert lines(tmp_path / f"w/seed{n}") == lines(tmp_path / f"one/seed{n}")


def test_by_the_clock(tmp_path, monkeypatch):
  now = [0.0]
  monkeypatch.setattr(time, "monotonic", lambda: now[0])
  chosen = Checkpoint(every="auto")
  manager = experiment.CheckpointManager(tmp_path / "c", chosen)
  for now[0], due in ((59.0, False), (61.0, True)):
    assert manager.due(3, last=False) is due
  assert not manager.due(4, last=True), "the trained method is saved"
  manager.save({"x": jax.numpy.ones(2)}, {"round": 3})
  assert not manager.due(4, last=False), "a minute from the last"
  monkeypatch.undo()
  manager.close()


@pytest.mark.parametrize("name", ["fedavg_ft", *slow("pgfedsplit")])
def test_what_is_kept_is_all_of_the_state(name, tmp_path):
  # Whatever a State has, a checkpoint has: leaves by name.
  resolved = config(name)
  stopped(resolved, tmp_path / "w", 1)
  place = tmp_path / "w/methods/own/checkpoints/1"
  record = json.loads((place / "record.json").read_text())
  assert record["round"] == 1
  task = experiment.build(resolved)
  method = experiment.make_method(resolved, task.network.backbone, "own")
  state = experiment.abstract_state(method, task.network)
  kept = json.loads((place / "state/_METADATA").read_text())
  kinds = [
    leaf["value_metadata"]["value_type"]
    for leaf in kept["tree_metadata"].values()
  ]
  arrays = [kind for kind in kinds if kind == "jax.Array"]
  assert len(arrays) == len(jax.tree.leaves(state)), set(kinds)
  assert {"digest", "versions", "devices", "history"} <= record.keys()
