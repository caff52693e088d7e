"""One method trained and evaluated: the loop over its rounds."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.engine import distributed
from splitjax.engine import round as round_program
from splitjax.engine.base import Metrics
from splitjax.evaluation import evaluate, ood_proxies
from splitjax.experiment import within_round
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import Progress, say
from splitjax.experiment.recorder import Recorder, RunFiles, TrainingStart
from splitjax.experiment.signals import Stop, Stopped
from splitjax.experiment.task import Task
from splitjax.types import Exits, Outputs, State


class Evaluators(NamedTuple):
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
  looks: Evaluators
  seconds: float


def compile_programs(
  task: Task, federation: Federation, state: State
) -> Programs:
  """Traces and compiles a method's round and its evaluation, once each."""
  start = time.monotonic()
  step = make_round(task, federation)
  looks, given = make_evaluators(task, federation), (state, federation.shards)
  step = step.lower(*given).compile()
  test = looks.test.lower(*given, task.pool, task.shown).compile()
  aside = looks.aside
  if aside is not None:
    aside = aside.lower(*given, task.image, task.aside).compile()
  return Programs(step, Evaluators(test, aside), time.monotonic() - start)


def make_round(task: Task, federation: Federation, **how: Any) -> Any:
  """The round of a course, jitted for the devices of its task."""
  return round_program.make_round(
    federation.method,
    federation.plans,
    federation.fleet,
    faults=task.config.faults,
    mesh=task.mesh,
    deterministic=task.config.system.deterministic,
    **how,
  )


def make_evaluator(task: Task, federation: Federation, **what: Any) -> Any:
  """The evaluation of a course, jitted for the devices of its task."""
  return evaluate.make_evaluate(
    federation.method,
    federation.plans,
    federation.fleet,
    mesh=task.mesh,
    deterministic=task.config.system.deterministic,
    **what,
  )


def make_evaluators(task: Task, federation: Federation) -> Evaluators:
  """Both evaluations of a course; methods with one exit need but one."""
  aside = None
  if task.aside is not None and len(federation.method.answers) > 1:
    show = ood_proxies.with_proxies(task.config.eval.proxy)
    aside = make_evaluator(task, federation, show=show)
  return Evaluators(make_evaluator(task, federation), aside)


def evaluate_rows(
  task: Task, federation: Federation, looks: Evaluators, state: State
) -> list[Outputs]:
  """Evaluates a state: what each row's networks said, on the host."""
  given = state, federation.shards
  size = task.test_sets.rows.shape[1]
  test = [
    _on_host(exits, lambda x: x[:, :size])
    for exits in looks.test(*given, task.pool, task.shown)
  ]
  if looks.aside is None:
    return list(map(Outputs, test))
  found = looks.aside(*given, task.image, task.aside)
  return [
    Outputs(each, *_apart(task, both))
    for each, both in zip(test, found, strict=True)
  ]


def _on_host(exits: Exits, part: Callable[[np.ndarray], np.ndarray]) -> Exits:
  """A part of every leaf, on the host."""
  return Exits(*(part(np.asarray(leaf)) for leaf in exits))


def _apart(task: Task, both: Exits) -> list[Exits]:
  """Exits [N, H] of held-out samples and of their proxies, unpadded."""
  assert task.held is not None and task.aside is not None
  clients, chunks, size = task.aside.rows.shape
  count = task.held.rows.shape[1]

  def part(which):
    def of(leaf):
      apart = leaf.reshape(clients, chunks, 2, size)[:, :, which]
      return apart.reshape(clients, -1)[:, :count]

    return of

  return [_on_host(both, part(which)) for which in (0, 1)]


