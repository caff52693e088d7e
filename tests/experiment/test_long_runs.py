"""Runs of many clients or rounds, or stopped: their logs and reports."""

import gc
import json
import tracemalloc

import numpy as np
import pytest
import tiny
from marks import slow
from runs import After, config, lines

import splitjax
from splitjax import experiment
from splitjax.config import Checkpoint
from splitjax.evaluation import Cost
from splitjax.experiment import CheckpointManager
from splitjax.types import Metrics


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
  metrics, cost = of_a_round(clients)
  line = experiment.log_line("own", 1, metrics, 0.25, cost)
  few = experiment.log_line(
    "own", 1, *of_a_round(3)[:1], 0.25, of_a_round(3)[1]
  )
  assert experiment.as_bytes(line) == experiment.as_bytes(few)
  # Summed up it is what each client did.
  whole = experiment.read_history(
    [line, json.loads(experiment.as_bytes(few))], clients
  )
  want = {"steps": 6, "bytes": 60, "served": 4, "visits": 2}
  for name, value in want.items():
    assert whole.clients[name][:4].tolist() == [value, 0, value, 0][:4]
    assert whole.clients[name].shape == (clients,)
  np.testing.assert_allclose(whole.clients["seconds"][[0, 2]], 6 / 7, rtol=1e-4)


def test_neither_memory_nor_checkpoints_grow_with_rounds(tmp_path):
  task = experiment.build(config(rounds=10_000, eval__every=10_000))
  setup = experiment.make_setup(task, "own")
  manager = CheckpointManager(tmp_path / "c", Checkpoint())
  one = experiment.Recorder(
    setup, tmp_path, manager, {"round": 0}, experiment.never
  )
  kept, records = [], []
  manager.save = lambda state, record: records.append(record)
  metrics, _ = of_a_round(6)
  tracemalloc.start()
  for number in range(1, 101):
    one.record(number, metrics, 0.1, None)
    if number % 50 == 0:
      gc.collect()
      kept.append(tracemalloc.get_traced_memory()[0])
      one.save_checkpoint(number, None)
  tracemalloc.stop()
  # A line kept in memory takes three kilobytes: 150 in all.
  assert kept[1] - kept[0] < 20_000
  small, large = (len(json.dumps(record)) for record in records)
  assert large - small < 20, "nothing but digits of numbers"
  assert experiment.read_history(one.log, 6).lines[-1]["round"] == 100
  manager.close()


def test_a_finished_method_s_record_does_not_hold_its_rounds(runs):
  about = json.loads((runs / "whole/methods/own/about.json").read_text())
  assert "lines" not in about and "lines" not in about["record"]


@pytest.mark.parametrize(
  ("chosen", "rounds"),
  [
    ({"keep": 2, "every": 3}, {3, 4}),  # the last round, whatever `every`
    *slow(({"keep": None, "best": "loss"}, None)),
  ],
)
def test_as_many_stay_as_are_asked_for(chosen, rounds, tmp_path):
  changes = {f"checkpoint__{name}": value for name, value in chosen.items()}
  place = tmp_path / "w/methods/own/checkpoints"
  for _ in range(2):  # trained, and found finished
    experiment.run(config("local", **changes), tmp_path / "w")
    kept = {int(path.name) for path in place.glob("*")}
    assert kept == rounds if rounds is not None else {3, 4} <= kept
  for each in kept:
    assert splitjax.load(tmp_path / "w", "own", round=each).state.round == each


def test_a_run_that_is_stopped_between_methods_goes_on(tmp_path):
  c = tiny.tiny(one="local", two="local")
  with pytest.raises(experiment.Stopped, match="two: 0 of 2"):
    experiment.run(tiny.resolved(c), tmp_path, stop=After(tmp_path, 2))
  assert not (tmp_path / "numbers.csv").exists()
  experiment.run(tiny.resolved(c), tmp_path)
  done = [(x["method"], x["round"]) for x in lines(tmp_path)]
  assert done == [(m, r) for m in ("one", "two") for r in (1, 2)]
