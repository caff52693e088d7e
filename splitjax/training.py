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
  inside,
  proxies,
  rounds,
)
from splitjax.courses import Course
from splitjax.lane import Desk, Lane, Start
from splitjax.progress import Progress, say
from splitjax.rounds import Metrics
from splitjax.signals import Stop, Stopped
from splitjax.types import Exits, Seen, State
from splitjax.world import World


class Looks(NamedTuple):
  """The evaluation of a method.

  Attributes:
    test: (state, shards, pool, shown) -> one Exits per result row.
    aside: (state, shards, image, aside) -> likewise, of held-out samples and
      their proxies; None where no threshold is chosen on them.
  """

  test: Any
  aside: Any = None


class Programs(NamedTuple):
  """The compiled programs of a method.

  Attributes:
    round: (state, shards) -> (state, Metrics); the state is donated.
    looks: the evaluation.
    seconds: that tracing and compiling all took.
  """

  round: Any
  looks: Looks
  seconds: float


def compile_programs(world: World, course: Course, state: State) -> Programs:
  """Traces and compiles a method's round and its evaluation, once each."""
  start = time.monotonic()
  step = make_round(world, course)
  looks, given = make_looks(world, course), (state, course.shards)
  step = step.lower(*given).compile()
  test = looks.test.lower(*given, world.pool, world.shown).compile()
  aside = looks.aside
  if aside is not None:
    aside = aside.lower(*given, world.image, world.aside).compile()
  return Programs(step, Looks(test, aside), time.monotonic() - start)


def make_round(world: World, course: Course, **how: Any) -> Any:
  """The round of a course, jitted for the devices of its world."""
  return rounds.make_round(
    course.method,
    course.plans,
    course.fleet,
    faults=world.config.faults,
    mesh=world.mesh,
    deterministic=world.config.system.deterministic,
    **how,
  )


def make_look(world: World, course: Course, **what: Any) -> Any:
  """The evaluation of a course, jitted for the devices of its world."""
  return evaluate.make_look(
    course.method,
    course.plans,
    course.fleet,
    mesh=world.mesh,
    deterministic=world.config.system.deterministic,
    **what,
  )


def make_looks(world: World, course: Course) -> Looks:
  """Both evaluations of a course; methods with one exit need but one."""
  aside = None
  if world.aside is not None and len(course.method.answers) > 1:
    show = proxies.with_proxies(world.config.eval.proxy)
    aside = make_look(world, course, show=show)
  return Looks(make_look(world, course), aside)


def look_at(
  world: World, course: Course, looks: Looks, state: State
) -> list[Seen]:
  """Evaluates a state: what each row's networks said, on the host."""
  given = state, course.shards
  size = world.trial.rows.shape[1]
  test = [
    _on_host(exits, lambda x: x[:, :size])
    for exits in looks.test(*given, world.pool, world.shown)
  ]
  if looks.aside is None:
    return list(map(Seen, test))
  found = looks.aside(*given, world.image, world.aside)
  return [
    Seen(each, *_apart(world, both))
    for each, both in zip(test, found, strict=True)
  ]


def _on_host(exits: Exits, part: Callable[[np.ndarray], np.ndarray]) -> Exits:
  """A part of every leaf, on the host."""
  return Exits(*(part(np.asarray(leaf)) for leaf in exits))


def _apart(world: World, both: Exits) -> list[Exits]:
  """Exits [N, H] of held-out samples and of their proxies, unpadded."""
  assert world.held is not None and world.aside is not None
  clients, chunks, size = world.aside.rows.shape
  count = world.held.rows.shape[1]

  def part(which):
    def of(leaf):
      apart = leaf.reshape(clients, chunks, 2, size)[:, :, which]
      return apart.reshape(clients, -1)[:, :count]

    return of

  return [_on_host(both, part(which)) for which in (0, 1)]


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
  lane, config = Lane(world, course, key, start, desk), world.config
  heed(desk.stop, key, start.round, config.rounds)
  if hosts.first():
    say(f"{lane.labels[0]}: compiling")
  programs = compile_programs(world, course, start.state)
  lane.history.seconds["compile"] += programs.seconds

  def advance(state):
    if _looked_into(course, config.eval.inside, state):
      _look_inside(world, course, programs, key, state, desk)
    state, told = programs.round(state, course.shards)
    return state, [jax.device_get(told)]  # waits for the round

  def look(state, _):
    return look_at(world, course, programs.looks, state)

  def part(state, _):
    return state

  state = pass_rounds([lane], start, advance, look, part, lane.labels[0])
  return state, lane


def _looked_into(course: Course, inside: int | None, state: State) -> bool:
  """Whether the next round is the one that is looked into."""
  in_line = course.method.topology in ("sequential", "relay")
  return in_line and inside is not None and int(state.round) + 1 == inside


def _look_inside(
  world: World,
  course: Course,
  programs: Programs,
  key: str,
  state: State,
  desk: Desk,
) -> None:
  """Keeps what `splitjax.inside` finds in the next round."""

  def look(state):
    return look_at(world, course, programs.looks, state)[0].test

  def advance(state, shards):
    return programs.round(state, shards)[0]

  found = inside.look_inside(world, course, state, advance, look)
  inside.keep(desk.log.parent, key, *found)


def pass_rounds(
  lanes: Sequence[Lane],
  start: Start,
  advance: Callable[[Any], tuple[Any, list[Metrics]]],
  look: Callable[[Any, int], list[Seen]],
  part: Callable[[Any, int], State],
  label: str,
) -> Any:
  """The rounds of one run, or of several that go side by side.

  Args:
    lanes: one for each run.
    start: where they stand.
    advance: state -> the next and what the round says of each run.
    look: (state, run) -> what its networks said, by row.
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
    lane.seen = lane.seen or look(state, i)
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
