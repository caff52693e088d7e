"""The bytes that a round sends, found without training.

The first round is compiled with its ledger as the only output. Its steps are
replaced by steps that send the same messages and change nothing, so that the
compiler sees at once that no training is needed.
"""

import jax

from splitjax import trees
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.trainer import Trainer, make_round
from splitjax.models import shapes
from splitjax.types import Ledger, Stage


def of_round(setup: TrainingSetup) -> Ledger:
  """Returns the ledger of the first round, without faults."""
  net = setup.task.network.backbone
  # The ledger depends on shapes alone, so a network of zeros is enough.
  zeros, method = trees.zeros(shapes.network(net)), setup.method
  shards = tuple(each._replace(faults=()) for each in setup.shards)
  given = Trainer(setup).init(zeros), shards

  def step_of(method):
    own = setup._replace(method=method)
    return make_round(own)

  jax.eval_shape(step_of(method), *given)  # finds errors of the real steps
  stages = tuple(map(_that_learns_nothing, method.stages))
  step = step_of(method._replace(stages=stages))
  traffic = jax.jit(lambda *given: step(*given)[1].wire)
  traced = traffic.lower(*given)
  return traced.compile()(*given)


def _that_learns_nothing(stage: Stage) -> Stage:
  """Returns a copy of a stage whose steps send messages and change nothing."""
  taken = stage.step
  if taken is None:
    return stage

  def step(client, server, batches, key):
    *_, losses, ledger = taken(client, server, batches, key)
    return client, server, trees.zeros(losses), ledger

  return stage._replace(step=step)
