"""Runs side by side in one program, against the same runs singly."""

import json

import jax
import numpy as np
import pytest
import tiny
from runs import After, lines

import splitjax
from splitjax import PARTITIONS, UserError
from splitjax.config import sweep
from splitjax.experiment import grid, runner
from splitjax.experiment.console import signals
from splitjax.experiment.parallel_runs import grouping, lowering
from splitjax.experiment.parallel_runs.padding import Run
from splitjax.experiment.setup import tasks, training_setup
from splitjax.models import target

pytestmark = pytest.mark.usefixtures("traced_once")

SEEDS = [0, 1, 5]
TWO = [0, 5]
TOLERANCE = 2e-5


def draft(name, ragged=False):
  c = tiny.tiny(own=name)
  c.rounds, c.eval.every, c.checkpoint.every = 3, 2, 1
  if ragged:
    c.data.partition = splitjax.spec(
      PARTITIONS, "dirichlet", alpha=0.5, min_samples=12
    )
  return c


def both(c, tmp_path):
  """The same seeds singly and side by side: their two workdirs."""
  c.system.seeds_batched = False
  one = runner.run_seeds(tiny.resolved(c), tmp_path / "one", TWO)
  c.system.seeds_batched = True
  two = runner.run_seeds(tiny.resolved(c), tmp_path / "two", TWO)
  assert [r["label"] for r in one["rows"]] == [r["label"] for r in two["rows"]]
  return tmp_path / "one", tmp_path / "two"


def agree(one, two, key="own"):
  """Asserts that two workdirs hold the same method but for rounding."""
  for n in TWO:
    pair = [place / f"seed{n}" for place in (one, two)]
    found = ([x for x in lines(p) if x["method"] == key] for p in pair)
    for a, b in zip(*found, strict=True):
      assert (a["round"], a["wire"]) == (b["round"], b["wire"])
      assert a["participants"] == b["participants"]
      for name, loss in a["loss"].items():
        assert b["loss"][name] == pytest.approx(loss, abs=TOLERANCE)
    kept = [splitjax.load(place, key) for place in pair]
    halves = [(k.state.clients, k.state.server, k.personal) for k in kept]
    assert jax.tree.structure(halves[0]) == jax.tree.structure(halves[1])
    for x, y in zip(*map(jax.tree.leaves, halves), strict=True):
      np.testing.assert_allclose(x, y, atol=TOLERANCE)


@pytest.mark.slow
def test_side_by_side_as_accelerators_do(tmp_path, monkeypatch):
  """As a CPU computes them they are the same in the tests below."""
  monkeypatch.setattr(lowering, "vmapped", lambda: True)
  c = draft("harmony")
  c.rounds = 2
  one, two = both(c, tmp_path)
  agree(one, two)
  report = json.loads((two / "report.json").read_text())
  assert min(report["rows"][0]["seconds"].values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["splitnn", "pgfedsplit"])
def test_ragged_clients_are_padded(name, tmp_path):
  """One after another at one server, and each with its own."""
  c = draft(name, ragged=True)
  if name == "pgfedsplit":  # with the paper's it diverges at this learning rate
    c.methods.own.lam = 0.1
  c.rounds, c.participants_per_round = 2, 4
  c.eval.holdout = 0.2  # so seeds have means and deviations of their own
  one, two = both(c, tmp_path)
  agree(one, two)
  sizes = set()
  for n in TWO:
    c.seed = n
    parts = splitjax.experiment.setup.tasks.build(
      tiny.resolved(c)
    ).test_sets.parts
    sizes.add(max(map(len, parts)))
  assert len(sizes) > 1, "padding was tried"


@pytest.mark.slow
def test_stopped_and_gone_on(tmp_path):
  c = draft("local")
  c.system.seeds_batched = True
  resolved, place = tiny.resolved(c), tmp_path / "w"
  with pytest.raises(signals.Stopped, match="1 of 3 rounds"):
    stop = After(place, len(SEEDS))
    runner.run_seeds(resolved, place, SEEDS, stop=stop)
  # One of them has lost its only checkpoint, and says so once.
  kept = place / "seed1/methods/own/checkpoints/1/record.json"
  kept.write_text("{}")
  with pytest.raises(UserError, match="no checkpoint is sound"):
    runner.run_seeds(resolved, place, SEEDS)
  runner.run_seeds(resolved, place, SEEDS)
  runner.run_seeds(resolved, tmp_path / "x", SEEDS)
  for n in SEEDS:
    found = lines(place / f"seed{n}")
    assert [x["round"] for x in found] == [1, 2, 3]
    for a, b in zip(found, lines(tmp_path / f"x/seed{n}"), strict=True):
      assert a["loss"]["client"] == pytest.approx(b["loss"]["client"], abs=1e-5)


