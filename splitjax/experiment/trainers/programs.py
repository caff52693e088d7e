"""The jitted programs of a method, before they are traced."""

from collections.abc import Callable
from typing import Any

from splitjax.engine import rounds, sharding
from splitjax.engine.sampling import sample_clients
from splitjax.evaluation import evaluate, personalisation
from splitjax.experiment.setup.training_setup import TrainingSetup


def _on_devices(make: Callable, setup: TrainingSetup, **options: Any) -> Any:
  """Makes a program of the engine or the evaluation on a task's devices."""
  exact = setup.task.config.system.deterministic
  how = {"mesh": setup.task.mesh, "deterministic": exact} | options
  return make(setup.method, setup.plans, setup.fleet, **how)


def make_round(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted round; options of `engine.rounds.make_round`."""
  told = {"faults": setup.faults, "buffer": setup.buffer} | options
  return _on_devices(rounds.make_round, setup, **told)


def make_evaluator(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted evaluation; options of `evaluate.make_evaluate`."""
  return _on_devices(evaluate.make_evaluate, setup, **options)


def make_personalised(setup: TrainingSetup, **options: Any) -> Any:
  """Makes the jitted personalisation of all clients of a method."""
  return _on_devices(personalisation.make_personalised, setup, **options)


def make_sample(setup: TrainingSetup, *, jit: Callable[..., Any]) -> Any:
  """Makes a jitted (key, round, numbers, counts) -> slots, active.

  `numbers`, `counts` and the results are per cohort, see `sample_clients`.
  """

  def sample(key, round, numbers, counts=()):
    own, _ = rounds.round_keys(key, round)
    found = sample_clients(setup.fleet, own, numbers, counts)
    return [(each.slots, each.active) for each in found]

  copied = sharding.sharding(setup.task.mesh, sharding.COPIED)
  return jit(sample, out_shardings=copied)
