"""Who the clients are: how deep, how fast, and which of them take part.

Clients of one depth form a cohort and are stacked on a leading axis. What is
fixed here is static to the compiled round; only participation is drawn in it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array, UserError

Participation = Literal["uniform", "stratified"]


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one depth, and how they lie on the devices.

  Attributes:
    depth: K, their cut.
    ids: their numbers in the fleet, ascending.
    ghosts: copies of the first client behind the real ones, so that every
      device has as many; they never take part.
    chunk: clients that a device trains side by side; None: all that it has.
  """

  depth: int
  ids: tuple[int, ...]
  ghosts: int = 0
  chunk: int | None = None

  @property
  def places(self) -> tuple[int, ...]:
    """Whose number every place of the stacked leaves [N, ...] has."""
    return self.ids + self.ids[:1] * self.ghosts


@dataclasses.dataclass(frozen=True)
class Fleet:
  """All clients.

  Attributes:
    cohorts: by depth, shallowest first.
    power: client number -> P_C, parameters per unit of time.
    participants: clients per round, P.
    participation: "uniform" draws P of N without replacement; "stratified"
      draws each cohort's proportional quota, which costs no idle slots.
    devices: among which every cohort is divided.
  """

  cohorts: tuple[Cohort, ...]
  power: tuple[float, ...]
  participants: int
  participation: Participation = "uniform"
  devices: int = 1

  @property
  def num_clients(self) -> int:
    """N, over all cohorts."""
    return len(self.power)


class Sample(NamedTuple):
  """Who of one cohort takes part in a round.

  Attributes:
    slots: [P'] int32, places in the cohort that the round computes; a place
      that it has not is nobody's.
    active: [P'] bool, False for a slot that is there for its shape alone.
    everyone: slots are all places in their own order, known when traced.
  """

  slots: Array
  active: Array
  everyone: bool


def assign_depths(
  num_clients: int,
  depths: tuple[int, ...],
  seed: int,
  *,
  participants: int | None = None,
  participation: Participation = "uniform",
  power: tuple[float, ...] | None = None,
) -> Fleet:
  """Deals the depths evenly to the clients, shuffled by the seed.

  Args:
    num_clients: N.
    depths: cut depths in use.
    seed: of the shuffle.
    participants: clients per round; None for all.
    participation: how they are drawn.
    power: P_C of each depth, shallowest first. None: geometric from 10 to 40,
      shallower clients being weaker; one depth alone gets 10.

  Raises:
    UserError: a number that cannot be.
  """
  depths = tuple(sorted(set(depths)))
  if num_clients < len(depths):
    raise UserError(
      f"num_clients={num_clients} is fewer than the {len(depths)} split depths"
      f" {depths}: use more clients or fewer backbone.depths"
    )
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
  rng = np.random.default_rng([seed, 0xF1EE7])
  kind = rng.permutation(np.arange(num_clients) % len(depths))
  cohorts = tuple(
    Cohort(depth, tuple(int(i) for i in np.flatnonzero(kind == k)))
    for k, depth in enumerate(depths)
  )
  return Fleet(
    cohorts,
    tuple(power[k] for k in kind),
    num_clients if participants is None else participants,
    participation,
  )


def with_full_depth(fleet: Fleet, length: int) -> Fleet:
  """The same clients, each holding all `length` blocks: one cohort."""
  ids = tuple(range(fleet.num_clients))
  return dataclasses.replace(fleet, cohorts=(Cohort(length, ids),))


def quotas(fleet: Fleet) -> tuple[int, ...]:
  """Participants of each cohort under "stratified".

  P N_c / N, rounded so that they add up to P (largest remainder).
  """
  share = np.array([len(c.ids) for c in fleet.cohorts])
  exact = share * fleet.participants / fleet.num_clients
  quota = np.floor(exact).astype(int)
  rest = fleet.participants - quota.sum()
  quota[np.argsort(quota - exact, kind="stable")[:rest]] += 1
  return tuple(int(q) for q in quota)


def slots(fleet: Fleet) -> tuple[int, ...]:
  """Clients of each cohort that a round computes, whatever is drawn.

  Shapes must not change: min(N_c, P) under "uniform", the quota under
  "stratified".
  """
  if fleet.participation == "stratified":
    return quotas(fleet)
  return tuple(min(len(c.ids), fleet.participants) for c in fleet.cohorts)


def useful_devices(fleet: Fleet, most: int) -> int:
  """The fewest of at most `most` devices that none more would do better than.

  A device trains its share of one cohort after that of another; what cannot be
  divided evenly is filled up with ghosts, who take time as everyone does.
  """

  def turns(devices):
    return sum(-(-count // devices) for count in slots(fleet))

  return min(range(1, most + 1), key=lambda d: (turns(d), d))


def divide(
  fleet: Fleet, devices: int, chunks: Sequence[int | None], *, exact: bool
) -> Fleet:
  """Divides every cohort evenly among devices, and there into chunks.

  Args:
    fleet: the clients.
    devices: how many there are.
    chunks: for each cohort the most clients that a device may train side by
      side; None: all.
    exact: chunks have that size whatever the number of devices (but never
      more than the cohort); else they may be smaller, for fewer ghosts.

  Returns:
    The fleet with ghosts, so that the places of every cohort are a multiple
    of devices x chunk.
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
      dataclasses.replace(cohort, ghosts=-len(cohort.ids) % lot, chunk=chunk)
    )
  return dataclasses.replace(fleet, cohorts=tuple(cohorts), devices=devices)


def sample_clients(
  fleet: Fleet, key: Array, numbers: Sequence[Array]
) -> tuple[Sample, ...]:
  """Draws the participants of a round, inside the compiled round.

  Args:
    fleet: all clients.
    key: [] PRNG key.
    numbers: per cohort [N] int32, the clients' numbers, ghosts last.

  Returns:
    Per cohort its slots: as many as `slots` says, filled up to a multiple of
    devices x chunk. All places in their own order, where chunks are no more.
  """
  if fleet.participants == fleet.num_clients:
    everyone = (jnp.ones(len(c.ids), bool) for c in fleet.cohorts)
    return tuple(map(_all_places, fleet.cohorts, everyone))
  place = jax.random.permutation(key, fleet.num_clients)
  out = []
  for cohort, who, count in zip(
    fleet.cohorts, numbers, slots(fleet), strict=True
  ):
    # A client takes part if its place in the random order is early enough.
    mine = place[who[: len(cohort.ids)]]
    order = jnp.argsort(mine)
    active = mine < fleet.participants
    if fleet.participation == "stratified":
      active = jnp.argsort(order) < count
    # Not by the number of devices: chunks must not depend on it.
    chunk = cohort.chunk or 1
    if -(-count // chunk) >= -(-len(cohort.ids) // chunk):
      out.append(_all_places(cohort, active))  # no gather is needed
      continue
    extra = -count % (fleet.devices * chunk)
    chosen = order[:count]
    nobody = jnp.full(extra, len(cohort.places), chosen.dtype)
    out.append(
      Sample(
        jnp.concatenate([chosen, nobody]),
        jnp.concatenate([active[chosen], jnp.zeros(extra, bool)]),
        False,
      )
    )
  return tuple(out)


def _all_places(cohort: Cohort, active: Array) -> Sample:
  """Every place of a cohort; active: [N] bool, of its real clients."""
  ghosts = jnp.zeros(cohort.ghosts, bool)
  return Sample(
    jnp.arange(len(cohort.places)), jnp.concatenate([active, ghosts]), True
  )
