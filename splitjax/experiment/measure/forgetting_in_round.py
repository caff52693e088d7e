"""Forgetting within a round: the network after each group of clients.

This is Hydra's Figure 11. The order of service is an argument of the compiled
round, so an order that ends early gives the network after some of the turns.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import files
from splitjax.evaluation import forgetting
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.fleet import orders
from splitjax.fleet.orders import IN_TURN, QueueSpec
from splitjax.types import State


class Interruption(NamedTuple):
  """A point of a round, after some turns, at which the network is evaluated.

  `label` is the label of the clients that were served last. It is None at the
  point before the last full cycle.
  """

  turns: int
  label: int | None


def interruptions(turns: np.ndarray, line: QueueSpec) -> list[Interruption]:
  """Returns the points before the last full cycle and after each group in it.

  In a full cycle every client has its turn. A group consists of consecutive
  turns of clients that have the same label. `turns` [N, T] int has the position
  of each client's steps in the order of service; it is negative for a step
  without a turn.
  """
  client = np.repeat(np.arange(len(turns)), turns.shape[1])
  position = turns.ravel()
  by_position = client[np.argsort(position, kind="stable")]
  order = by_position[np.count_nonzero(position < 0) :]

  # The first and last turn of the last full cycle.
  cycle = max(0, (int(line.steps.min()) - 1) // line.turn)
  begin, end = (
    int(np.minimum(line.steps, done * line.turn).sum())
    for done in (cycle, cycle + 1)
  )

  # A group ends where the next client has another label.
  served = line.label[order[begin:end]]
  ends = np.flatnonzero(np.append(served[1:] != served[:-1], True)) + 1
  return [
    Interruption(begin, None),
    *(Interruption(begin + int(e), int(served[e - 1])) for e in ends),
  ]


def queue(setup: TrainingSetup) -> orders.QueueSpec:
  """Makes the QueueSpec of a method whose clients are one cohort."""
  task = setup.task
  (shard,), (plan,) = setup.shards, setup.plans
  turn, seed = task.config.order.batches, task.config.seed
  groups = task.test_sets.groups
  return orders.queue_spec(shard, plan, turn, seed, groups)


def positions(setup: TrainingSetup) -> list[int] | None:
  """Finds the position of each label's clients in a cycle of the server.

  Returns [C] like `orders.positions`; None if the server has no cycles.
  """
  task = setup.task
  if setup.method.topology not in IN_TURN:
    return None
  line, order = queue(setup), task.config.order
  return orders.positions(line, order.name, task.data.classes)


def evaluate_within(trainer: Trainer, state: State, workdir: Path) -> None:
  """Evaluates the network within the next round.

  Writes a confusion matrix for each interruption to inside_KEY.npz and draws
  the matrices. They count the server's answers for the method's first result
  row, on the last test set. At each interruption clients and heads are
  aggregated as if the round ended there. `state` is not changed.
  """
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  setup, task = trainer.setup, trainer.task
  (shard,), test_sets = setup.shards, task.test_sets
  turns = np.asarray(shard.service_order)[:, int(state.round)]
  line = queue(setup)
  points, matrices = interruptions(turns[: len(line.label)], line), []
  for point in points:
    # A round whose order ends at this point.
    served = shard.service_order < point.turns
    table = jnp.where(served, shard.service_order, orders.NO_TURN)
    cut = (shard._replace(service_order=table),)
    donated = jax.tree.map(jnp.copy, state)
    after, _ = trainer.round(donated)(trainer.method, donated, cut, task.faults)
    rows = setup.method.rows[:1]
    (first,) = trainer.evaluate(after, rows)
    matrices.append(
      forgetting.confusion(
        np.asarray(first.test.server),
        test_sets.label,
        test_sets.sets[-1],
        task.data.classes,
      )
    )
  arrays = {
    "confusion": np.stack(matrices),
    "turns": np.array([p.turns for p in points]),
    "label": np.array([-1 if p.label is None else p.label for p in points]),
  }
  files.write_arrays(workdir / f"inside_{setup.key}.npz", arrays)
  names = [
    "before the cycle" if p.label is None else f"after label {p.label}"
    for p in points
  ]
  attempt(
    workdir / f"inside_{setup.key}.png",
    lambda: maps.confusion(arrays["confusion"], names),
  )
