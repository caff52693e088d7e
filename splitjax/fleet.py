"""Who the clients are: how deep, how fast, and which of them take part.

Clients of one depth form a cohort and are stacked on a leading axis. What is
fixed here is static to the compiled round; only participation is drawn in it.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array, UserError

Participation = Literal["uniform", "stratified"]


@dataclasses.dataclass(frozen=True)
class Cohort:
  """The clients of one depth.

  Attributes:
    depth: K, their cut.
    ids: their numbers in the fleet, ascending.
  """

  depth: int
  ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Fleet:
  """All clients.

  Attributes:
    cohorts: by depth, shallowest first.
    power: client number -> P_C, parameters per unit of time.
    participants: clients per round, P.
    participation: "uniform" draws P of N without replacement; "stratified"
      draws each cohort's proportional quota, which costs no idle slots.
  """

  cohorts: tuple[Cohort, ...]
  power: tuple[float, ...]
  participants: int
  participation: Participation = "uniform"

  @property
  def num_clients(self) -> int:
    """N, over all cohorts."""
    return len(self.power)


class Turnout(NamedTuple):
  """Who of one cohort takes part in a round.

  Attributes:
    slots: [P'] int32, places in the cohort that the round computes.
    active: [P'] bool, False for a slot that is there for its shape alone.
  """

  slots: Array
  active: Array


def deal(
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


def whole(fleet: Fleet, length: int) -> Fleet:
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


def draw(fleet: Fleet, key: Array) -> tuple[Turnout, ...]:
  """Draws the participants of a round, inside the compiled round.

  Args:
    fleet: all clients.
    key: [] PRNG key.

  Returns:
    Per cohort its slots: min(N_c, P) under "uniform", the quota under
    "stratified", whatever is drawn, since shapes must not change.
  """
  if fleet.participants == fleet.num_clients:
    return tuple(
      Turnout(jnp.arange(len(c.ids)), jnp.ones(len(c.ids), bool))
      for c in fleet.cohorts
    )
  place = jax.random.permutation(key, fleet.num_clients)
  out = []
  for cohort, quota in zip(fleet.cohorts, quotas(fleet), strict=True):
    # A client takes part if its place in the random order is early enough.
    mine = place[jnp.array(cohort.ids)]
    order = jnp.argsort(mine)
    if fleet.participation == "stratified":
      full = quota == len(cohort.ids)
      slots = jnp.arange(quota) if full else order[:quota]
      out.append(Turnout(slots, jnp.ones(quota, bool)))
    else:
      # A cohort that fits in whole stays in its own order: no gather is needed.
      fits = len(cohort.ids) <= fleet.participants
      slots = (
        jnp.arange(len(cohort.ids)) if fits else order[: fleet.participants]
      )
      out.append(Turnout(slots, mine[slots] < fleet.participants))
  return tuple(out)
