"""The jitted programs of a method, before they are traced.

`that_fit` makes a trainer whose programs, once compiled, fit into a device.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from splitjax.engine import rounds
from splitjax.evaluation import evaluate, personalisation
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import training_setup
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.models import target


def that_fit(setup: TrainingSetup, make: Callable[[TrainingSetup], Any]) -> Any:
  """Makes a method's trainer, with chunks of clients that fit into memory.

  With `system.clients_per_chunk=auto`, the number of clients side by side is
  halved as long as a compiled program needs more memory than the device has.
  """
  while True:
    trainer, fewer = make(setup), _with_half_as_many(setup)
    if fewer is None or not trainer.too_large():
      return trainer
    most = max(training_setup.side_by_side(setup))
    say(
      f"{setup.labels[0]}: compiled for {most} clients side by side, a program"
      f" needs more than the {target.current().capacity / 1e9:.3g} GB of a"
      f" device; takes {max(training_setup.side_by_side(fewer))}",
      aside=True,
    )
    setup = fewer


def _with_half_as_many(setup: TrainingSetup) -> TrainingSetup | None:
  """Makes a setup with chunks half as large as those that "auto" chose.

  Returns None if "auto" did not choose them, if each has one client, or if
  there is one server for all.
  """
  config = setup.task.config
  most = max(training_setup.side_by_side(setup))
  chosen = config.system.clients_per_chunk == "auto"
  if not chosen or setup.topology.one_server or most == 1:
    return None
  system = dataclasses.replace(config.system, clients_per_chunk=most // 2)
  stated = dataclasses.replace(config, system=system)
  fewer = setup.task._replace(config=stated)
  made = training_setup.make_setup(fewer, setup.key)
  return made._replace(task=setup.task)


def _on_devices(make: Callable, setup: TrainingSetup, **options: Any) -> Any:
  fleet, mesh = setup.fleet, setup.task.mesh
  return make(setup.method, setup.plans, fleet, mesh=mesh, **options)


def make_round(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted round; `options` go to `rounds.make_round`."""
  told = {"faults": setup.faults} | options
  return _on_devices(rounds.make_round, setup, **told)


def make_evaluator(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted evaluation; `options` go to `make_evaluate`."""
  return _on_devices(evaluate.make_evaluate, setup, **options)


def make_personalised(setup: TrainingSetup, **options: Any) -> Any:
  """Makes the jitted personalisation of all clients of a method."""
  return _on_devices(personalisation.make_personalised, setup, **options)
