"""One method trained and evaluated: the loop over its rounds."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import (
  evaluate,
  gate,
  hosts,
  metrics,
  report,
  rounds,
  tables,
  trouble,
)
from splitjax.courses import Course
from splitjax.progress import Progress, say
from splitjax.rounds import Metrics
from splitjax.types import Exits, State
from splitjax.world import World


class Programs(NamedTuple):
  """The two compiled programs of a method.

  Attributes:
    round: (state, shards) -> (state, Metrics); the state is donated.
    look: (state, shards, pool, shown) -> one Exits per result row.
    seconds: that tracing and compiling both took.
  """

  round: Any
  look: Any
  seconds: float


@dataclasses.dataclass
class History:
  """What a training leaves for the report.

  Attributes:
    learning: row label -> round, loss and accuracy by test set, as report
      has it.
    wire: message name -> bytes of a round, summed over the rounds so far.
    seconds: compile, train, evaluate.
    notes: what a reader has to be told.
    masked: round and client numbers, where updates were not finite.
  """

  learning: dict[str, dict[str, Any]]
  wire: dict[str, float]
  seconds: dict[str, float]
  notes: list[str]
  masked: list[tuple[int, list[int]]] = dataclasses.field(default_factory=list)


def compile_programs(world: World, course: Course, state: State) -> Programs:
  """Traces and compiles a method's round and its evaluation, once each."""
  start = time.monotonic()
  step = make_round(world, course)
  look = make_look(world, course)
  return Programs(
    step.lower(state, course.shards).compile(),
    look.lower(state, course.shards, world.pool, world.shown).compile(),
    time.monotonic() - start,
  )


def make_round(world: World, course: Course) -> Any:
  """The round of a course, jitted for the devices of its world."""
  return rounds.make_round(
    course.method,
    course.plans,
    course.fleet,
    faults=world.config.faults,
    mesh=world.mesh,
    deterministic=world.config.system.deterministic,
  )


def make_look(world: World, course: Course) -> Any:
  """The evaluation of a course, jitted for the devices of its world."""
  return evaluate.make_look(
    course.method,
    course.plans,
    course.fleet,
    mesh=world.mesh,
    deterministic=world.config.system.deterministic,
  )


def look_at(
  world: World, course: Course, programs: Programs, state: State
) -> list[Exits]:
  """Evaluates a state: one Exits per row, [N, K] each, on the host."""
  return on_host(
    world, programs.look(state, course.shards, world.pool, world.shown)
  )


def on_host(world: World, found: Sequence[Exits]) -> list[Exits]:
  """What an evaluation found, [N, K] each, without the padding."""
  size = world.trial.rows.shape[1]
  return [
    Exits(*(np.asarray(leaf)[:, :size] for leaf in exits)) for exits in found
  ]


def judge(world: World, course: Course, exits: Exits) -> dict[str, float]:
  """Accuracy on every test set at the oracle's thresholds, over clients."""
  swept = gate.sweep(
    exits,
    world.trial.label,
    world.trial.sets,
    world.thresholds,
    course.method.answers,
  )
  accuracy = metrics.over_clients(gate.oracle(swept, world.thresholds).accuracy)
  return dict(zip(world.trial.names, map(float, accuracy), strict=True))


