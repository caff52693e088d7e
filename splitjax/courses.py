"""One method in a world: clients divided, data dealt, state on the devices."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from splitjax import backbone as bb
from splitjax import budget, memory, orders, rounds, trees
from splitjax import fleet as fleets
from splitjax import mesh as meshes
from splitjax.config import Config
from splitjax.data import feed
from splitjax.fleet import Cohort, Fleet
from splitjax.network import Network
from splitjax.types import Method, Segment, Shard, State
from splitjax.world import World, make_method


class Course(NamedTuple):
  """One method in a world.

  Attributes:
    method: what a pair does.
    fleet: its clients, divided among the devices; one cohort where they hold
      the whole network.
    plans: per cohort, how clients walk through their data.
    shards: per cohort, the clients' data.
  """

  method: Method
  fleet: Fleet
  plans: tuple[feed.Plan, ...]
  shards: tuple[Shard, ...]


def own_fleet(method: Method, network: Network) -> Fleet:
  """The fleet as a method sees it: one cohort where clients hold it all."""
  if method.whole:
    return fleets.whole(network.fleet, network.backbone.length)
  return network.fleet


def make_course(world: World, key: str) -> Course:
  """Sets a method up in a world."""
  config, network = world.config, world.network
  method = make_method(config, network.backbone, key)
  fleet = own_fleet(method, network)
  plans = tuple(
    feed.plan(
      [len(world.trial.parts[i]) for i in cohort.ids],
      config.batch_size,
      config.local_epochs,
      network.mean,
      network.std,
      config.data.augment,
    )
    for cohort in fleet.cohorts
  )
  fleet = _divide(world, method, fleet, plans)
  shards = tuple(
    stood(config, method, _shard(world, cohort), plan)
    for cohort, plan in zip(fleet.cohorts, plans, strict=True)
  )
  return Course(method, fleet, plans, shards)


def stood(config: Config, method: Method, shard: Shard, plan: feed.Plan):
  """The clients in the config's order, `orders.stand`."""
  return orders.stand(
    method,
    shard,
    plan,
    order=config.order.name,
    turn=config.order.batches,
    rounds=config.rounds,
    seed=config.seed,
  )


def positions(world: World, course: Course) -> list[int] | None:
  """When each label's clients are served, `orders.positions`; None if never."""
  if course.method.topology not in ("sequential", "relay"):
    return None
  order, (shard,), (plan,) = world.config.order, course.shards, course.plans
  line = orders.line_up(shard, plan, order.batches, world.config.seed)
  return orders.positions(line, order.name, world.data.classes)


def _divide(
  world: World, method: Method, fleet: Fleet, plans: tuple[feed.Plan, ...]
) -> Fleet:
  """Divides clients among the devices, and there into chunks that fit."""
  system, net = world.config.system, world.network.backbone
  devices = meshes.size(world.mesh)
  chunks: list[int | None] = [None] * len(plans)
  if method.topology != "parallel":  # all stand before one server
    return fleets.divide(fleet, devices, chunks, exact=False)
  if system.clients_per_chunk != "auto":
    chunks = [system.clients_per_chunk] * len(plans)
  else:
    whole = fleets.divide(fleet, devices, chunks, exact=False)
    data = data_bytes(world)
    chunks = memory.chunks(method, net, whole, plans, data)
  return fleets.divide(fleet, devices, chunks, exact=system.deterministic)


def need(world: World, course: Course) -> memory.Need:
  """What a round takes on one device, the heads of groups included."""
  net, method = world.network.backbone, course.method
  found = memory.need(
    method, net, course.fleet, course.plans, data_bytes(world)
  )
  if method.group is None:
    return found
  heads = int(memory.COPIES * server_bytes(world, course))
  return found._replace(round=found.round + heads)


def server_bytes(world: World, course: Course) -> int:
  """Bytes of parameters at the server in a round, `memory.at_server`."""
  return memory.at_server(
    course.method,
    world.network.backbone,
    course.fleet,
    course.plans[0],
    course.shards[0],
  )


def data_bytes(world: World) -> int:
  """Bytes of the data set on each device."""
  return sum(budget.device_bytes(world.config, world.data, world.trial))


def _shard(world: World, cohort: Cohort) -> Shard:
  """The clients of a cohort, divided among the devices."""
  parts = [world.trial.parts[i] for i in cohort.places]
  shard = feed.shards(
    world.image,
    world.data.train_label,
    parts,
    world.data.classes,
    cohort.places,
  )
  whose = np.array(cohort.places)
  planned = jax.tree.map(lambda table: table[whose], world.schedule)
  image, _, *own = shard._replace(schedule=planned)
  return Shard(
    image, world.label, *meshes.put(world.mesh, tuple(own), meshes.DIVIDED)
  )


def fresh_state(world: World, course: Course, full: Segment) -> State:
  """The state before the first round, in buffers of its own.

  Rounds are donated their state; `full` must outlive that, for the next method.
  """
  seed = world.config.seed

  def init(full):
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return course.method.init(key, course.fleet, full)

  full = meshes.put(world.mesh, jax.device_get(full))
  return jax.jit(init, out_shardings=_placed(world.mesh, course))(full)


def _placed(mesh: Mesh | None, course: Course) -> Any:
  """How a course's State lies on the devices."""
  return meshes.sharding(mesh, rounds.state_specs(len(course.fleet.cohorts)))


def settle(world: World, course: Course, state: State) -> State:
  """Puts a state on the devices, with the ghosts that they need.

  Args:
    world: has the devices.
    course: the method's.
    state: whose cohorts begin with the real clients, in their order.
  """

  def grow(state):
    clients = tuple(
      trees.take(half, jnp.minimum(jnp.arange(len(c.places)), len(c.ids) - 1))
      for half, c in zip(state.clients, course.fleet.cohorts, strict=True)
    )
    return state._replace(clients=clients)

  state = meshes.put(world.mesh, state)  # from where it was loaded to
  return jax.jit(grow, out_shardings=_placed(world.mesh, course))(state)


def places(state: State) -> list[int]:
  """How many clients every cohort of a state has, ghosts included."""
  return [jax.tree.leaves(half)[0].shape[0] for half in state.clients]


def abstract_state(
  config: Config,
  network: Network,
  key: str,
  places: Sequence[int] | None = None,
) -> State:
  """Shapes and dtypes of a method's state, without computing any.

  Args:
    config: the run.
    network: its network and clients.
    key: of the method.
    places: clients of every cohort, ghosts included; None: without ghosts.
  """
  method = make_method(config, network.backbone, key)
  fleet = own_fleet(method, network)
  if places is not None:
    cohorts = tuple(
      dataclasses.replace(cohort, ghosts=count - len(cohort.ids))
      for cohort, count in zip(fleet.cohorts, places, strict=True)
    )
    fleet = dataclasses.replace(fleet, cohorts=cohorts)

  def draw(key):
    return method.init(key, fleet, bb.init(network.backbone, key))

  return jax.eval_shape(draw, jax.random.key(0))
