"""The loop over the rounds of one method, with its evaluations."""

import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import files, machine
from splitjax.evaluation import forgetting
from splitjax.experiment.console.progress import Progress
from splitjax.experiment.console.signals import Stop, Stopped
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.types import State


def train(recorder: Recorder, trainer: Trainer, state: State) -> State:
  """Trains the method of an open recorder; returns the last state.

  `state` is in the trainer's form. Each round donates the state it is given.

  Raises:
    Stopped: a stop was requested; a checkpoint of the last round is written.
    UserError: a checkpoint could not be written, or clients were masked and
      on_nan is "stop".
  """
  config, manager = trainer.task.config, recorder.manager
  rounds, inside = config.rounds, None
  if trainer.setup.in_turn:
    inside = config.eval.inside
  raise_if_stopped(recorder)
  progress = Progress(recorder.labels[0], rounds, recorder.done)
  for number in range(recorder.done + 1, rounds + 1):
    # Train, then log the round and evaluate it where due.
    begun = time.monotonic()
    if number == inside:
      _look_inside(trainer, state, recorder.workdir)
    state, metrics = trainer.step(state)
    seconds = time.monotonic() - begun
    evaluate = functools.partial(trainer.evaluate, state)
    text, evaluated = recorder.record(number, metrics, seconds, evaluate)
    progress.round(number, text, evaluated)

    # Write a checkpoint where due, and before a stop.
    last = number == rounds
    asked = None if last else _stop_requested(recorder.stop)
    if manager.due(number, last) or asked:
      recorder.save_checkpoint(number, state)
    if asked:
      progress.close()
      manager.wait()
      raise Stopped(asked, _progress_text(recorder.key, number, rounds))
  progress.close()

  # A run that resumed after its last round has no evaluation yet.
  if not recorder.scores:
    recorder.judge(recorder.rows, trainer.evaluate(state))
  return state


def _look_inside(trainer: Trainer, state: State, workdir: Path) -> None:
  """Evaluates the network within the next round; `state` is not changed.

  Writes the matrices of `forgetting.within_round` and draws them. They are of
  the method's first result row.
  """
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  setup = trainer.setup
  (shard,) = setup.shards

  def answers(order: np.ndarray) -> np.ndarray:
    served = (shard._replace(service_order=jnp.asarray(order)),)
    donated = jax.tree.map(jnp.copy, state)
    program = trainer.round(donated)
    after, _ = program(trainer.method, donated, served, trainer.task.faults)
    (outputs,) = trainer.evaluate(after, setup.method.rows[:1])
    return np.asarray(outputs.test.server)

  order = np.asarray(shard.service_order)
  arrays = forgetting.within_round(
    setup.subject, order, int(state.round), answers
  )
  files.write_arrays(workdir / f"inside_{setup.key}.npz", arrays)
  attempt(
    workdir / f"inside_{setup.key}.png",
    lambda: forgetting.picture_within(arrays, maps),
  )


def raise_if_stopped(recorder: Recorder) -> None:
  """Raises Stopped before a method begins if a stop was requested."""
  done, rounds = recorder.done, recorder.task.config.rounds
  if done < rounds and (asked := _stop_requested(recorder.stop)):
    raise Stopped(asked, _progress_text(recorder.key, done, rounds))


def _stop_requested(stop: Stop) -> str | None:
  """Returns who asked process 0 to stop; None if nobody did."""
  asked = stop()
  if machine.of_first(asked is not None):
    return asked or "process 0"
  return None


def _progress_text(key: str, done: int, rounds: int) -> str:
  return f"{key}: {done} of {rounds} rounds done"