@pytest.mark.slow
def test_one_that_diverges_does_not_cost_the_others(tmp_path):
  c, place = draft("fedavg"), tmp_path / "w"
  c.checkpoint.every, c.on_nan, c.system.settings_batched = 100, "stop", 2
  cells = sweep.plan(c.to_dict(), ["optimizer.lr=0.05,1e30"]).cells
  with pytest.raises(
    UserError, match=r"in round 1 .* not finite \(on_nan=stop"
  ):
    grid.run(cells, place, [0])
  kept = sorted(x.parent.name for x in place.glob("**/record.json"))
  assert kept == ["1"] and len(lines(next(place.glob("lr=0.05/seed0")))) == 1


@pytest.mark.slow
def test_nobody_loses_rounds_to_the_others(tmp_path, capsys):
  c = draft("local")
  c.seed, place = 0, tmp_path / "w"
  with pytest.raises(signals.Stopped, match="2 of 3 rounds"):
    runner.run_seeds(
      tiny.resolved(c), place, SEEDS, stop=After(place, 2)
    )  # one after another: the first is two rounds ahead
  c.system.seeds_batched = True
  runner.run_seeds(tiny.resolved(c), place, SEEDS)
  said = capsys.readouterr().out
  assert "resumes after round 2" in said and "own, seeds 1, 5: round 3" in said


def test_it_is_the_same_run(tmp_path, monkeypatch):
  # What was trained one after another is not trained again, nor looked at.
  c = draft("local")
  runner.run_seeds(tiny.resolved(c), tmp_path / "w", SEEDS)
  c.system.seeds_batched = True
  monkeypatch.setattr(grouping.training_setup, "make_setup", None)
  runner.run_seeds(tiny.resolved(c), tmp_path / "w", SEEDS)


def test_seeds_that_cannot_go_side_by_side(tmp_path):
  c = draft("local", ragged=True)
  c.system.seeds_batched, c.batch_size = True, 1000
  with pytest.raises(UserError, match="differ in batch"):
    runner.run_seeds(tiny.resolved(c), tmp_path / "w", SEEDS)
  c.batch_size = 10
  little = target.current()._replace(memory=10**5)
  with pytest.raises(UserError, match="3 runs side by side need about"):
    with target.aimed_at(little):
      runner.run_seeds(tiny.resolved(c), tmp_path / "u", SEEDS)
  c.system.deterministic, c.system.clients_per_chunk = True, 1
  with pytest.raises(UserError, match="seeds_batched=True excludes system.det"):
    tiny.resolved(c)
  c.system.seeds_batched, c.system.settings_batched = False, 2
  with pytest.raises(UserError, match="settings_batched=2 excludes system.det"):
    tiny.resolved(c)


def told_of(**changes):
  """The kind and the text of a run, of a config with changes."""
  c = tiny.changed(draft("splitgp"), **changes)
  task = tasks.build(tiny.resolved(c))
  made = training_setup.make_setup(task, "own")
  kind = grouping._kind(Run("", "", made))
  return kind, lowering.round_text(made)


@pytest.mark.slow
def test_what_differs_in_more_than_numbers_is_another_program():
  usual = told_of()
  for same in (
    {"seed": 5},
    {"init": "torch"},
    {"methods__own__lam": 0.3},
    {"optimizer__lr": 0.1},
  ):
    assert told_of(**same) == usual, same
  for other in (
    {"local_epochs": 3},
    {"data__augment": "crop_flip"},
    {"batch_size": 5},
    {"participants_per_round": 3},
    {"faults__dropout": 0.5},
  ):
    assert told_of(**other) != usual, other


def swept(c, place, count):
  """A grid over lam and batch_size; what it printed."""
  c.rounds, c.system.settings_batched = 2, count
  values = "methods.own.lam=0.9,0.0", "batch_size=5,10"
  cells = sweep.plan(c.to_dict(), values).cells
  return grid.run(cells, place, [0, 5])


@pytest.mark.slow
def test_settings_side_by_side_as_one_after_another(tmp_path, capsys):
  """All λ are one program, also λ = 0; each batch size has other shapes."""
  c = draft("splitgp")
  one = swept(c, tmp_path / "one", 1)
  capsys.readouterr()
  two = swept(c, tmp_path / "two", 2)
  said = capsys.readouterr().out
  keys = [f"own_lam_0_{digit}" for digit in (9, 0)]
  for cell in (cell["name"] for cell in one["cells"]):
    for key in keys:
      agree(tmp_path / "one" / cell, tmp_path / "two" / cell, key)
  assert [cell["name"] for cell in two["cells"]] == [
    cell["name"] for cell in one["cells"]
  ]
  # Of each batch size four runs, two at a time.
  assert said.count("compiling") == 2
  assert said.count("reuses the round compiled for") == 2
