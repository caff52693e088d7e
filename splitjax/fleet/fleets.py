"""The clients: their depths, their speeds, and how devices hold them.

Clients of one depth form a cohort and are stacked on a leading axis. A compiled
round knows a fleet by its `Layout` alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splitjax import trees
from splitjax.fleet.resources import Devices
from splitjax.types import Tree, UserError

if TYPE_CHECKING:
  from splitjax.methods.method import Method


class Cohort(NamedTuple):
  """The clients of one depth, and how devices hold them."""

  depth: int  #: K, their cut
  ids: tuple[int, ...]  #: their numbers in the fleet, ascending
  #: number of padding clients behind them, so that all devices hold equally
  #: many. They have the number and data of the first, and never participate.
  padding: int = 0
  chunk: int | None = None  #: clients that a device trains at a time; None: all

  @property
  def numbers(self) -> tuple[int, ...]:
    """Lists the client number at each place of the stacked leaves [N, ...]."""
    return self.ids + self.ids[:1] * self.padding

  @property
  def places(self) -> list[int]:
    """Likewise its place among `ids`."""
    return [*range(len(self.ids)), *[0] * self.padding]


class CohortShape(NamedTuple):
  """A cohort without its clients' numbers."""

  depth: int
  size: int  #: without padding
  width: int  #: with padding
  chunk: int | None = None


class Layout(NamedTuple):
  """A fleet in counts, static to a round: one program serves all seeds.

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


class Fleet(NamedTuple):
  """All clients."""

  cohorts: tuple[Cohort, ...]  #: by depth, shallowest first
  power: tuple[float, ...]  #: P_C [N], in parameters per unit of time
  participants: int  #: P, clients sampled per round
  devices: int = 1  #: number of devices that every cohort is divided among
  hardware: Devices | None = None  #: the clients' devices; None: unknown

  @property
  def num_clients(self) -> int:
    """Counts the clients of all cohorts, N."""
    return len(self.power)

  @property
  def depths(self) -> list[int]:
    """The depth of each client, by number."""
    by_number = np.zeros(self.num_clients, int)
    for cohort in self.cohorts:
      by_number[list(cohort.ids)] = cohort.depth
    return by_number.tolist()

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
  """Draws depths, [N] int, each about equally often; UserError if N is less."""
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
  """Makes a fleet of clients, each at one of the network's cut `depths`.

  `participants` of them are sampled per round; None: all. `power` is P_C of
  each depth, shallowest first; None: a geometric series from 10 to 40, or 10
  alone. `cuts` [N] are the clients' depths; None: `even_depths` by the seed.
  UserError if the numbers of clients, participants or powers do not fit.
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
  cuts = np.asarray(cuts)
  return Fleet(
    cohorts=tuple(
      Cohort(depth, tuple(np.flatnonzero(cuts == depth).tolist()))
      for depth in np.unique(cuts).tolist()
    ),
    power=tuple(power[k] for k in np.searchsorted(depths, cuts)),
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
    trees.take(tree, np.array(cohort.places))
    for tree, cohort in zip(cohorts, fleet.cohorts, strict=True)
  )


def client_of(fleet: Fleet, cohorts: Sequence[Tree], number: int) -> Tree:
  """Takes a client, by its number, from cohorts [N, ...]."""
  for tree, cohort in zip(cohorts, fleet.cohorts, strict=True):
    if number in cohort.ids:
      return trees.take(tree, cohort.ids.index(number))
  raise IndexError(f"client {number} of {fleet.num_clients}")


def own_fleet(method: "Method", fleet: Fleet) -> Fleet:
  """Returns the clients in a method's cohorts.

  Those of one split depth form one; all do if they hold the whole network.
  """
  if not method.uncut:
    return fleet
  ids = tuple(range(fleet.num_clients))
  return fleet._replace(cohorts=(Cohort(method.backbone.length, ids),))


def divide(fleet: Fleet, devices: int, chunks: Sequence[int | None]) -> Fleet:
  """Divides each cohort among the devices, and each device's part into chunks.

  `chunks` has for each cohort the most clients that a device may train at a
  time, or None for all; chunks may be smaller, which needs less padding. The
  places of every cohort become a multiple of devices x chunk by padding.
  """
  cohorts = []
  for cohort, chunk in zip(fleet.cohorts, chunks, strict=True):
    if chunk is not None:
      # A round computes min(N_c, P) of a cohort's clients.
      of_device = -(-min(len(cohort.ids), fleet.participants) // devices)
      chunk = -(-of_device // -(-of_device // chunk))
    lot = devices * (chunk or 1)
    padding = -len(cohort.ids) % lot
    cohorts.append(cohort._replace(padding=padding, chunk=chunk))
  return fleet._replace(cohorts=tuple(cohorts), devices=devices)
