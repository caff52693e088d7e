"""The clients: their depths, their speeds, and the sampling of participants.

Clients of one depth form a cohort and are stacked on a leading axis. A fleet is
static to the compiled round, which only samples the participants.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.engine.resources import Devices
from splitjax.types import Array, Tree, UserError

Participation = Literal["uniform", "stratified", "label_balanced"]


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one depth, and how devices hold them.

  Attributes:
    depth: K, their cut.
    ids: their numbers in the fleet, ascending.
    padding: padding clients, copies of the first client after the real ones, so
      that all devices hold equally many; they never participate.
    chunk: clients that a device trains at a time; None for all that it holds.
  """

  depth: int
  ids: tuple[int, ...]
  padding: int = 0
  chunk: int | None = None

  @property
  def places(self) -> tuple[int, ...]:
    """The client number at each place of the stacked leaves [N, ...]."""
    return self.ids + self.ids[:1] * self.padding


@dataclasses.dataclass(frozen=True)
class Fleet:
  """All clients.

  Attributes:
    cohorts: by depth, shallowest first.
    power: client number -> P_C, parameters per unit of time.
    hardware: the clients' devices; None where unknown.
    participants: P, clients sampled per round.
    participation: "uniform" samples P of N without replacement; "stratified"
      samples each cohort's proportional quota, which needs no padding slots;
      "label_balanced" draws the first and adds the others by `balanced`.
    devices: number of devices that every cohort is divided among.
  """

  cohorts: tuple[Cohort, ...]
  power: tuple[float, ...]
  participants: int
  participation: Participation = "uniform"
  devices: int = 1
  hardware: Devices | None = None

  @property
  def num_clients(self) -> int:
    """N, over all cohorts."""
    return len(self.power)


class Sample(NamedTuple):
  """The clients of one cohort that a round computes.

  Attributes:
    slots: [P'] int, places in the cohort; of padding a place beyond its end.
    active: [P'] bool, True for the sampled clients.
    all_places: slots are all places in order, known when the round is traced.
  """

  slots: Array
  active: Array
  all_places: bool


