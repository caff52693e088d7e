"""Whose turn it is: visiting orders of clients that share one server.

An order is data: an array of client numbers, one entry for each served batch.
A round of a sequential server is a scan over it, so the same program serves
any order. Hydra (Section 3 and appendix E) names the four below.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from splitjax.data.feed import Plan
from splitjax.types import Method, Shard

NOBODY = -1
"""An entry without a turn: orders of all rounds have one length."""


class Order(NamedTuple):
  """Who stands in line, the same in every round.

  Attributes:
    steps: [N] int, batches that each client brings to a round.
    label: [N] int, each client's dominant label.
    turn: batches that a client is served in a row, at least 1; the whole of
      its round where it is larger.
    seed: of the run.
  """

  steps: np.ndarray
  label: np.ndarray
  turn: int
  seed: int


def random(line: Order, round: int) -> np.ndarray:
  """Every turn is that of a client drawn from those with batches left.

  Args:
    line: who stands in it.
    round: its number, from 0.

  Returns:
    [Q] int32, Q = the sum of line.steps; and so do all orders.
  """
  rng, left = np.random.default_rng([line.seed, 0x0DE8, round]), line.steps + 0
  turns = []
  while (participating := np.flatnonzero(left)).size:
    client = rng.choice(participating)
    turns += [client] * min(line.turn, left[client])
    left[client] -= min(line.turn, left[client])
  return np.array(turns, np.int32)


def random_clients(line: Order, round: int) -> np.ndarray:
  """A permutation of the clients in every round, each served to its end."""
  rng = np.random.default_rng([line.seed, 0x0DE8, round])
  order = rng.permutation(len(line.steps))
  return np.repeat(order, line.steps[order]).astype(np.int32)


def cyclic(line: Order, round: int) -> np.ndarray:
  """All clients of one dominant label, then of the next, over and over.

  The labels stand in a random order that is fixed for the run, the clients of
  one label in that of their numbers; a cycle gives each client one turn, until
  nobody has a batch left.
  """
  del round
  return _cycles(line, lambda number: False)


def cyclic_reverse(line: Order, round: int) -> np.ndarray:
  """As `cyclic`, the direction reversed in every other cycle of the run."""
  first = round * _count(line)
  return _cycles(line, lambda number: (first + number) % 2 == 1)


def _count(line: Order) -> int:
  """Cycles of a round."""
  return -(-int(line.steps.max()) // line.turn)


def _rank(line: Order) -> np.ndarray:
  """The random order of the labels [L], fixed for the run."""
  rng = np.random.default_rng([line.seed, 0xCC1C])
  return rng.permutation(int(line.label.max()) + 1)


def _cycles(line: Order, reverse: Callable[[int], bool]) -> np.ndarray:
  rank = _rank(line)
  circle = np.lexsort((np.arange(len(line.steps)), rank[line.label]))

  def turns() -> Iterator[int]:
    for number in range(_count(line)):
      done = number * line.turn
      for client in circle[::-1] if reverse(number) else circle:
        yield from [client] * int(
          np.clip(line.steps[client] - done, 0, line.turn)
        )

  return np.array(list(turns()), np.int32)


ORDERS = {
  "random": random,
  "random_clients": random_clients,
  "cyclic": cyclic,
  "cyclic_reverse": cyclic_reverse,
}
"""Name -> (line, round) -> [Q] int32."""


def positions(line: Order, name: str, classes: int) -> list[int] | None:
  """When in a cycle the clients of each dominant label are served.

  Args:
    line: who stands in it.
    name: of the order.
    classes: C.

  Returns:
    [C], from 0 on, in cycles that go forward; below 0 for a label that is
    dominant nowhere. None where the order has no cycles.
  """
  if not name.startswith("cyclic"):
    return None
  labels, rank = np.unique(line.label), _rank(line)
  found = np.full(classes, NOBODY)
  found[labels[rank[labels].argsort()]] = np.arange(len(labels))
  return found.tolist()


def turns(line: Order, name: str, rounds: int) -> list[np.ndarray]:
  """Where each client's steps stand in line, round by round.

  Args:
    line: who stands in it.
    name: of the order.
    rounds: R.

  Returns:
    For each client [R, its steps] int, 0 for whoever is first.
  """
  ends = np.cumsum(line.steps)[:-1]
  each = [
    np.split(np.argsort(ORDERS[name](line, round), kind="stable"), ends)
    for round in range(rounds)
  ]
  return [np.stack(mine) for mine in zip(*each, strict=True)]


def schedule_turns(shard: Shard, plan: Plan, turn: int, seed: int) -> Order:
  """The line of a fleet's clients; args as of `stand`."""
  number, size, counts = map(
    np.asarray, (shard.number, shard.size, shard.counts)
  )
  _, real = np.unique(number, return_index=True)  # ghosts bear a number again
  steps = -(-size[real] // plan.batch) * plan.epochs
  return Order(steps, counts[real].argmax(axis=1), turn, seed)


def with_service_order(
  method: Method,
  shard: Shard,
  plan: Plan,
  *,
  order: str,
  turn: int,
  rounds: int,
  seed: int,
) -> Shard:
  """Puts the clients of a fleet in line and in groups, where a method does so.

  Args:
    method: its topology says whether there is a line, its group how to group.
    shard: of all clients, leaves [N, ...]; ghosts come last.
    plan: how they walk through their data.
    order: name of the order.
    turn: batches that a client is served in a row.
    rounds: R.
    seed: of the run.
  """
  lined = method.topology in ("sequential", "relay")
  if not lined and method.group is None:
    return shard  # which may lie on devices of other processes
  counts, number = np.asarray(shard.counts), np.asarray(shard.number)
  _, real = np.unique(number, return_index=True)  # ghosts bear a number again
  if method.group is not None:
    groups = np.empty(len(number), np.int32)
    groups[:] = method.group(counts[real])[
      np.searchsorted(number[real], number)
    ]
    shard = shard._replace(group=jnp.asarray(groups))
  if lined:
    line = schedule_turns(shard, plan, turn, seed)
    table = np.full(
      (len(number), rounds, plan.epochs, plan.steps), NOBODY, np.int32
    )
    # A short client's steps are the first ones of every epoch.
    for who, mine in zip(real, turns(line, order, rounds), strict=True):
      own = mine.reshape(rounds, plan.epochs, -1)
      table[who, :, :, : own.shape[-1]] = own
    flat = table.reshape(len(number), rounds, -1)
    shard = shard._replace(turns=jnp.asarray(flat))
  return shard