def train(
  world: World, course: Course, key: str, state: State, log: Path
) -> tuple[State, list[Exits], Programs, History]:
  """Trains one method.

  Args:
    world: what all methods share.
    course: the method's.
    key: of the method in the config.
    state: before the first round; donated.
    log: metrics.jsonl; process 0 appends one line per round.

  Returns:
    The last state, the last exits by row, the programs and the history.
  """
  config, labels = world.config, row_labels(world, course, key)
  quiet = not hosts.first()
  if not quiet:
    say(f"{labels[0]}: compiling")
  programs = compile_programs(world, course, state)
  history = _fresh_history(world, labels, programs.seconds)
  progress = Progress(labels[0], config.rounds, quiet)
  exits: list[Exits] = []
  known: dict[str, dict[str, float]] = {}
  with Path(os.devnull if quiet else log).open("a") as lines:
    passing = _rounds(programs, course, state, config.rounds)
    for number, (last, told, seconds) in enumerate(passing, start=1):
      line = _line(key, number, told, seconds)
      _note(history, labels[0], line, config.on_nan)
      if number % config.eval.every == 0 or number == config.rounds:
        start = time.monotonic()
        exits = look_at(world, course, programs, last)
        line["accuracy"] = {
          label: judge(world, course, each)
          for label, each in zip(labels, exits, strict=True)
        }
        history.seconds["evaluate"] += time.monotonic() - start
        _learn(history, line)
      known = line.get("accuracy", known)
      lines.write(json.dumps(report.plain(line), allow_nan=False) + "\n")
      lines.flush()
      progress.round(number, _said(line, known), "accuracy" in line)
  progress.close()
  if history.masked:
    history.notes.append(trouble.summary(labels[0], history.masked))
  history.wire = {k: v / config.rounds for k, v in history.wire.items()}
  return last, exits, programs, history


def row_labels(world: World, course: Course, key: str) -> list[str]:
  """The labels of the result rows that a method gives."""
  label = world.config.methods[key].label or key
  return [label + row.suffix for row in course.method.rows]


def _rounds(
  programs: Programs, course: Course, state: State, count: int
) -> Iterator[tuple[State, Metrics, float]]:
  """Runs the rounds one by one; each with the seconds it took."""
  for _ in range(count):
    start = time.monotonic()
    state, told = programs.round(state, course.shards)
    told = jax.device_get(told)  # waits for the round
    yield state, told, time.monotonic() - start


def _fresh_history(
  world: World, labels: list[str], compiling: float
) -> History:
  learning: dict[str, dict[str, Any]] = {
    label: {"round": [], "loss": [], "accuracy": {}} for label in labels
  }
  for name in world.trial.names:
    for row in learning.values():
      row["accuracy"][name] = []
  seconds = {"train": 0.0, "compile": compiling, "evaluate": 0.0}
  return History(learning, {}, seconds, [])


def _line(
  key: str, number: int, told: Metrics, seconds: float
) -> dict[str, Any]:
  """One line of metrics.jsonl."""
  line = {
    "method": key,
    "round": number,
    "loss": {name: float(x) for name, x in told.losses.items()},
    "wire": {name: float(x) for name, x in told.wire.items()},
    "participants": int(told.participants),
    "masked": np.flatnonzero(told.masked).tolist(),
    "seconds": seconds,
  }
  if told.faults:
    line["faults"] = {name: int(x) for name, x in told.faults.items()}
  return line


def _note(
  history: History, label: str, line: dict[str, Any], on_nan: str
) -> None:
  """Adds a round's line to the history; says so once if clients were masked.

  Raises:
    UserError: clients were masked, and on_nan is "stop".
  """
  history.seconds["train"] += line["seconds"]
  for name, size in line["wire"].items():
    history.wire[name] = history.wire.get(name, 0.0) + size
  if not line["masked"]:
    return
  about = label, line["round"], line["masked"]
  if on_nan == "stop":
    raise trouble.stopped(*about)
  if not history.masked:
    history.notes.append(trouble.first(*about))
    if hosts.first():
      say(history.notes[-1])
  history.masked.append((line["round"], line["masked"]))


def _learn(history: History, line: dict[str, Any]) -> None:
  """Adds an evaluated round to the learning curves."""
  for label, accuracy in line["accuracy"].items():
    row = history.learning[label]
    row["round"].append(line["round"])
    row["loss"].append(sum(line["loss"].values()))
    for name, value in accuracy.items():
      row["accuracy"][name].append(value)


def _said(line: dict[str, Any], known: dict[str, dict[str, float]]) -> str:
  """The round's losses and the last accuracies, for the screen."""
  losses = " ".join(f"{k} {v:.3f}" for k, v in line["loss"].items())
  said = f"loss: {losses}"
  for label, accuracy in known.items():
    ends = dict.fromkeys([list(accuracy)[0], list(accuracy)[-1]])
    both = ", ".join(
      f"{tables.heading(name)} {100 * accuracy[name]:.1f}" for name in ends
    )
    said += f"  {label}: {both} %"
  return said
