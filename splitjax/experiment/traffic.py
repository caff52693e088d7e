"""What a round sends, without training it.

The ledger is that of the first round itself, compiled with no other output, so
that the compiler drops the training; where it cannot, of steps that learn
nothing.
"""

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import round as rounds
from splitjax.engine.topologies import topology_of
from splitjax.experiment import on_host, programs
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.models import shapes
from splitjax.types import Ledger, Stage


def of_round(task: Task, federation: Federation) -> Ledger:
  """The ledger of the first round without faults, bytes."""
  net = task.network.backbone
  # It depends on shapes alone: a network of zeros will do.
  zeros = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype), shapes.network(net)
  )
  method = federation.method
  at_host = task.config.system.clients_on == "host"
  if at_host:
    start = on_host.fresh_state(task, federation, zeros)
    run = on_host.HostRun(task, federation, start)
    given: tuple = run.inputs()
  else:
    given = programs.fresh_state(task, federation, zeros), federation.shards

  def step_of(method):
    own = federation._replace(method=method)
    if at_host:
      return run.make_round(task, own)
    return rounds.make_round(method, own.plans, own.fleet, mesh=task.mesh)

  equal = all(plan.equal for plan in federation.plans)
  if topology_of(method.traits).one_server or not equal:
    # A turn takes place if the losses before it were finite, and a loop over
    # a client's own number of steps is not split up by the compiler: the
    # training would be computed. Its mistakes are found by tracing it.
    jax.eval_shape(step_of(method), *given)
    stages = tuple(map(_that_learns_nothing, method.stages))
    method = method._replace(stages=stages)
  step = step_of(method)
  traffic = jax.jit(lambda *given: step(*given)[1].wire)
  traced = traffic.lower(*given)
  return traced.compile()(*given)


def _that_learns_nothing(stage: Stage) -> Stage:
  """A stage whose steps send what they send, and change nothing."""
  taken = stage.step
  if taken is None:
    return stage

  def step(client, server, batches, key):
    *_, losses, ledger = taken(client, server, batches, key)
    return client, server, trees.zeros(losses), ledger

  return stage._replace(step=step)
