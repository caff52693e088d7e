"""How a round lays out its clients, and who of them takes part.

A layout is static and holds counts alone; which client is where is data
(Shard.number), so that one program serves all seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.fleet.fleets import Fleet


class CohortShape(NamedTuple):
  """Clients of one depth, stacked on a leading axis of `places`.

  Padding, behind them, makes all devices hold equally many.
  """

  depth: int  # K, their cut
  size: int  # without padding
  places: int  # with padding
  chunk: int | None = None  # clients that a device trains at a time; None: all


class Layout(NamedTuple):
  """All clients."""

  cohorts: tuple[CohortShape, ...]  # by depth, shallowest first
  participants: int  # P, clients sampled per round, without replacement
  devices: int = 1  # that every cohort is divided among

  @property
  def size(self) -> int:
    """N, the clients of all cohorts."""
    return sum(cohort.size for cohort in self.cohorts)

  @property
  def partial(self) -> bool:
    """Tells whether clients may sit out a round."""
    return self.participants < self.size

  def computed(self, cohort: CohortShape) -> int:
    """Counts the clients of a cohort that a round computes, min(N_c, P).

    The number is the same in every round, because shapes are static.
    """
    return min(cohort.size, self.participants)


def of(fleet: Fleet) -> Layout:
  """Makes the layout of a fleet."""
  cohorts = tuple(
    CohortShape(c.depth, len(c.ids), len(c.places), c.chunk)
    for c in fleet.cohorts
  )
  return Layout(cohorts, fleet.participants, fleet.devices)


class Sample(NamedTuple):
  """The n clients of a cohort that a round computes.

  A slot beyond the cohort's end is padding.
  """

  slots: Array | None  # [n] their places; None: all places in order
  active: Array  # [n] bool, whether they participate


def sample(
  layout: Layout, key: Array, numbers: Sequence[Array]
) -> tuple[Sample, ...]:
  """Samples P of all N clients uniformly, without replacement.

  `numbers` are those of each cohort's clients, [N] int32 with padding last.
  """
  if not layout.partial:
    everyone = [jnp.ones(cohort.size, bool) for cohort in layout.cohorts]
    return tuple(map(_all_places, layout.cohorts, everyone))

  # The participants are the first P clients of a random order.
  rank = jax.random.permutation(key, layout.size)
  samples = []
  for cohort, number in zip(layout.cohorts, numbers, strict=True):
    place = rank[number[: cohort.size]]
    active = place < layout.participants
    chunk = cohort.chunk or 1
    most = layout.computed(cohort)
    if -(-most // chunk) >= -(-cohort.size // chunk):
      samples.append(_all_places(cohort, active))
      continue
    # Gather the first of them; pad to whole chunks on all devices.
    chosen = jnp.argsort(place)[:most]
    extra = -most % (layout.devices * chunk)
    beyond = jnp.full(extra, cohort.places, chosen.dtype)
    slots = jnp.concatenate([chosen, beyond])
    on = jnp.concatenate([active[chosen], jnp.zeros(extra, bool)])
    # The sampled clients come first: deal them to the devices in turn, because
    # in order one device might train all of them and another none.
    turns = jnp.arange(len(slots)).reshape(-1, layout.devices).T.reshape(-1)
    samples.append(Sample(slots=slots[turns], active=on[turns]))
  return tuple(samples)


def _all_places(cohort: CohortShape, active: Array) -> Sample:
  """Makes a sample of all places; `active` [N] bool is without padding."""
  padding = jnp.zeros(cohort.places - cohort.size, bool)
  return Sample(slots=None, active=jnp.concatenate([active, padding]))
