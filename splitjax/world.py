"""From a Config to everything a run needs: data, clients, network, methods.

All that can be wrong with a configuration is found here or before, while
nothing has been compiled.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from splitjax import backbone as bb
from splitjax import budget, gate, memory, rounds, trees
from splitjax import fleet as fleets
from splitjax import mesh as meshes
from splitjax.backbone import Backbone
from splitjax.config import Config, Spec
from splitjax.data import PARTITIONS, SHIFTS, Dataset, Trial, feed, load
from splitjax.data.trial import merged
from splitjax.fleet import Fleet
from splitjax.methods import METHODS, outer
from splitjax.network import Network, make_network
from splitjax.types import Array, Half, Method, Segment, Shard, State


class World(NamedTuple):
  """Everything that the methods of a run share.

  Attributes:
    config: the run.
    network: backbone, clients, standardisation.
    data: the data set, on the host.
    trial: what each client learns from and is judged on.
    facts: what is kept of the data, `facts`; where the network starts from a
      checkpoint also its digest, "pretrained".
    thresholds: [E] entropy thresholds, nats.
    image: [Z, H, W, c] uint8, the training split on the device.
    label: [Z] int32, likewise.
    pool: [P, H, W, c] uint8, the split that clients are judged on, likewise.
    shown: [N, chunks, B] int32, the trial's rows of it, padded.
    mesh: the devices; None for one.
  """

  config: Config
  network: Network
  data: Dataset
  trial: Trial
  facts: dict
  thresholds: tuple[float, ...]
  image: Array
  label: Array
  pool: Array
  shown: Array
  mesh: Mesh | None


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


def facts(data: Dataset, trial: Trial) -> dict:
  """What `make_network` has to know of the data, JSON-ready.

  Images are standardised with the training split's own statistics; where it
  also holds what clients are judged on, with those of the training samples.
  """
  held_out = trial.pool == "train"
  rows = np.sort(np.concatenate(trial.parts)) if held_out else None
  mean, std = feed.statistics(data.train_image, rows)
  return {
    "shape": list(data.train_image.shape[1:]),
    "classes": data.classes,
    "mean": list(mean),
    "std": list(std),
    "digest": feed.digest(*data[2:6]),
  }


def build(config: Config) -> World:
  """Loads the data, deals it to the clients and cuts the network.

  Raises:
    UserError: whatever the user can mend; nothing has been compiled then.
  """
  data = load(
    config.data.name,
    data_dir=config.data.dir,
    train_samples=config.data.train_samples,
    test_samples=config.data.test_samples,
  )
  if config.data.pool == "all":
    data = merged(data)
  trial = make_trial(config, data)
  budget.check(config, data, trial)
  told = facts(data, trial)
  network = make_network(config, told)
  if network.backbone.start is not None:
    told["pretrained"] = network.backbone.start.digest
  for key in config.methods:
    make_method(config, network.backbone, key)
  mesh = meshes.make(config.system.devices, always=config.system.deterministic)
  image = meshes.put(mesh, data.train_image)
  from_train = trial.pool == "train"
  return World(
    config,
    network,
    data,
    trial,
    told,
    config.eval.thresholds or gate.default_grid(data.classes),
    image,
    meshes.put(mesh, data.train_label),
    image if from_train else meshes.put(mesh, data.test_image),
    meshes.put(mesh, chunked(trial.rows, config.eval.batch_size)),
    mesh,
  )


def make_trial(config: Config, data: Dataset) -> Trial:
  """Deals the data to the clients, to learn from and to be judged on.

  Raises:
    UserError: a partition or a shift that these data and clients do not allow.
  """
  deal = config.data.partition
  parts = PARTITIONS[deal.name](
    data.train_label, config.num_clients, config.seed, **deal.options
  )
  shift = config.eval.shift
  return SHIFTS[shift.name](
    data, parts, config.eval.rhos, config.seed, **shift.options
  )


def chunked(rows: np.ndarray, size: int) -> np.ndarray:
  """Cuts [N, K] into [N, chunks, size] int32, padded with row 0."""
  clients, count = rows.shape
  size = min(size, count)
  chunks = -(-count // size)
  padded = np.pad(np.maximum(rows, 0), ((0, 0), (0, chunks * size - count)))
  return padded.reshape(clients, chunks, size)


def make_method(config: Config, backbone: Backbone, key: str) -> Method:
  """The method of that key in config.methods.

  Raises:
    UserError: an option out of range.
  """
  spec: Spec = config.methods[key]
  chosen = config.optimizer
  optimizer = outer.sgd(
    chosen.lr,
    chosen.momentum,
    chosen.weight_decay,
    schedule=chosen.schedule,
    rounds=config.rounds,
    keep_state=chosen.keep_state,
  )
  return METHODS[spec.name](backbone, optimizer, **spec.options)


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
    _shard(world, [world.trial.parts[i] for i in cohort.places])
    for cohort in fleet.cohorts
  )
  return Course(method, fleet, plans, shards)


def _divide(
  world: World, method: Method, fleet: Fleet, plans: tuple[feed.Plan, ...]
) -> Fleet:
  """Divides clients among the devices, and there into chunks that fit."""
  system, net = world.config.system, world.network.backbone
  devices = meshes.size(world.mesh)
  chunks: list[int | None] = [None] * len(plans)
  if system.clients_per_chunk != "auto":
    chunks = [system.clients_per_chunk] * len(plans)
  else:
    whole = fleets.divide(fleet, devices, chunks, exact=False)
    data = data_bytes(world)
    chunks = memory.chunks(method, net, whole, plans, data)
  return fleets.divide(fleet, devices, chunks, exact=system.deterministic)


def data_bytes(world: World) -> int:
  """Bytes of the data set on each device."""
  return sum(budget.device_bytes(world.config, world.data, world.trial))


def _shard(world: World, parts: list[np.ndarray]) -> Shard:
  """The clients of a cohort, divided among the devices."""
  image, label, *own = feed.shards(
    world.image, world.data.train_label, parts, world.data.classes
  )
  return Shard(
    image, world.label, *meshes.put(world.mesh, tuple(own), meshes.DIVIDED)
  )


def fresh_network(world: World) -> Segment:
  """The initial network, drawn or read, the same for every method of a run.

  Compiled without optimisation: it runs once, and compiling it is what costs.
  """
  key = jax.random.fold_in(jax.random.key(world.config.seed), 0)
  net = world.network.backbone
  draw = jax.jit(lambda key: bb.init(net, key))
  fast: Any = {"xla_backend_optimization_level": 0}
  full = draw.lower(key).compile(compiler_options=fast)(key)
  return full if net.start is None else net.start.into(full)


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
  """Puts a state of real clients alone on the devices, with ghosts."""

  def grow(state):
    clients = tuple(
      trees.take(half, jnp.minimum(jnp.arange(len(c.places)), len(c.ids) - 1))
      for half, c in zip(state.clients, course.fleet.cohorts, strict=True)
    )
    return state._replace(clients=clients)

  return jax.jit(grow, out_shardings=_placed(world.mesh, course))(state)


def real_clients(
  world: World, course: Course, clients: tuple[Half, ...]
) -> tuple[Half, ...]:
  """Cohorts without their ghosts: leaves [N, ...] of real clients."""
  if not any(cohort.ghosts for cohort in course.fleet.cohorts):
    return clients

  def shrink(clients):
    return tuple(
      trees.window(half, 0, len(c.ids))
      for half, c in zip(clients, course.fleet.cohorts, strict=True)
    )

  # What cannot be divided evenly is copied to every device.
  copied = meshes.sharding(world.mesh, meshes.COPIED)
  return jax.jit(shrink, out_shardings=copied)(clients)


def abstract_state(config: Config, network: Network, key: str) -> State:
  """Shapes and dtypes of a method's state, without computing any."""
  method = make_method(config, network.backbone, key)
  fleet = own_fleet(method, network)

  def draw(key):
    return method.init(key, fleet, bb.init(network.backbone, key))

  return jax.eval_shape(draw, jax.random.key(0))
