"""Buffered rounds: the server steps once m updates have arrived (FedBuff).

M clients train at a time, each from the model that it was given when it began.
A round takes the m clients that are ready first; of clients that are ready at
the same time, those with lower numbers come first. It computes the training of
these m clients only, and makes the next server. Then idle clients begin until M
clients train again. The state has arrays that tell which clients train, when
they will be ready and from which model they began. All else is as in a round
with m sampled participants.

An update has staleness tau if its client began from the model of tau rounds
before. It enters the mean of the updates as

  w + s(tau) (w_i - w_i0),  s(tau) = (1 + tau)^-a,

where w is the server's current model, w_i0 the model that client i was given,
and w_i the model that client i trained from w_i0. With equal weights the mean
is FedBuff's step w + 1/m sum_i s(tau_i) (w_i - w_i0). With tau = 0 an update
enters as w_i, as in a synchronous round. If clients blend the mean of a block
with their own parameters (0 < lam < 1, or FedALA's mixture), w_i0 is the mean
that client i was given. Running statistics, optimiser slots and other sums of a
method (SCAFFOLD's c, FedProto's prototypes) are not scaled by s(tau).

References:
  Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation,
    AISTATS 2022, Algorithm 1.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.models.block import is_exit
from splitjax.types import (
  Array,
  Flight,
  Half,
  Method,
  Shard,
  Start,
  State,
  Sums,
  Tree,
  UserError,
)


class Buffer(NamedTuple):
  """Settings of buffered rounds.

  Attributes:
    in_flight: M, the number of clients that train at a time.
    staleness: a, the exponent of s(tau).
  """

  in_flight: int
  staleness: float


def in_flight(method: Method) -> Method:
  """Adds a Flight, and a Start for each client, to the state of a method.

  The `init` of the new method raises a UserError if clients and server share
  their parameters (SuperSFL), because w_i - w_i0 is then not the update of
  client i alone.
  """
  keep, halves = method.aggregation.keep, method.aggregation.halves

  def share(name: str) -> Any:
    return keep(name) if callable(keep) else keep

  def by_mean(name: str) -> bool:  # w_i0 is no part of the client's own half
    return share(name) != 0 or not halves

  def init(key, fleet, full):
    state = method.init(key, fleet, full)
    now = dict[str, Tree]()
    for half in state.clients:
      params = half.segment.params
      shared = {n for n in params if not is_exit(n)}
      if shared <= state.server.segment.params.keys():
        raise UserError(
          "pace=buffered: clients and server share their parameters; leave it"
          " synchronous"
        )
      for name, rows in params.items():
        if share(name) < 1:  # blocks kept whole are never sent
          now.setdefault(name, trees.take(rows, 0))

    def begun(half: Half, count: int) -> Half:
      given = {
        n: now[n] for n in half.segment.params if n in now and by_mean(n)
      }
      start = Start(half, *trees.repeat((state.server, given), count))
      return half._replace(start=start)

    clients = tuple(
      begun(half, len(cohort.places))
      for half, cohort in zip(state.clients, fleet.cohorts, strict=True)
    )
    left = jnp.full(fleet.num_clients, jnp.inf, float)
    since = jnp.zeros(fleet.num_clients, jnp.int32)
    return state._replace(clients=clients, flight=Flight(left, since, now))

  return method._replace(init=init)


def depart(
  buffer: Buffer, state: State, shards: Sequence[Shard], key: Array
) -> State:
  """Lets idle clients, drawn uniformly, begin until M are in flight.

  `key` [] is the key of the round's sample.
  """
  flight = state.flight
  count = len(flight.left)
  idle = jnp.isinf(flight.left)
  starts = idle
  if buffer.in_flight < count:
    place = jax.random.permutation(key, count)
    rank = _rank(jnp.where(idle, place, count))
    starts = idle & (rank < buffer.in_flight - (~idle).sum())
  seconds = _by_number(shards, count)[:, 0]
  left = jnp.where(starts, seconds, flight.left)
  since = jnp.where(starts, state.round, flight.since)

  def begin(half: Half, shard: Shard) -> Half:
    now = {name: flight.now[name] for name in half.start.mean}
    given = trees.repeat((state.server, now), len(shard.number))
    new = Start(half._replace(start=()), *given)
    return half._replace(
      start=trees.where(starts[shard.number], new, half.start)
    )

  clients = tuple(map(begin, state.clients, shards))
  flight = flight._replace(left=left, since=since)
  return state._replace(clients=clients, flight=flight)


def arrivals(flight: Flight) -> Array:
  """Ranks the clients by their arrival, [N] int; the idle ones come last."""
  return _rank(flight.left)


def land(
  buffer: Buffer,
  flight: Flight,
  round: Array,
  place: Array,
  size: int,
  shards: Sequence[Shard],
) -> tuple[Flight, dict[str, Array]]:
  """Takes the first `size` clients, in the order of arrival, out of the flight.

  The server begins to work for these clients once the last of them has arrived.
  Other clients that arrive before it has finished must wait.

  Args:
    buffer: has the exponent a.
    flight: the clients in flight during the round.
    round: [] int32, finished rounds.
    place: [N] int, from `arrivals`.
    size: m.
    shards: for each cohort the shards of all its clients.

  Returns:
    The flight after the round, and a dict of three arrays. "seconds" [] is the
    length of the round. "staleness" [N] int32 is the tau of each update that
    the round took, and -1 for all other clients. "weight" [N] float is the
    s(tau) of each of these updates, and 0 for all other clients.
  """
  here = place < size
  serves = _by_number(shards, len(place))[:, 1]
  last = jnp.where(here, flight.left, -jnp.inf).max()
  took = jnp.maximum(last, 0) + jnp.where(here, serves, 0).sum()
  left = jnp.where(here, jnp.inf, flight.left - took)
  tau = round - flight.since
  facts = {
    "seconds": took,
    "staleness": jnp.where(here, tau, -1),
    "weight": jnp.where(here, _factor(buffer, tau), 0.0),
  }
  return flight._replace(left=left), facts


def rebased(
  buffer: Buffer,
  tau: Array,
  start: Start,
  now: tuple[dict[str, Tree], Half],
  pair: tuple[Half, Half],
) -> tuple[Half, Half]:
  """Replaces w_i by w + s(tau) (w_i - w_i0) in a client's trained halves.

  Args:
    buffer: has the exponent a.
    tau: [] int32.
    start: the model that the client began from.
    now: the current model w: a dict of the clients' shared blocks by name, and
      the server's half.
    pair: the client's half and its copy of the server, after its round.
  """
  factor = _factor(buffer, tau)

  def one(w: Array, old: Array, new: Array) -> Array:
    assert w.shape == new.shape, "a client's copy of the server has its shapes"
    return jnp.where(tau == 0, w, new + factor * (w - old))

  def moved(half: Half, begun: dict[str, Tree], now: dict[str, Tree]) -> Half:
    params = dict(half.segment.params)
    for name in (n for n in params if n in now):
      params[name] = jax.tree.map(one, params[name], begun[name], now[name])
    return half._replace(segment=half.segment._replace(params=params))

  began = {**start.client.segment.params, **start.mean}
  (client, server), (shared, at_server) = pair, now
  before, after = start.server.segment.params, at_server.segment.params
  return moved(client, began, shared), moved(server, before, after)


def next_means(now: dict[str, Tree], sums: Sums) -> dict[str, Tree]:
  """Computes the clients' blocks of the next w: the means of a round's `sums`.

  A block that has no weight in `sums` stays as it is in `now`.
  """
  out = dict(now)
  for name in (n for n in now if n in sums.client):
    (total, _), weight = sums.client[name], sums.client_weight[name]
    divisor = jnp.where(weight > 0, weight, 1.0)
    mean = jax.tree.map(lambda x, d=divisor: x / d, total)
    out[name] = trees.where(weight > 0, mean, now[name])
  return out


def _factor(buffer: Buffer, tau: Array) -> Array:
  """Computes s(tau)."""
  return (1 + tau.astype(float)) ** -buffer.staleness


def _rank(values: Array) -> Array:
  """Ranks values in ascending order, [N] int; ties are ordered by index."""
  count = len(values)
  order = jnp.argsort(values, stable=True)
  return jnp.zeros(count, int).at[order].set(jnp.arange(count))


def _by_number(shards: Sequence[Shard], count: int) -> Array:
  """Collects the Shard.times of all clients, ordered by number: [N, 2]."""
  table = jnp.zeros((count, 2))
  for shard in shards:
    table = table.at[shard.number].set(shard.times)
  return table
