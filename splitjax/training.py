"""One method trained and evaluated: the loop over its rounds."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import (
  evaluate,
  hosts,
  rounds,
)
from splitjax.courses import Course
from splitjax.lane import Desk, Lane, Start
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


def train(
  world: World, course: Course, key: str, start: Start, desk: Desk
) -> tuple[State, Lane]:
  """Trains one method from where it stands to its last round.

  Args:
    world: what all methods share.
    course: the method's.
    key: of the method in the config.
    start: where it stands; its state is donated.
    desk: what it writes and whom it listens to.

  Returns:
    The last state, and what was written down on the way.

  Raises:
    Stopped: it was asked to; what is done is kept.
    UserError: a checkpoint could not be written, or clients were masked and
      on_nan is "stop".
  """
  lane = Lane(world, course, key, start, desk)
  heed(desk.stop, key, start.round, world.config.rounds)
  if hosts.first():
    say(f"{lane.labels[0]}: compiling")
  programs = compile_programs(world, course, start.state)
  lane.history.seconds["compile"] += programs.seconds

  def advance(state):
    state, told = programs.round(state, course.shards)
    return state, [jax.device_get(told)]  # waits for the round

  def look(state, _):
    return look_at(world, course, programs, state)

  def part(state, _):
    return state

  state = pass_rounds([lane], start, advance, look, part, lane.labels[0])
  return state, lane


def pass_rounds(
  lanes: Sequence[Lane],
  start: Start,
  advance: Callable[[Any], tuple[Any, list[Metrics]]],
  look: Callable[[Any, int], list[Exits]],
  part: Callable[[Any, int], State],
  label: str,
) -> Any:
  """The rounds of one run, or of several that go side by side.

  Args:
    lanes: one for each run.
    start: where they stand.
    advance: state -> the next and what the round says of each run.
    look: (state, run) -> its exits by row.
    part: (state, run) -> its own state.
    label: for the screen.

  Returns:
    The last state.
  """
  first, rounds = lanes[0], lanes[0].world.config.rounds
  state, keeper = start.state, lanes[0].desk.keeper
  heed(first.desk.stop, first.key, start.round, rounds)
  progress = Progress(label, rounds, not hosts.first(), start.round)
  for number in range(start.round + 1, rounds + 1):
    begun = time.monotonic()
    state, told = advance(state)
    seconds = (time.monotonic() - begun) / len(lanes)
    said = [
      lane.after(number, each, seconds, functools.partial(look, state, i))
      for i, (lane, each) in enumerate(zip(lanes, told, strict=True))
    ]
    progress.round(number, *said[0])
    last = number == rounds
    asked = None if last else _asked(first.desk.stop)
    if keeper.due(number, last) or asked:
      for i, lane in enumerate(lanes):
        lane.keep(number, part(state, i))
    if asked:
      progress.close()
      for lane in lanes:
        lane.desk.keeper.wait()
      raise Stopped(asked, where(first.key, number, rounds))
  progress.close()
  for i, lane in enumerate(lanes):
    lane.close()
    # Its last round was over when it began.
    lane.exits = lane.exits or look(state, i)
  return state


def heed(stop: Stop, key: str, done: int, rounds: int) -> None:
  """Raises Stopped before work that somebody does not want begun."""
  if done < rounds and (asked := _asked(stop)):
    raise Stopped(asked, where(key, done, rounds))


def _asked(stop: Stop) -> str | None:
  """Who asked to stop, this process or another."""
  asked = stop()
  if hosts.anybody(asked is not None):  # all of them take part in this
    return asked or "another process"
  return None


def where(key: str, done: int, rounds: int) -> str:
  """How far a method has come, in words."""
  return f"{key}: {done} of {rounds} rounds done"
