"""The bytes that a round sends, found without training.

The first round is compiled with its ledger as the only output. Its steps are
replaced by steps that send the same messages and change nothing, so that the
compiler sees at once that no training is needed.
"""

import dataclasses

import jax

from splitjax import trees
from splitjax.engine.round import run_round
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.parameters import pytree
from splitjax.types import Stage
from splitjax.wire import Ledger


def of_round(setup: TrainingSetup) -> Ledger:
  """Returns the ledger of the first round, without faults."""
  # The ledger depends on shapes alone, so a network of zeros is enough.
  zeros = trees.zeros(sizes.shapes(setup.backbone))
  state = Trainer(setup).init(zeros)

  def sent(method, state, shards):
    static = {"layout": setup.layout, "plans": setup.plans}
    return run_round(method, state, shards, **static, mesh=setup.task.mesh)

  def wire_of(*arguments):
    return sent(*arguments)[1].wire

  # Finds errors of the real steps.
  jax.eval_shape(sent, setup.method, state, setup.shards)
  arguments = idle(setup.method), state, setup.shards
  return jax.jit(wire_of).lower(*arguments).compile()(*arguments)


def idle(method: Method) -> Method:
  """Copies a method whose steps send their messages and change nothing."""
  kind: type[Method] = type(method)

  class Idle(kind):  # type: ignore[valid-type, misc]
    def stages(self):
      return tuple(map(without_changes, super().stages()))

  fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(kind)}
  return pytree(Idle)(**fields)


def without_changes(stage: Stage) -> Stage:
  """Copies a stage whose steps send their messages and change nothing."""

  def step(client, server, *given):
    losses = stage.step(client, server, *given)[2]
    return client, server, trees.zeros(losses)

  return stage._replace(step=step)
