"""Service orders: in which order one server takes the batches of its clients.

An order is data: an array of client numbers, one entry per batch. A sequential
round is a loop over it, so one program serves any order. `random`, `cyclic` and
`cyclic_reverse` are Hydra's (Section 3.1, appendix F), `random_clients` is
ours.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from splitjax.data.feed import BatchPlan

IN_TURN = ("sequential", "relay")
"""The topologies whose server follows an order of service."""

NO_TURN = -1
"""Position of a step that is not taken."""


class Queue(NamedTuple):
  """What decides in which order a server takes the batches of a round."""

  order: str  #: in ORDERS
  rounds: int  #: how many rounds' orders are drawn
  seed: int  #: of the run
  turn: int = 1  #: number of successive batches in a client's turn, at least 1
  steps: np.ndarray = np.zeros(0, int)  #: [N], batches of each in a round
  #: [N], the group of each; a group has the number of a label
  group: np.ndarray = np.zeros(0, int)


def random(queue: Queue, round: int) -> np.ndarray:
  """Gives each turn to a client drawn uniformly from those with batches left.

  `round` counts from 0. Returns [Q] int32 client numbers, as all orders do; Q
  is the sum of `queue.steps`.
  """
  rng = np.random.default_rng([queue.seed, 0x0DE8, round])
  remaining = queue.steps + 0
  order = []
  while remaining.any():
    client = rng.choice(np.flatnonzero(remaining))
    count = min(queue.turn, remaining[client])
    order += [client] * count
    remaining[client] -= count
  return np.array(order, np.int32)


def random_clients(queue: Queue, round: int) -> np.ndarray:
  """Serves the clients, each to its end, in an order drawn in every round."""
  rng = np.random.default_rng([queue.seed, 0x0DE8, round])
  order = rng.permutation(len(queue.steps))
  return np.repeat(order, queue.steps[order]).astype(np.int32)


def cyclic(queue: Queue, round: int, *, reverse: bool = False) -> np.ndarray:
  """Serves clients in cycles, with one turn for each client in every cycle.

  A cycle goes group by group, in an order drawn once for the run, and within a
  group by number. Cycles repeat until no client has a batch left. If `reverse`,
  every other cycle of the run is reversed.
  """
  forward = np.lexsort((np.arange(len(queue.steps)), _rank(queue)[queue.group]))
  cycles = -(-int(queue.steps.max()) // queue.turn)
  order = []
  for number in range(cycles):
    backward = reverse and (round * cycles + number) % 2
    cycle = forward[::-1] if backward else forward
    remaining = queue.steps[cycle] - number * queue.turn
    order.append(np.repeat(cycle, np.clip(remaining, 0, queue.turn)))
  return np.concatenate(order).astype(np.int32)


def _rank(queue: Queue) -> np.ndarray:
  """Finds each group's position in the run's random order of groups."""
  rng = np.random.default_rng([queue.seed, 0xCC1C])
  return rng.permutation(int(queue.group.max()) + 1)


ORDERS: dict[str, Callable[[Queue, int], np.ndarray]] = {
  "random": random,
  "random_clients": random_clients,
  "cyclic": cyclic,
  "cyclic_reverse": functools.partial(cyclic, reverse=True),
}
"""Name -> (queue, round) -> [Q] int32 client numbers."""


def positions(queue: Queue, classes: int) -> list[int] | None:
  """Ranks the labels in the order in which a forward cycle serves their groups.

  A label without clients has NO_TURN; None if the order has no cycles.
  """
  if not queue.order.startswith("cyclic"):
    return None
  labels = np.unique(queue.group)
  rank = _rank(queue)
  position = np.full(classes, NO_TURN)
  position[labels[rank[labels].argsort()]] = np.arange(len(labels))
  return position.tolist()


def positions_of_steps(queue: Queue, plan: BatchPlan, width: int) -> np.ndarray:
  """Finds the position of each client's local steps in its rounds' orders.

  Returns [width, R, T] int32, for N clients and behind them padding clients,
  whose steps have NO_TURN. A round's first position is 0.
  """
  order = ORDERS[queue.order]
  by_client = np.stack(
    [np.argsort(order(queue, r), kind="stable") for r in range(queue.rounds)]
  )
  clients = np.split(by_client, np.cumsum(queue.steps)[:-1], axis=1)
  # A client with fewer steps takes the first ones of every epoch.
  shape = width, queue.rounds, plan.epochs, plan.steps
  table = np.full(shape, NO_TURN, np.int32)
  for row, of_client in zip(table, clients, strict=False):
    taken = of_client.reshape(queue.rounds, plan.epochs, -1)
    row[:, :, : taken.shape[-1]] = taken
  return table.reshape(width, queue.rounds, -1)