def even_depths(
  num_clients: int, depths: tuple[int, ...], seed: int
) -> np.ndarray:
  """Depths [N] int in equal shares, shuffled by the seed.

  Raises:
    UserError: fewer clients than depths.
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
  participation: Participation = "uniform",
  power: tuple[float, ...] | None = None,
  given: Sequence[int] | np.ndarray | None = None,
) -> Fleet:
  """A fleet of clients, each at one of the depths.

  Args:
    num_clients: N.
    depths: cut depths of the network.
    seed: of the shuffle.
    participants: clients sampled per round; None for all.
    participation: how they are sampled.
    power: P_C of each depth, shallowest first. None: geometric from 10 to 40,
      shallower clients being weaker; one depth alone gets 10.
    given: [N] the depth of each client; None: `even_depths`.

  Raises:
    UserError: numbers of clients, participants or powers that do not fit.
  """
  depths = tuple(sorted(set(depths)))
  if given is None:
    given = even_depths(num_clients, depths, seed)
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
  kind = np.searchsorted(depths, given)
  cohorts = tuple(
    Cohort(depth, tuple(int(i) for i in np.flatnonzero(kind == k)))
    for k, depth in enumerate(depths)
    if (kind == k).any()
  )
  return Fleet(
    cohorts,
    tuple(power[k] for k in kind),
    num_clients if participants is None else participants,
    participation,
  )


def without_padding(fleet: Fleet, cohorts: Sequence[Tree]) -> tuple[Tree, ...]:
  """Cohorts [N, ...] without their padding clients, which come last."""
  return tuple(
    trees.window(tree, 0, len(cohort.ids))
    for tree, cohort in zip(cohorts, fleet.cohorts, strict=True)
  )


def with_full_depth(fleet: Fleet, length: int) -> Fleet:
  """The same clients, each with all `length` blocks, as one cohort."""
  ids = tuple(range(fleet.num_clients))
  return dataclasses.replace(fleet, cohorts=(Cohort(length, ids),))


def quotas(fleet: Fleet) -> tuple[int, ...]:
  """Participants of each cohort under "stratified".

  P N_c / N, rounded by largest remainders so that they add up to P.
  """
  share = np.array([len(c.ids) for c in fleet.cohorts])
  exact = share * fleet.participants / fleet.num_clients
  quota = np.floor(exact).astype(int)
  rest = fleet.participants - quota.sum()
  quota[np.argsort(quota - exact, kind="stable")[:rest]] += 1
  return tuple(int(q) for q in quota)


def slots(fleet: Fleet) -> tuple[int, ...]:
  """Number of clients of each cohort that every round computes.

  Shapes are static: the quota under "stratified", otherwise min(N_c, P).
  """
  if fleet.participation == "stratified":
    return quotas(fleet)
  return tuple(min(len(c.ids), fleet.participants) for c in fleet.cohorts)


def useful_devices(fleet: Fleet, most: int) -> int:
  """The smallest number of devices, at most `most`, with the shortest round.

  A device trains its shares of the cohorts one after another. Padding clients,
  which fill up uneven shares, take as long as real ones.
  """

  def clients_in_turn(devices):
    return sum(-(-count // devices) for count in slots(fleet))

  return min(range(1, most + 1), key=lambda d: (clients_in_turn(d), d))


def divide(
  fleet: Fleet, devices: int, chunks: Sequence[int | None], *, exact: bool
) -> Fleet:
  """Divides every cohort evenly among devices, and each share into chunks.

  Args:
    fleet: the clients.
    devices: their number.
    chunks: for each cohort the most clients that a device may train at a time;
      None for all.
    exact: chunks have this size on any number of devices (but never more than
      the cohort); otherwise they may be smaller, which needs less padding.

  Returns:
    The fleet with padding clients, so that the places of every cohort are a
    multiple of devices x chunk.
  """
  cohorts = []
  for cohort, chunk, count in zip(
    fleet.cohorts, chunks, slots(fleet), strict=True
  ):
    if chunk is not None:
      each = -(-count // devices)
      chunk = min(chunk, len(cohort.ids))
      if not exact:
        chunk = -(-each // -(-each // chunk)) if each else None
    lot = devices * (chunk or 1)
    cohorts.append(
      dataclasses.replace(cohort, padding=-len(cohort.ids) % lot, chunk=chunk)
    )
  return dataclasses.replace(fleet, cohorts=tuple(cohorts), devices=devices)


def balanced(order: Array, counts: Array, most: int) -> Array:
  """Chooses clients whose labels together are like those of all clients.

  After MergeSFL's choice of workers: KL(Phi || Phi_0) of the labels of the
  chosen clients, merged, to those of all clients is to be small. The paper
  searches by a genetic algorithm; ours is greedy. The first client in `order`
  is taken, and then `most` - 1 times the one that makes KL smallest, of several
  the first in order.

  Args:
    order: [N] int, clients in random order.
    counts: [N, C] int, samples of each class.
    most: P.

  Returns:
    [N] int, the place of each client: below P for the chosen ones.
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

  `key` [] is the round's; `numbers` are the clients' numbers, per cohort [N]
  int32, padding last; `counts` [N, C] their samples of each class, which
  "label_balanced" alone needs.

  Returns:
    Per cohort as many slots as `slots` says, padded to a multiple of devices x
    chunk; all places in order if that makes no more chunks.
  """
  if fleet.participants == fleet.num_clients:
    return tuple(
      _all_places(c, jnp.ones(len(c.ids), bool)) for c in fleet.cohorts
    )

  # The participants are the first P clients of a random order.
  place = jax.random.permutation(key, fleet.num_clients)
  if fleet.participation == "label_balanced":
    every = jnp.zeros((fleet.num_clients, counts[0].shape[1]), int)
    for number, own in zip(numbers, counts, strict=True):
      every = every.at[number].set(own)
    place = balanced(place, every, fleet.participants)
  samples = []
  for cohort, number, count in zip(
    fleet.cohorts, numbers, slots(fleet), strict=True
  ):
    own = place[number[: len(cohort.ids)]]
    order = jnp.argsort(own)
    active = own < fleet.participants
    if fleet.participation == "stratified":
      active = jnp.argsort(order) < count

    # Compute all places, without a gather, if a gather would save no chunk.
    # This does not depend on the number of devices, and so chunks do not.
    chunk = cohort.chunk or 1
    if -(-count // chunk) >= -(-len(cohort.ids) // chunk):
      samples.append(_all_places(cohort, active))
      continue

    # Gather the first `count` clients; pad to whole chunks on all devices.
    extra = -count % (fleet.devices * chunk)
    chosen = order[:count]
    padding = jnp.full(extra, len(cohort.places), chosen.dtype)
    samples.append(
      Sample(
        jnp.concatenate([chosen, padding]),
        jnp.concatenate([active[chosen], jnp.zeros(extra, bool)]),
        all_places=False,
      )
    )
  return tuple(samples)


def _all_places(cohort: Cohort, active: Array) -> Sample:
  """All places of a cohort; active: [N] bool, of its real clients."""
  padding = jnp.zeros(cohort.padding, bool)
  return Sample(
    jnp.arange(len(cohort.places)),
    jnp.concatenate([active, padding]),
    all_places=True,
  )
