"""How a round lays out its clients.

A layout is static and holds counts alone; which client is where is data
(Shard.number), so that one program serves all seeds.
"""

from typing import NamedTuple

from splitjax.fleet.fleets import Fleet


class CohortShape(NamedTuple):
  """Clients of one depth, stacked; padding behind them fills the devices."""

  depth: int  #: K, their cut
  size: int  #: without padding
  width: int  #: with padding
  chunk: int | None = None  #: clients that a device trains at a time; None: all


class Layout(NamedTuple):
  """All clients."""

  cohorts: tuple[CohortShape, ...]  #: by depth, shallowest first
  participants: int  #: P, clients sampled per round, without replacement
  devices: int = 1  #: that every cohort is divided among

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


def of(fleet: Fleet) -> Layout:
  """Makes the layout of a fleet."""
  cohorts = tuple(
    CohortShape(c.depth, len(c.ids), len(c.numbers), c.chunk)
    for c in fleet.cohorts
  )
  return Layout(cohorts, fleet.participants, fleet.devices)
