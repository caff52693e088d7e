"""The clients: their depths, their speeds, and how devices hold them.

Clients of one depth form a cohort and are stacked on a leading axis. A compiled
round knows a fleet by its `Layout` alone.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax import trees
from splitjax.fleet.resources import Devices
from splitjax.types import Tree, UserError


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one depth, and how devices hold them.

  Attributes:
    depth: K, their cut.
    ids: their numbers in the fleet, ascending.
    padding: number of padding clients, which follow the real ones so that all
      devices hold equally many clients. Padding clients have the number and
      data of the first client, and never participate.
    chunk: clients that a device trains at a time; None for all that it holds.
  """

  depth: int
  ids: tuple[int, ...]
  padding: int = 0
  chunk: int | None = None

  @property
  def numbers(self) -> tuple[int, ...]:
    """Lists the client number at each place of the stacked leaves [N, ...]."""
    return self.ids + self.ids[:1] * self.padding


class CohortShape(NamedTuple):
  """A cohort without its clients' numbers."""

  depth: int
  size: int  #: without padding
  width: int  #: with padding
  chunk: int | None = None


class Layout(NamedTuple):
  """A fleet in counts, static to a round, whose program serves all seeds.

  Which client is where is data (Shard.number).
  """

  cohorts: tuple[CohortShape, ...]
  participants: int
  devices: int = 1

  @property
  def size(self) -> int:
    """N, the clients of all cohorts."""
    return sum(cohort.size for cohort in self.cohorts)

  @property
  def partial(self) -> bool:
    """Tells whether clients may sit out a round."""
    return self.participants < self.size

  def computed(self, cohort: CohortShape) -> int:
    """Counts the clients of a cohort that any round computes, min(N_c, P)."""
    return min(cohort.size, self.participants)


@dataclasses.dataclass(frozen=True)
class Fleet:
  """All clients.

  Attributes:
    cohorts: by depth, shallowest first.
    power: P_C of each client, by number, in parameters per unit of time.
    hardware: the clients' devices; None if unknown.
    participants: P, clients sampled per round.
    devices: number of devices that every cohort is divided among.
  """

  cohorts: tuple[Cohort, ...]
  power: tuple[float, ...]
  participants: int
  devices: int = 1
  hardware: Devices | None = None

  @property
  def num_clients(self) -> int:
    """Counts the clients of all cohorts, N."""
    return len(self.power)

  @property
  def depths(self) -> list[int]:
    """The depth of each client, by number."""
    by_number = {n: cohort.depth for cohort in self.cohorts for n in cohort.ids}
    return [by_number[n] for n in range(self.num_clients)]

  @property
  def layout(self) -> Layout:
    """The fleet in counts."""
    shapes = tuple(
      CohortShape(c.depth, len(c.ids), len(c.numbers), c.chunk)
      for c in self.cohorts
    )
    return Layout(shapes, self.participants, self.devices)


def even_depths(
  num_clients: int, depths: tuple[int, ...], seed: int
) -> np.ndarray:
  """Draws the clients' depths, [N] int; each depth is about equally common.

  Raises:
    UserError: there are fewer clients than depths.
  """
  depths = tuple(sorted(set(depths)))
  if num_clients < len(depths):
    raise UserError(
      f"num_clients={num_clients} is fewer than the {len(depths)} split depths"
      f" {depths}: use more clients or fewer backbone.depths"
    )
  rng = np.random.default_rng([seed, 0xF1EE7])
  return np.array(depths)[rng.permutation(np.arange(num_clients) % len(depths))]


def assign_depths(
  num_clients: int,
  depths: tuple[int, ...],
  seed: int,
  *,
  participants: int | None = None,
  power: tuple[float, ...] | None = None,
  cuts: Sequence[int] | np.ndarray | None = None,
) -> Fleet:
  """Makes a fleet of clients, each at one of the depths.

  Args:
    num_clients: N.
    depths: cut depths of the network.
    seed: seed of the shuffle.
    participants: clients sampled per round; None for all.
    power: P_C of each depth, shallowest first. None: a geometric series from 10
      (shallowest) to 40, or 10 if there is only one depth.
    cuts: [N] the depth of each client; None: `even_depths`.

  Raises:
    UserError: the numbers of clients, participants or powers do not fit.
  """
  depths = tuple(sorted(set(depths)))
  if cuts is None:
    cuts = even_depths(num_clients, depths, seed)
  if participants is not None and not 1 <= participants <= num_clients:
    raise UserError(
      f"participants_per_round={participants} must lie in 1..{num_clients}"
      " (num_clients); leave it None for all clients"
    )
  if power is None:
    power = tuple(float(p) for p in np.geomspace(10, 40, len(depths)))
  if len(power) != len(depths):
    raise UserError(
      f"system.client_power={power} names {len(power)} powers for"
      f" {len(depths)} split depths {depths}: give one for each"
    )
  # One cohort for each depth that clients have.
  kind = np.searchsorted(depths, cuts)
  cohorts = []
  for k, depth in enumerate(depths):
    ids = np.flatnonzero(kind == k)
    if ids.size:
      cohorts.append(Cohort(depth, tuple(ids.tolist())))
  return Fleet(
    cohorts=tuple(cohorts),
    power=tuple(power[k] for k in kind),
    participants=num_clients if participants is None else participants,
  )


def without_padding(fleet: Fleet, cohorts: Sequence[Tree]) -> tuple[Tree, ...]:
  """Drops the padding clients, which come last, from cohorts [N, ...]."""
  return tuple(
    trees.take(tree, slice(len(cohort.ids)))
    for tree, cohort in zip(cohorts, fleet.cohorts, strict=True)
  )


def with_padding(fleet: Fleet, cohorts: Sequence[Tree]) -> tuple[Tree, ...]:
  """Pads cohorts [N, ...] to a fleet's sizes, copying the first client."""
  return tuple(
    trees.take(tree, np.array([*range(len(c.ids)), *[0] * c.padding]))
    for tree, c in zip(cohorts, fleet.cohorts, strict=True)
  )


def with_full_depth(fleet: Fleet, length: int) -> Fleet:
  """Merges the cohorts; every client then has all `length` blocks."""
  ids = tuple(range(fleet.num_clients))
  return dataclasses.replace(fleet, cohorts=(Cohort(length, ids),))


def slots(fleet: Fleet) -> tuple[int, ...]:
  """Counts the clients of each cohort that a round computes.

  The numbers, min(N_c, P), are the same in every round, because shapes are
  static.
  """
  return tuple(min(len(c.ids), fleet.participants) for c in fleet.cohorts)


def divide(fleet: Fleet, devices: int, chunks: Sequence[int | None]) -> Fleet:
  """Divides each cohort among the devices, and each device's part into chunks.

  Args:
    fleet: the clients.
    devices: number of devices.
    chunks: for each cohort the most clients that a device may train at a time;
      None for all. Chunks may be smaller, which needs less padding.

  Returns:
    The fleet with padding clients, so that the places of every cohort are a
    multiple of devices x chunk.
  """
  cohorts = []
  for cohort, chunk, count in zip(
    fleet.cohorts, chunks, slots(fleet), strict=True
  ):
    if chunk is not None:
      of_device = -(-count // devices)
      chunk = -(-of_device // -(-of_device // chunk))
    lot = devices * (chunk or 1)
    cohorts.append(
      dataclasses.replace(cohort, padding=-len(cohort.ids) % lot, chunk=chunk)
    )
  return dataclasses.replace(fleet, cohorts=tuple(cohorts), devices=devices)
