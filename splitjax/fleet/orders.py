"""Service orders: in which order one server takes the batches of its clients.

An order is data: an array of client numbers, one entry per batch. A sequential
round is a loop over it, so one program serves any order. `random`, `cyclic` and
`cyclic_reverse` are Hydra's (Section 3.1, appendix F), `random_clients` is
ours.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from splitjax.data.feed import BatchPlan
from splitjax.fleet.fleets import Fleet
from splitjax.types import Shard

if TYPE_CHECKING:
  from splitjax.methods.method import Method

IN_TURN = ("sequential", "relay")
"""The topologies whose server follows an order of service."""

NO_TURN = -1
"""Position of a step that is not taken."""


class Queue(NamedTuple):
  """The order in which a server takes the batches of a round."""

  order: str  #: in ORDERS
  rounds: int  #: how many rounds' orders are drawn
  seed: int
  turn: int = 1  #: as in QueueSpec


class QueueSpec(NamedTuple):
  """The facts that a service order depends on; the same in every round."""

  steps: np.ndarray  # [N] int, batches of each client in a round
  label: np.ndarray  # [N] int, the label of each client's group
  turn: int  # number of successive batches in a client's turn, at least 1
  seed: int  # of the run


def random(spec: QueueSpec, round: int) -> np.ndarray:
  """Gives each turn to a client drawn uniformly from those with batches left.

  `round` counts from 0. Returns [Q] int32 client numbers, as all orders do; Q
  is the sum of spec.steps.
  """
  rng = np.random.default_rng([spec.seed, 0x0DE8, round])
  remaining = spec.steps + 0
  order = []
  while remaining.any():
    client = rng.choice(np.flatnonzero(remaining))
    count = min(spec.turn, remaining[client])
    order += [client] * count
    remaining[client] -= count
  return np.array(order, np.int32)


def random_clients(spec: QueueSpec, round: int) -> np.ndarray:
  """Serves the clients in a random order, which is drawn anew in every round.

  The batches of a client are served in a row.
  """
  rng = np.random.default_rng([spec.seed, 0x0DE8, round])
  order = rng.permutation(len(spec.steps))
  return np.repeat(order, spec.steps[order]).astype(np.int32)


def cyclic(spec: QueueSpec, round: int, *, reverse: bool = False) -> np.ndarray:
  """Serves clients in cycles, with one turn for each client in every cycle.

  A cycle is sorted by the clients' labels, and within a label by number. The
  order of the labels is random and fixed for the run. Cycles repeat until no
  client has a batch left. If `reverse`, every other cycle of the run is
  reversed.
  """
  forward = np.lexsort((np.arange(len(spec.steps)), _rank(spec)[spec.label]))
  cycles = -(-int(spec.steps.max()) // spec.turn)
  order = []
  for number in range(cycles):
    backward = reverse and (round * cycles + number) % 2
    cycle = forward[::-1] if backward else forward
    remaining = spec.steps[cycle] - number * spec.turn
    order.append(np.repeat(cycle, np.clip(remaining, 0, spec.turn)))
  return np.concatenate(order).astype(np.int32)


def _rank(spec: QueueSpec) -> np.ndarray:
  """Finds each label's position [L] in the run's random order of labels."""
  rng = np.random.default_rng([spec.seed, 0xCC1C])
  return rng.permutation(int(spec.label.max()) + 1)


ORDERS: dict[str, Callable[[QueueSpec, int], np.ndarray]] = {
  "random": random,
  "random_clients": random_clients,
  "cyclic": cyclic,
  "cyclic_reverse": functools.partial(cyclic, reverse=True),
}
"""Name -> (spec, round) -> [Q] int32 client numbers."""


def positions(spec: QueueSpec, name: str, classes: int) -> list[int] | None:
  """Ranks the labels in the order in which a forward cycle serves them.

  A label without clients has NO_TURN; None if the order `name` has no cycles.
  """
  if not name.startswith("cyclic"):
    return None
  labels = np.unique(spec.label)
  rank = _rank(spec)
  position = np.full(classes, NO_TURN)
  position[labels[rank[labels].argsort()]] = np.arange(len(labels))
  return position.tolist()


def _step_positions(
  spec: QueueSpec, name: str, rounds: int
) -> list[np.ndarray]:
  """Finds the positions of each client's steps in the order `name`.

  Those of client n are [R, T_n] int; a round's first position is 0.
  """
  order = ORDERS[name]
  by_client = np.stack(
    [np.argsort(order(spec, r), kind="stable") for r in range(rounds)]
  )
  return np.split(by_client, np.cumsum(spec.steps)[:-1], axis=1)


def with_service_order(
  method: "Method",
  shard: Shard,
  plan: BatchPlan,
  fleet: Fleet,
  queue: Queue,
  groups: np.ndarray | None = None,
) -> Shard:
  """Adds service order and groups to a fleet's shard, if the method uses them.

  Groups are those of `Method.group`, or the places of the depths `Method.cuts`
  among the backbone's cuts. The service order is added if the method's topology
  serves clients in turn; it depends on the label of each client's group,
  `groups` [N] int by number, by default the label of most of its samples, in a
  tie the lowest. `shard` is that of all clients [N, ...], with padding clients
  last.
  """
  number = np.asarray(shard.number)
  # Padding clients come later and repeat the number of a real client.
  real = np.unique(number, return_index=True)[1]
  counts = np.asarray(shard.counts)[real]
  group = method.group(counts)
  cuts = method.cuts(fleet)
  if cuts is not None:
    group = np.searchsorted(method.backbone.cuts, cuts)
  if group is not None:
    row = np.searchsorted(number[real], number)
    shard = shard._replace(group=jnp.asarray(group[row], np.int32))
  if method.topology not in IN_TURN:
    return shard
  label = counts.argmax(axis=1) if groups is None else groups
  steps, _ = plan.of_round(np.asarray(shard.size)[real])
  spec = QueueSpec(steps=steps, label=label, turn=queue.turn, seed=queue.seed)
  # A client with fewer steps takes the first ones of every epoch.
  shape = (plan.epochs, plan.steps)
  if plan.limit is not None:  # all take equally many, without gaps
    shape = (1, plan.limit)
  table = np.full((len(number), queue.rounds, *shape), NO_TURN, np.int32)
  positions = _step_positions(spec, queue.order, queue.rounds)
  for client, of_client in zip(real, positions, strict=True):
    taken = of_client.reshape(queue.rounds, shape[0], -1)
    table[client, :, :, : taken.shape[-1]] = taken
  flat = jnp.asarray(table.reshape(len(number), queue.rounds, -1))
  return shard._replace(service_order=flat)
