"""The loop over the rounds of one method, with its evaluations."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from splitjax.engine import distributed
from splitjax.engine.base import Metrics
from splitjax.experiment.console.progress import Progress
from splitjax.experiment.console.signals import SIGTERM, Stop, Stopped
from splitjax.experiment.measure import forgetting_in_round
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.types import Outputs, Row, State, UserError


def train(recorder: Recorder, trainer: Trainer, state: State) -> State:
  """Trains the method of an open recorder; returns the last state.

  `state` is in the trainer's form. Each round donates the state it is given.

  Raises:
    Stopped: a stop was requested; a checkpoint of the last round is written.
    UserError: a checkpoint could not be written, or clients were masked and
      on_nan is "stop".
  """
  task, label = trainer.task, recorder.labels[0]
  in_turn = trainer.setup.topology.in_turn
  inside = task.config.eval.inside if in_turn else None

  def advance(state):
    if inside is not None and int(state.round) + 1 == inside:
      forgetting_in_round.evaluate_within(trainer, state, recorder.workdir)
    state, metrics = trainer.step(state)
    return state, [metrics]

  def evaluate(state, _, rows, samples):
    return trainer.evaluate(state, rows, samples)

  def whole(state, _):
    return trainer.whole(state)

  return run_rounds([recorder], state, advance, evaluate, whole, label)


def run_rounds(
  recorders: Sequence[Recorder],
  state: Any,
  advance: Callable[[Any], tuple[Any, list[Metrics]]],
  evaluate: Callable[[Any, int, tuple[Row, ...], int | None], list[Outputs]],
  part: Callable[[Any, int], State],
  label: str,
) -> Any:
  """Trains the rounds of one run, or of several that train side by side.

  Args:
    recorders: one for each run; all have finished the same rounds.
    state: the state of all runs, donated.
    advance: maps the state to the next one and each run's metrics.
    evaluate: maps (state, run, result rows, samples) to each row's outputs.
    part: maps (state, run) to that run's state, in the form that is saved.
    label: a text for the progress bar.

  Returns:
    The last state.
  """
  first = recorders[0]
  rounds, manager = first.task.config.rounds, first.manager
  raise_if_stopped(first)
  progress = Progress(label, rounds, first.done)
  for number in range(first.done + 1, rounds + 1) if not first.ended else ():
    # Train, then log the round and evaluate it where due.
    begun = time.monotonic()
    state, metrics = advance(state)
    seconds = (time.monotonic() - begun) / len(recorders)
    lines, failed = [], dict[int, UserError]()
    for i, recorder in enumerate(recorders):
      outputs = functools.partial(evaluate, state, i)
      try:
        line = recorder.record(number, metrics[i], seconds, outputs)
      except UserError as error:  # clients were masked, and on_nan is "stop"
        failed[i] = error
      else:
        lines.append(line)
    if failed:
      # Save the other runs, so that they lose no round.
      for i, recorder in enumerate(recorders):
        if i not in failed:
          recorder.save_checkpoint(number, part(state, i))
          recorder.manager.wait()
      raise next(iter(failed.values()))
    progress.round(number, *lines[0])

    # Write a checkpoint where due, and before a stop.
    last = number == rounds or first.ended
    asked = None if last else _stop_requested(first.stop)
    if manager.due(number, last) or asked:
      for i, recorder in enumerate(recorders):
        recorder.save_checkpoint(number, part(state, i))
    if asked:
      progress.close()
      for i, recorder in enumerate(recorders):
        recorder.manager.wait()
        if asked != SIGTERM:  # a SIGTERM's sender does not wait
          recorder.outputs = evaluate(state, i, recorder.rows, None)
      raise Stopped(asked, _progress_text(first.key, number, rounds))
    if last:
      break
  progress.close()

  # A run that resumed after its last round has no evaluation yet.
  for i, recorder in enumerate(recorders):
    if not recorder.outputs:
      recorder.outputs = evaluate(state, i, recorder.rows, None)
  return state


def raise_if_stopped(recorder: Recorder) -> None:
  """Raises Stopped before a method begins if a stop was requested."""
  done, rounds = recorder.done, recorder.task.config.rounds
  if done < rounds and (asked := _stop_requested(recorder.stop)):
    raise Stopped(asked, _progress_text(recorder.key, done, rounds))


def _stop_requested(stop: Stop) -> str | None:
  """Returns who asked one of the processes to stop; None if nobody did.

  All processes must call this function at the same point.
  """
  asked = stop()
  if not distributed.any_process(asked is not None):
    return None
  if distributed.any_process(asked == SIGTERM):
    return SIGTERM  # the same in all: either all processes evaluate, or none
  return asked or "another process"


def _progress_text(key: str, done: int, rounds: int) -> str:
  return f"{key}: {done} of {rounds} rounds done"
