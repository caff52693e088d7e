"""An estimate of a run's time from one timed round of each method."""

import sys
import time
from typing import Any

from splitjax.config.schema import Config
from splitjax.experiment.setup.tasks import build, fresh_network
from splitjax.experiment.setup.training_setup import TrainingSetup, make_setup
from splitjax.experiment.storage import history
from splitjax.experiment.trainers import measured
from splitjax.experiment.trainers.trainer import Trainer

HOUR = 3600.0


def measure(config: Config, runs: int) -> dict[str, Any]:
  """Compiles every method and times one of its rounds and evaluations.

  Args:
    config: the config of one run.
    runs: the number of runs: a grid's cells times its seeds. All are assumed to
      last equally long and to share compiled programs.

  Returns:
    "methods" maps each method's key to seconds: "compile", "round",
    "evaluation", "last" (the evaluation after the last round) and "run" (a
    whole run without compiling). "runs" repeats `runs`, and "hours" is the time
    of all runs together.
  """
  task = build(config)
  full = fresh_network(task)
  evaluations = -(-config.rounds // config.eval.every)
  methods, total = {}, 0.0
  for key in config.methods:
    doing = f"{key}: compiling, then a round and an evaluation"
    print(doing, file=sys.stderr, flush=True)  # stdout may be JSON
    setup = make_setup(task, key)
    with measured.chosen(setup):
      each = _timed(setup, full)
    each["run"] = config.rounds * each["round"]
    each["run"] += (evaluations - 1) * each["evaluation"] + each["last"]
    total += each["compile"] + runs * each["run"]
    methods[key] = each
  return {"methods": methods, "runs": runs, "hours": total / HOUR}


def _timed(setup: TrainingSetup, full: Any) -> dict[str, float]:
  """Returns the seconds of compilation, of one round and of evaluations."""
  config, trainer = setup.task.config, Trainer(setup)
  state = trainer.init(full)
  watch = time.monotonic()
  trainer.compile(state)
  compiled = time.monotonic()
  state, _ = trainer.step(state)
  times = {"compile": compiled - watch, "round": time.monotonic() - compiled}

  # An evaluation between rounds, and the last one.
  rows, last = setup.method.traits.rows, config.rounds
  due: list[Any] = [
    history.due(config, rows, number)
    for number in (min(config.eval.every, last), last)
  ]
  seconds = dict[tuple, float]()
  for each in due:
    if each not in seconds:
      begun = time.monotonic()
      trainer.evaluate(state, *each)
      seconds[each] = time.monotonic() - begun
  return times | {"evaluation": seconds[due[0]], "last": seconds[due[1]]}


def text(facts: dict[str, Any]) -> str:
  """Formats the times for a terminal."""
  lines = [
    "Seconds of one round, and from it of a whole run with its evaluations",
    f"  {'method':<24} {'compile':>8} {'round':>8} {'evaluation':>10}"
    f" {'the last':>8} {'run':>8}",
  ]
  for key, each in facts["methods"].items():
    lines.append(
      f"  {key:<24} {each['compile']:>8.1f} {each['round']:>8.2f}"
      f" {each['evaluation']:>10.2f} {each['last']:>8.2f}"
      f" {_duration(each['run']):>8}"
    )
  of = "one run" if facts["runs"] == 1 else f"all {facts['runs']} runs"
  return "\n".join([*lines, f"  {of}: {_duration(HOUR * facts['hours'])}"])


def _duration(seconds: float) -> str:
  """Formats a duration: in s below 1 min, in min below 0.1 h, else in h."""
  if seconds < 60:
    return f"{seconds:.1f} s"
  short = seconds < 0.1 * HOUR
  return f"{seconds / 60:.1f} min" if short else f"{seconds / HOUR:.1f} h"
