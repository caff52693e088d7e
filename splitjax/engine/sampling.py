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
      marks padding or, if clients are assigned to devices in turn, a client
      that is not sampled.
    active: [P'] bool, True for the sampled clients.
    all_places: whether `slots` lists all places in order; static.
  """

  slots: Array
  active: Array
  all_places: bool


def balanced(order: Array, counts: Array, most: int) -> Array:
  """Chooses clients whose merged labels are distributed like all clients'.

  As in MergeSFL's choice of workers, KL(Phi || Phi_0) is to be small, where Phi
  is the label distribution of the chosen clients and Phi_0 that of all clients.
  The paper uses a genetic algorithm; this search is greedy. It takes the first
  client in `order`. Then, `most` - 1 times, it adds the client that makes KL
  smallest; in a tie, the one that comes first in `order`.

  Args:
    order: [N] int, clients in random order.
    counts: [N, C] int, samples of each class.
    most: P.

  Returns:
    [N] int, each client's rank in the choice: below P for the chosen ones.
  """
  counts = counts[order].astype(float)
  wanted = counts.sum(axis=0) / counts.sum()

  def add(t, carry):
    place, merged = carry
    share = merged + counts
    share = share / jnp.maximum(share.sum(axis=1, keepdims=True), 1.0)
    parts = jax.scipy.special.rel_entr(share, wanted)
    distance = jnp.where(place < len(order), jnp.inf, parts.sum(axis=1))
    best = distance.argmin()
    return place.at[best].set(t), merged + counts[best]

  nobody = jnp.full(len(order), len(order)).at[0].set(0)
  place, _ = jax.lax.fori_loop(1, most, add, (nobody, counts[0]))
  return jnp.zeros_like(place).at[order].set(place)


def sample_clients(
  fleet: Fleet,
  key: Array,
  numbers: Sequence[Array],
  counts: Sequence[Array] = (),
) -> tuple[Sample, ...]:
  """Samples the participants of a round, inside the compiled round.

  `key` [] is the key of the sample. For each cohort, `numbers` has the clients'
  numbers, [N] int32 with padding last, and `counts` has their samples of each
  class, [N, C], which only "label_balanced" needs.

  If several devices each train one client at a time, the clients of all cohorts
  are assigned to devices in turn, so that all devices train equally many. A
  cohort's slots begin with the sampled clients: if devices took slots in order,
  one device might train all sampled clients and another device none.

  Returns:
    For each cohort a Sample of `fleets.slots` clients, padded to a multiple of
    devices x chunk. But if the whole cohort needs no more chunks than these
    clients, and no device has to train more clients, the Sample has all places
    in order, and no client is gathered.
  """
  before: Array | int = 0  # participants of earlier cohorts
  samples = []
  if fleet.participants == fleet.num_clients:
    # Nothing is gathered unless it shortens the longest share of a device.
    sizes = [len(cohort.ids) for cohort in fleet.cohorts]
    rows = sum(-(-size // fleet.devices) for size in sizes)
    shorter = -(-sum(sizes) // fleet.devices) < rows
    for cohort, size in zip(fleet.cohorts, sizes, strict=True):
      sample = _all_places(cohort, jnp.ones(size, bool))
      if shorter and size % fleet.devices and fleet.singly(cohort):
        sample = _deal(fleet, cohort, sample, before)
      samples.append(sample)
      before += size
    return tuple(samples)

  # The participants are the first P clients of a random order.
  place = jax.random.permutation(key, fleet.num_clients)
  if fleet.participation == "label_balanced":
    every = jnp.zeros((fleet.num_clients, counts[0].shape[1]), int)
    for number, own in zip(numbers, counts, strict=True):
      every = every.at[number].set(own)
    place = balanced(place, every, fleet.participants)
  for cohort, number, count in zip(
    fleet.cohorts, numbers, slots(fleet), strict=True
  ):
    own = place[number[: len(cohort.ids)]]
    order = jnp.argsort(own)
    active = own < fleet.participants
    if fleet.participation == "stratified":
      active = jnp.argsort(order) < count

    # Compute all places, without a gather, if a gather would save no chunk and
    # nothing is dealt. In exact fleets neither this nor, therefore, the chunks
    # depend on the number of devices.
    chunk, singly = cohort.chunk or 1, fleet.singly(cohort)
    if not singly and -(-count // chunk) >= -(-len(cohort.ids) // chunk):
      samples.append(_all_places(cohort, active))
      continue

    # Gather the first `count` clients; pad to whole chunks on all devices.
    extra = -count % (fleet.devices * chunk)
    chosen = order[:count]
    padding = jnp.full(extra, len(cohort.places), chosen.dtype)
    sample = Sample(
      jnp.concatenate([chosen, padding]),
      jnp.concatenate([active[chosen], jnp.zeros(extra, bool)]),
      all_places=False,
    )
    samples.append(_deal(fleet, cohort, sample, before) if singly else sample)
    before += active.sum()
  return tuple(samples)


def _deal(
  fleet: Fleet, cohort: Cohort, sample: Sample, before: Array | int
) -> Sample:
  """Assigns a cohort's slots to devices in turn, the sampled clients first.

  `before` [] int is the number of clients of other cohorts assigned so far.
  """
  turns = jnp.arange(len(sample.slots)).reshape(-1, fleet.devices)
  slots = jnp.roll(turns, before, axis=1).T.reshape(-1)
  places = jnp.where(sample.active, sample.slots, len(cohort.places))
  return Sample(places[slots], sample.active[slots], all_places=False)


def _all_places(cohort: Cohort, active: Array) -> Sample:
  """Makes a Sample of all places; `active` [N] bool is without padding."""
  padding = jnp.zeros(cohort.padding, bool)
  return Sample(
    jnp.arange(len(cohort.places)),
    jnp.concatenate([active, padding]),
    all_places=True,
  )
