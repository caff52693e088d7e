"""One method trained and evaluated: the loop over its rounds."""

import json
import os
import time
from collections.abc import Sequence
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
from splitjax.checkpoint import Keeper
from splitjax.courses import Course
from splitjax.progress import Progress, say
from splitjax.rounds import Metrics
from splitjax.signals import Stop, Stopped
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


class History(NamedTuple):
  """What a training leaves for the report.

  Attributes:
    learning: row label -> round, loss and accuracy by test set, as report
      has it.
    wire: message name -> bytes, summed over the rounds so far.
    seconds: compile, train, evaluate.
    notes: what a reader has to be told.
    masked: round and client numbers, where updates were not finite.
  """

  learning: dict[str, dict[str, Any]]
  wire: dict[str, float]
  seconds: dict[str, float]
  notes: list[str]
  masked: list[tuple[int, list[int]]]


class Start(NamedTuple):
  """Where a method stands.

  Attributes:
    state: before its next round.
    round: rounds done.
    lines: of metrics.jsonl, one for each.
    history: what they left for the report.
  """

  state: State
  round: int
  lines: list[dict[str, Any]]
  history: History


class Desk(NamedTuple):
  """What a training writes and whom it listens to.

  Attributes:
    log: metrics.jsonl; process 0 appends one line per round.
    keeper: of its checkpoints.
    whose: what a checkpoint says of the run it belongs to, JSON.
    stop: who asked to stop, if anybody.
  """

  log: Path
  keeper: Keeper
  whose: dict[str, Any]
  stop: Stop


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
  world: World, course: Course, key: str, start: Start, desk: Desk
) -> tuple[State, list[Exits], History]:
  """Trains one method from where it stands to its last round.

  Args:
    world: what all methods share.
    course: the method's.
    key: of the method in the config.
    start: where it stands; its state is donated.
    desk: what it writes and whom it listens to.

  Returns:
    The last state, the last exits by row and the history.

  Raises:
    Stopped: it was asked to; what is done is kept.
    UserError: a checkpoint could not be written.
  """
  config, labels = world.config, row_labels(world, course, key)
  quiet = not hosts.first()
  if not quiet:
    say(f"{labels[0]}: compiling")
  programs = compile_programs(world, course, start.state)
  history, told = start.history, list(start.lines)
  history.seconds["compile"] += programs.seconds
  progress = Progress(labels[0], config.rounds, quiet, start.round)
  if start.round < config.rounds and (asked := _asked(desk)):
    raise Stopped(asked, _where(key, start.round, config.rounds))
  state, exits = start.state, list[Exits]()
  known: dict[str, dict[str, float]] = {}
  with Path(os.devnull if quiet else desk.log).open("a") as log:
    for number in range(start.round + 1, config.rounds + 1):
      state, line = _round(programs, course, key, number, state)
      _note(history, labels[0], line, config.on_nan)
      last = number == config.rounds
      if number % config.eval.every == 0 or last:
        exits = _evaluate(world, course, programs, state, labels, line, history)
        known = line["accuracy"]
      line = report.plain(line)
      told.append(line)
      log.write(json.dumps(line, allow_nan=False) + "\n")
      log.flush()
      progress.round(number, _said(line, known), "accuracy" in line)
      asked = None if last else _asked(desk)
      if desk.keeper.due(number, last) or asked:
        record = {**desk.whose, "lines": told, "history": history._asdict()}
        ranks = _ranks(line, labels[0])
        desk.keeper.save(number, state, report.plain(record), ranks)
      if asked:
        progress.close()
        desk.keeper.wait()
        raise Stopped(asked, _where(key, number, config.rounds))
  progress.close()
  if history.masked:
    history.notes.append(trouble.summary(labels[0], history.masked))
  if not exits:  # its last round was over when it began
    exits = look_at(world, course, programs, state)
  return state, exits, history


def _asked(desk: Desk) -> str | None:
  """Who asked to stop, this process or another."""
  asked = desk.stop()
  if hosts.anybody(asked is not None):  # all of them take part in this
    return asked or "another process"
  return None


def _where(key: str, done: int, rounds: int) -> str:
  return f"{key}: {done} of {rounds} rounds done"


def _ranks(line: dict[str, Any], label: str) -> dict[str, float]:
  """Metric name -> value of a round, as `config.Checkpoint.best` names them."""
  loss = sum(x for x in line["loss"].values() if x is not None)
  found = {"loss": loss, **line.get("accuracy", {}).get(label, {})}
  if None in line["loss"].values():
    found.pop("loss")
  return {k: v for k, v in found.items() if v is not None}


def row_labels(world: World, course: Course, key: str) -> list[str]:
  """The labels of the result rows that a method gives."""
  label = world.config.methods[key].label or key
  return [label + row.suffix for row in course.method.rows]


def _round(
  programs: Programs, course: Course, key: str, number: int, state: State
) -> tuple[State, dict[str, Any]]:
  """Runs a round; the state is donated. Returns the next and its log line."""
  start = time.monotonic()
  state, told = programs.round(state, course.shards)
  told = jax.device_get(told)  # waits for the round
  return state, _line(key, number, told, time.monotonic() - start)


def _evaluate(
  world: World,
  course: Course,
  programs: Programs,
  state: State,
  labels: list[str],
  line: dict[str, Any],
  history: History,
) -> list[Exits]:
  """Evaluates a state; accuracies go into the line and the history."""
  start = time.monotonic()
  exits = look_at(world, course, programs, state)
  line["accuracy"] = {
    label: judge(world, course, each)
    for label, each in zip(labels, exits, strict=True)
  }
  history.seconds["evaluate"] += time.monotonic() - start
  _learn(history, line)
  return exits


def fresh_history(world: World, labels: list[str]) -> History:
  """The history of a method that has not begun."""
  learning: dict[str, dict[str, Any]] = {
    label: {"round": [], "loss": [], "accuracy": {}} for label in labels
  }
  for name in world.trial.names:
    for row in learning.values():
      row["accuracy"][name] = []
  seconds = {"train": 0.0, "compile": 0.0, "evaluate": 0.0}
  return History(learning, {}, seconds, [], [])


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
