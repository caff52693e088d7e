"""Worlds of the engine's tests, divided among devices and into chunks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from engine import by_number, networks

from splitjax import data, sandbox, trees
from splitjax.engine import devices
from splitjax.engine.faults import FaultTable
from splitjax.engine.round import run_round
from splitjax.fleet import orders
from splitjax.fleet.fleets import Fleet, divide
from splitjax.sandbox import Sandbox


class Divided(NamedTuple):
  """A world on a mesh; see sandbox.Sandbox."""

  world: Sandbox
  mesh: Any

  def state(self):
    """The state before the first round, on the devices."""
    specs = devices.state_specs(len(self.world.fleet.cohorts))
    where = devices.client_sharding(self.mesh, specs)
    return jax.jit(lambda s: s, out_shardings=where)(self.world.state())

  def round(self, state):
    """Runs a round; the state is donated."""
    made = self.world
    return run_round(
      made.method, state, made.shards, **made.how, mesh=self.mesh
    )

  def text(self):
    """The compiled program."""
    made = self.world
    return (
      run_round.lower(
        made.method, self.state(), made.shards, **made.how, mesh=self.mesh
      )
      .compile()
      .as_text()
    )


def divided(
  made: Sandbox,
  count: int = 1,
  chunk: int | None = None,
  *,
  sizes: tuple[int, ...] = sandbox.SIZES,
) -> Divided:
  """Divides a world, whose clients hold `sizes` samples, among devices."""
  fleet = divide(made.fleet, count, [chunk] * len(made.fleet.cohorts))
  mesh = devices.make_mesh(count)
  first = made.shards[0]
  shared = devices.put_on_devices(
    mesh, jax.device_get((first.image, first.label))
  )
  shards = []
  for cohort, plan in zip(fleet.cohorts, made.plans, strict=True):
    rows = [sandbox.parts(sizes)[i] for i in cohort.numbers]
    shard = data.shards(*shared, rows, sandbox.CLASSES, cohort.numbers)
    shard = orders.with_service_order(
      made.method, shard, plan, fleet,
      order="cyclic", turn=1, rounds=sandbox.ROUNDS, seed=0,
    )  # fmt: skip
    of_clients = shard._replace(image=(), label=())
    shard = devices.put_on_devices(
      mesh, jax.device_get(of_clients), devices.DIVIDED
    )
    shards.append(shard._replace(image=shared[0], label=shared[1]))
  return Divided(made._replace(fleet=fleet, shards=tuple(shards)), mesh)


def planned(place: Divided, **tables) -> Divided:
  """The same clients with faults: fields of a FaultTable, [N, R]."""
  faults = FaultTable(**{k: np.asarray(x) for k, x in tables.items()})
  return place._replace(world=place.world._replace(faults=faults))


class Outcome(NamedTuple):
  """The results of rounds, on the host.

  Attributes:
    clients: what they keep, in the order of their numbers.
    networks: that they start a round with, in the same order.
    server: its network.
    metrics: of the last round.
  """

  clients: list
  networks: list
  server: Any
  metrics: Any


def play(place: Divided, count: int = 2) -> Outcome:
  """Runs `count` rounds."""
  state = place.state()
  for _ in range(count):
    state, metrics = place.round(state)
  return Outcome(
    clients=by_number(place.world, state),
    networks=networks(place.world, state),
    server=jax.device_get(state.server.net),
    metrics=jax.device_get(metrics),
  )


def trained(place: Divided, count: int = 2) -> Any:
  """The state after `count` rounds, with the padding clients of a run."""
  state = place.state()
  for _ in range(count):
    state, _ = place.round(state)
  return state


def distance(a: Any, b: Any) -> float:
  """The largest difference between two pytrees."""
  gaps = jax.tree.map(
    lambda x, y: np.abs(np.asarray(x, float) - np.asarray(y, float)).max(), a, b
  )
  return max([0.0, *map(float, jax.tree.leaves(gaps))])


def same_bits(a: Any, b: Any) -> bool:
  """Whether two pytrees of arrays are equal in every bit."""
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return all(
    np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs
  )


def poisoned(state: Any, fleet: Fleet) -> Any:
  """A state whose padding clients hold only NaN."""

  def spoil(half, cohort):
    padding = jnp.arange(len(cohort.numbers)) >= len(cohort.ids)
    nan = jax.tree.map(lambda x: x * jnp.nan, half)
    return trees.where(padding, nan, half)

  clients = map(spoil, state.clients, fleet.cohorts)
  return state._replace(clients=tuple(clients))