def train(
  task: Task,
  federation: Federation,
  key: str,
  start: TrainingStart,
  run_files: RunFiles,
) -> tuple[State, Recorder]:
  """Trains one method from where it stands to its last round.

  Args:
    task: what all methods share.
    federation: the method's.
    key: of the method in the config.
    start: where it stands; its state is donated.
    run_files: what it writes and whom it listens to.

  Returns:
    The last state, and what was written down on the way.

  Raises:
    Stopped: it was asked to; what is done is kept.
    UserError: a checkpoint could not be written, or clients were masked and
      on_nan is "stop".
  """
  recorder, config = (
    Recorder(task, federation, key, start, run_files),
    task.config,
  )
  raise_if_stopped(run_files.stop, key, start.round, config.rounds)
  if distributed.is_first_process():
    say(f"{recorder.labels[0]}: compiling")
  programs = compile_programs(task, federation, start.state)
  recorder.history.seconds["compile"] += programs.seconds

  def advance(state):
    if _evaluate_within_rounds(federation, config.eval.inside, state):
      _evaluate_within(task, federation, programs, key, state, run_files)
    state, told = programs.round(state, federation.shards)
    return state, [jax.device_get(told)]  # waits for the round

  def look(state, _):
    return evaluate_rows(task, federation, programs.looks, state)

  def part(state, _):
    return state

  state = pass_rounds(
    [recorder], start, advance, look, part, recorder.labels[0]
  )
  return state, recorder


def _evaluate_within_rounds(
  federation: Federation, inside: int | None, state: State
) -> bool:
  """Whether the next round is the one that is looked into."""
  in_line = federation.method.topology in ("sequential", "relay")
  return in_line and inside is not None and int(state.round) + 1 == inside


def _evaluate_within(
  task: Task,
  federation: Federation,
  programs: Programs,
  key: str,
  state: State,
  run_files: RunFiles,
) -> None:
  """Keeps what `splitjax.experiment.within_round` finds in the next round."""

  def look(state):
    return evaluate_rows(task, federation, programs.looks, state)[0].test

  def advance(state, shards):
    return programs.round(state, shards)[0]

  found = within_round.evaluate_within(task, federation, state, advance, look)
  within_round.save(run_files.log.parent, key, *found)


def pass_rounds(
  recorders: Sequence[Recorder],
  start: TrainingStart,
  advance: Callable[[Any], tuple[Any, list[Metrics]]],
  look: Callable[[Any, int], list[Outputs]],
  part: Callable[[Any, int], State],
  label: str,
) -> Any:
  """The rounds of one run, or of several that go side by side.

  Args:
    recorders: one for each run.
    start: where they stand.
    advance: state -> the next and what the round says of each run.
    look: (state, run) -> what its networks said, by row.
    part: (state, run) -> its own state.
    label: for the screen.

  Returns:
    The last state.
  """
  first, rounds = recorders[0], recorders[0].task.config.rounds
  state, manager = start.state, recorders[0].run_files.manager
  raise_if_stopped(first.run_files.stop, first.key, start.round, rounds)
  progress = Progress(
    label, rounds, not distributed.is_first_process(), start.round
  )
  for number in range(start.round + 1, rounds + 1):
    begun = time.monotonic()
    state, told = advance(state)
    seconds = (time.monotonic() - begun) / len(recorders)
    said = [
      recorder.after(number, each, seconds, functools.partial(look, state, i))
      for i, (recorder, each) in enumerate(zip(recorders, told, strict=True))
    ]
    progress.round(number, *said[0])
    last = number == rounds
    asked = None if last else _stop_requested(first.run_files.stop)
    if manager.due(number, last) or asked:
      for i, recorder in enumerate(recorders):
        recorder.keep(number, part(state, i))
    if asked:
      progress.close()
      for recorder in recorders:
        recorder.run_files.manager.wait()
      raise Stopped(asked, where(first.key, number, rounds))
  progress.close()
  for i, recorder in enumerate(recorders):
    recorder.close()
    # Its last round was over when it began.
    recorder.seen = recorder.seen or look(state, i)
  return state


def raise_if_stopped(stop: Stop, key: str, done: int, rounds: int) -> None:
  """Raises Stopped before work that somebody does not want begun."""
  if done < rounds and (asked := _stop_requested(stop)):
    raise Stopped(asked, where(key, done, rounds))


def _stop_requested(stop: Stop) -> str | None:
  """Who asked to stop, this process or another."""
  asked = stop()
  if distributed.any_process(
    asked is not None
  ):  # all of them take part in this
    return asked or "another process"
  return None


def where(key: str, done: int, rounds: int) -> str:
  """How far a method has come, in words."""
  return f"{key}: {done} of {rounds} rounds done"
