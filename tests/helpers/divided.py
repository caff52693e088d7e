"""Worlds of the engine's tests, divided among devices and into chunks."""

from typing import Any, NamedTuple

import engine
import jax
import jax.numpy as jnp
import numpy as np

from splitjax import data, methods, trees
from splitjax.engine import (
  DIVIDED,
  ClientFault,
  Fleet,
  client_sharding,
  divide,
  make_mesh,
  put_on_devices,
  state_specs,
)
from splitjax.types import Shard


class Divided(NamedTuple):
  """A world on a mesh; see sandbox.Sandbox."""

  world: methods.Sandbox
  mesh: Any

  def state(self):
    """The state before the first round, on the devices."""
    specs = state_specs(len(self.world.fleet.cohorts))
    where = client_sharding(self.mesh, specs)
    return jax.jit(lambda s: s, out_shardings=where)(self.world.state())

  def round(self):
    """The jitted round, `engine.compiled_round`."""
    return engine.compiled_round(self.world, self.mesh)


def divided(
  made: methods.Sandbox,
  devices: int = 1,
  chunk: int | None = None,
  *,
  sizes: tuple[int, ...] = methods.SIZES,
) -> Divided:
  """Divides a world whose clients hold `sizes` samples."""
  chunks = [chunk] * len(made.fleet.cohorts)
  fleet = divide(made.fleet, devices, chunks)
  mesh = make_mesh(devices)
  shared = put_on_devices(mesh, jax.device_get(tuple(made.shards[0][:2])))
  shards = []
  for cohort, plan in zip(fleet.cohorts, made.plans, strict=True):
    mine = [methods.parts(sizes)[i] for i in cohort.places]
    shard = data.shards(*shared, mine, methods.CLASSES, cohort.places)
    own = methods.with_order(made.method, shard, plan)[2:]
    own = put_on_devices(mesh, jax.device_get(tuple(own)), DIVIDED)
    shards.append(Shard(*shared, *own))
  made = made._replace(fleet=fleet, shards=tuple(shards))
  return Divided(made, mesh)


def planned(place: Divided, **tables) -> Divided:
  """The same clients with faults: tables of a faults.ClientFault, [N, R]."""
  faults = ClientFault(**{k: np.asarray(x) for k, x in tables.items()})
  shards = []
  for cohort, shard in zip(
    place.world.fleet.cohorts, place.world.shards, strict=True
  ):
    mine = jax.tree.map(lambda x, c=cohort: x[np.array(c.places)], faults)
    mine = put_on_devices(place.mesh, mine, DIVIDED)
    shards.append(shard._replace(faults=mine))
  return place._replace(world=place.world._replace(shards=tuple(shards)))


class Outcome(NamedTuple):
  """The results of rounds, on the host.

  Attributes:
    clients: in the order of their numbers.
    server: its segment.
    metrics: of the last round.
  """

  clients: list
  server: Any
  metrics: Any


def play(place: Divided, count: int = 2) -> Outcome:
  """Runs `count` rounds."""
  state, step = place.state(), place.round()
  for _ in range(count):
    state, metrics = step(state, place.world.shards)
  return Outcome(
    engine.by_number(place.world.fleet, state.clients),
    jax.device_get(state.server.segment),
    jax.device_get(metrics),
  )


def trained(place: Divided, count: int = 2) -> Any:
  """The state after `count` rounds, with the padding clients of a run."""
  state, step = place.state(), place.round()
  for _ in range(count):
    state, _ = step(state, place.world.shards)
  return state


def answers(place: Divided, state: Any) -> list:
  """The Exits of every row for random images, on the host."""
  images = 60, *methods.SHAPE
  image = np.random.default_rng(0).integers(0, 255, images, np.uint8)
  shown = np.tile(np.arange(60).reshape(2, 30), (len(methods.SIZES), 1, 1))
  return engine.exits(place.world, state, image, shown, place.mesh)


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
    padding = jnp.arange(len(cohort.places)) >= len(cohort.ids)
    nan = jax.tree.map(lambda x: x * jnp.nan, half)
    return trees.where(padding, nan, half)

  clients = map(spoil, state.clients, fleet.cohorts)
  return state._replace(clients=tuple(clients))
