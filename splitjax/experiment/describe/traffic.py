"""The bytes that a round sends, found without training.

The first round is compiled with its ledger as the only output, so that the
compiler drops the training. Where the compiler cannot, the round is compiled
with steps that send their messages and learn nothing.
"""

import jax
import numpy as np

from splitjax import trees
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.host_trainer import make_trainer
from splitjax.models import shapes
from splitjax.types import Ledger, Stage


def of_round(setup: TrainingSetup) -> Ledger:
  """Returns the ledger of the first round without faults, bytes."""
  net = setup.task.network.backbone
  # The ledger depends on shapes alone, so a network of zeros is enough.
  zeros = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype), shapes.network(net)
  )
  method = setup.method
  trainer = make_trainer(setup)
  given = trainer.inputs(trainer.init(zeros))

  def step_of(method):
    own = setup._replace(method=method)
    return trainer.make_round(own, faults=None, deterministic=False)

  equal = all(plan.equal for plan in setup.plans)
  if setup.topology.one_server or not equal:
    # The compiler would compute the training here: a turn takes place only if
    # the losses before it were finite, and a loop over a client's own number of
    # steps is not split up. Tracing the real step still finds its errors.
    jax.eval_shape(step_of(method), *given)
    stages = tuple(map(_that_learns_nothing, method.stages))
    method = method._replace(stages=stages)
  step = step_of(method)
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
