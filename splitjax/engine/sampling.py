"""The sampling of a round's participants, inside the compiled round."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax.engine.fleets import Cohort, Fleet, slots
from splitjax.types import Array


class Sample(NamedTuple):
  """The clients of one cohort that a round computes.

  Attributes:
    slots: [P'] int, positions in the cohort. A position beyond the cohort's end
      marks padding.
    active: [P'] bool, True for the sampled clients.
    all_places: whether `slots` lists all places in order; static.
  """

  slots: Array
  active: Array
  all_places: bool


def sample_clients(
  fleet: Fleet, key: Array, numbers: Sequence[Array]
) -> tuple[Sample, ...]:
  """Samples P of all N clients uniformly, without replacement.

  `key` [] is the key of the sample. For each cohort, `numbers` has the clients'
  numbers, [N] int32 with padding last.

  Returns:
    For each cohort a Sample of `fleets.slots` clients, padded to a multiple of
    devices x chunk. But if the whole cohort needs no more chunks than these
    clients, the Sample has all places in order, and no client is gathered.
  """
  if fleet.participants == fleet.num_clients:
    return tuple(
      _all_places(cohort, jnp.ones(len(cohort.ids), bool))
      for cohort in fleet.cohorts
    )

  # The participants are the first P clients of a random order.
  place = jax.random.permutation(key, fleet.num_clients)
  samples = []
  for cohort, number, count in zip(
    fleet.cohorts, numbers, slots(fleet), strict=True
  ):
    own = place[number[: len(cohort.ids)]]
    active = own < fleet.participants
    chunk = cohort.chunk or 1
    if -(-count // chunk) >= -(-len(cohort.ids) // chunk):
      samples.append(_all_places(cohort, active))
      continue

    # Gather the first `count` clients; pad to whole chunks on all devices.
    chosen = jnp.argsort(own)[:count]
    extra = -count % (fleet.devices * chunk)
    padding = jnp.full(extra, len(cohort.places), chosen.dtype)
    places = jnp.concatenate([chosen, padding])
    on = jnp.concatenate([active[chosen], jnp.zeros(extra, bool)])

    # The sampled clients come first: deal them to the devices in turn, because
    # in order one device might train all of them and another none.
    turns = jnp.arange(len(places)).reshape(-1, fleet.devices).T.reshape(-1)
    samples.append(Sample(places[turns], on[turns], all_places=False))
  return tuple(samples)


def _all_places(cohort: Cohort, active: Array) -> Sample:
  """Makes a Sample of all places; `active` [N] bool is without padding."""
  padding = jnp.zeros(cohort.padding, bool)
  return Sample(
    jnp.arange(len(cohort.places)),
    jnp.concatenate([active, padding]),
    all_places=True,
  )
