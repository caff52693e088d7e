"""Inside a round of one server: what each group of clients does to the network.

Hydra's Figure 11. The order is data, so the network after so many turns is that
of a round whose line ends there: no other program is needed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import files
from splitjax.engine import client_order
from splitjax.engine.client_order import QueueSpec
from splitjax.evaluation import forgetting
from splitjax.experiment.federation import Federation
from splitjax.experiment.task import Task
from splitjax.reports.figures import confusion
from splitjax.types import Exits, State


class Interruption(NamedTuple):
  """A place in the line where it is looked at the network.

  Attributes:
    turns: how many are over.
    label: dominant label of the clients that came last; None: before anybody.
  """

  turns: int
  label: int | None


def interruptions(turns: np.ndarray, line: QueueSpec) -> list[Interruption]:
  """After each group's stretch of turns in the last full cycle, and before it.

  A stretch is as many turns in a row as are of clients of one dominant label; a
  cycle is full where every client has its turn.

  Args:
    turns: [N, T] int, where each step stands in line; below 0: nowhere.
    line: who stands in it.
  """
  who = np.repeat(np.arange(len(turns)), turns.shape[1])
  place = turns.ravel()
  order = who[np.argsort(place, kind="stable")][np.count_nonzero(place < 0) :]
  cycle = max(0, (int(line.steps.min()) - 1) // line.turn)
  begin, end = (
    int(np.minimum(line.steps, done * line.turn).sum())
    for done in (cycle, cycle + 1)
  )
  served = line.label[order[begin:end]]
  ends = np.flatnonzero(np.append(served[1:] != served[:-1], True)) + 1
  return [
    Interruption(begin, None),
    *(Interruption(begin + int(e), int(served[e - 1])) for e in ends),
  ]


def evaluate_within(
  task: Task,
  federation: Federation,
  state: State,
  advance: Callable[[State, tuple], State],
  look: Callable[[State], Exits],
) -> tuple[np.ndarray, list[Interruption]]:
  """Confusion matrices inside the next round of a run.

  Args:
    task: what all methods share.
    federation: of a method with a line.
    state: before the round; kept.
    advance: (state, shards) -> the next; its state is donated.
    look: state -> what the networks of the first row said.

  Returns:
    [S, C, C] as `forgetting.confusion`, and where each was taken. Part-1 is the
    clients' mean at that place, heads are one, that of those that were moved,
    as if the round ended there.
  """
  (shard,), (plan,), test_sets = (
    federation.shards,
    federation.plans,
    task.test_sets,
  )
  turns = np.asarray(shard.service_order)[:, int(state.round)]
  each = task.config.order.batches
  line = client_order.queue_spec(shard, plan, each, task.config.seed)
  found, matrices = interruptions(turns[: len(line.label)], line), []
  for stop in found:
    over = shard.service_order < stop.turns
    table = jnp.where(over, shard.service_order, client_order.NO_TURN)
    present = advance(
      jax.tree.map(jnp.copy, state), (shard._replace(service_order=table),)
    )
    matrices.append(
      forgetting.confusion(
        np.asarray(look(present).server),
        test_sets.label,
        test_sets.sets[-1],
        task.data.classes,
      )
    )
  return np.stack(matrices), found


def save(
  workdir: Path, key: str, matrices: np.ndarray, found: list[Interruption]
) -> Path:
  """Writes inside_KEY.npz and its picture, which is returned."""
  label = [-1 if stop.label is None else stop.label for stop in found]
  arrays = {
    "confusion": matrices,
    "turns": np.array([stop.turns for stop in found]),
    "label": np.array(label),
  }
  files.write_arrays(workdir / f"inside_{key}.npz", arrays)
  names = [
    "before the cycle" if stop.label is None else f"after label {stop.label}"
    for stop in found
  ]
  return confusion.confusion_panels(matrices, names, workdir / picture(key))


def picture(key: str) -> str:
  """Name of the picture of the method of that key."""
  return f"inside_{key}.png"
