"""The jitted programs of a method, before they are traced."""

from collections.abc import Callable
from typing import Any

from splitjax.engine import rounds, sharding
from splitjax.engine.sampling import sample_clients
from splitjax.evaluation import evaluate
from splitjax.experiment.setup.training_setup import TrainingSetup


def _on_devices(make: Callable, setup: TrainingSetup, **options: Any) -> Any:
  """A program of the engine or the evaluation, on the devices of a task."""
  exact = setup.task.config.system.deterministic
  how = {"mesh": setup.task.mesh, "deterministic": exact} | options
  return make(setup.method, setup.plans, setup.fleet, **how)


def make_round(setup: TrainingSetup, **options: Any) -> Any:
  """The jitted round of a method; options of `engine.rounds.make_round`."""
  told = {"faults": setup.task.config.faults} | options
  return _on_devices(rounds.make_round, setup, **told)


def make_evaluator(setup: TrainingSetup, **options: Any) -> Any:
  """The jitted evaluation of a method; options are as there."""
  return _on_devices(evaluate.make_evaluate, setup, **options)


def make_personalised(setup: TrainingSetup, **options: Any) -> Any:
  """The jitted personalisation of all clients of a method."""
  return _on_devices(evaluate.make_personalised, setup, **options)


def make_sample(setup: TrainingSetup, *, jit: Callable[..., Any]) -> Any:
  """A jitted (key, round, numbers, counts) -> per cohort slots and active.

  The last two are per cohort, as in `sample_clients`.
  """

  def sample(key, round, numbers, counts=()):
    own, _ = rounds.round_keys(key, round)
    found = sample_clients(setup.fleet, own, numbers, counts)
    return [(each.slots, each.active) for each in found]

  copied = sharding.sharding(setup.task.mesh, sharding.COPIED)
  return jit(sample, out_shardings=copied)
