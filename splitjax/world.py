"""From a Config to everything a run needs: data, clients, network, methods.

All that can be wrong with a configuration is found here or before, while
nothing has been compiled.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from splitjax import backbone as bb
from splitjax import budget, faults, fitting, gate, hosts, tensorboard
from splitjax import fleet as fleets
from splitjax import mesh as meshes
from splitjax.backbone import Backbone
from splitjax.config import Config, Spec
from splitjax.data import PARTITIONS, SHIFTS, Dataset, Trial, feed, load
from splitjax.data import held as held_out
from splitjax.data.held import Held
from splitjax.data.trial import merged
from splitjax.methods import METHODS, outer
from splitjax.network import Network, make_network
from splitjax.proxies import Aside
from splitjax.types import Array, Method, Segment, Tree


class World(NamedTuple):
  """Everything that the methods of a run share.

  Attributes:
    config: the run.
    network: backbone, clients, standardisation.
    data: the data set, on the host.
    trial: what each client learns from and is judged on.
    facts: what is kept of the data, `facts`; where the network starts from a
      checkpoint also its digest, "pretrained"; of a schedule of faults its
      digest, "faults".
    thresholds: [E] entropy thresholds, nats.
    image: [Z, H, W, c] uint8, the training split on the device.
    label: [Z] int32, likewise.
    pool: [P, H, W, c] uint8, the split that clients are judged on, likewise.
    shown: [N, chunks, B] int32, the trial's rows of it, padded.
    mesh: the devices; None for one.
    schedule: faults.Schedule [N, R] on the host; () without one.
    held: what thresholds are chosen on, on the host; None without.
    aside: the same in chunks [N, chunks, B] on the device; None without.
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
  schedule: Tree
  held: Held | None = None
  aside: Aside | None = None


def facts(data: Dataset, trial: Trial) -> dict:
  """What `make_network` has to know of the data, JSON-ready.

  Images are standardised with the training split's own statistics; where it
  also holds what clients are judged on, or hold out to choose thresholds on,
  with those of the training samples.
  """
  apart = trial.pool == "train" or len(trial.held) > 0
  rows = np.sort(np.concatenate(trial.parts)) if apart else None
  mean, std = feed.statistics(data.train_image, rows)
  return {
    "shape": list(data.train_image.shape[1:]),
    "classes": data.classes,
    "mean": list(mean),
    "std": list(std),
    "digest": feed.digest(*data[2:6]),
    "partition": feed.digest(*trial.parts),
  }


def build(config: Config) -> World:
  """Loads the data, deals it to the clients and cuts the network.

  Raises:
    UserError: whatever the user can mend; nothing has been compiled then.
  """
  with hosts.together():
    if config.tensorboard:
      tensorboard.ready()
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
    made = {
      key: make_method(config, network.backbone, key) for key in config.methods
    }
    fitting.check(config, network.backbone, made, trial.names)
    schedule = faults.read_schedule(
      config.faults, config.num_clients, config.rounds
    )
    if schedule:
      told["faults"] = faults.digest(schedule)
    devices = _devices(config, network)
    if any(method.topology != "parallel" for method in made.values()):
      devices = 1
    mesh = meshes.make(devices, always=config.system.deterministic)
  image = meshes.put(mesh, data.train_image)
  held = make_held(config, data, trial)
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
    schedule,
    held,
    None if held is None else meshes.put(mesh, aside(config, held)),
  )


def _devices(config: Config, network: Network) -> int | None:
  """Among how many devices clients are divided; None: all there are.

  The devices of a CPU are its cores: those that would train ghosts alone can
  serve the others.
  """
  several = hosts.several() or jax.default_backend() != "cpu"
  if config.system.devices is not None or several:
    return config.system.devices
  return fleets.useful_devices(network.fleet, len(jax.devices()))


def make_trial(config: Config, data: Dataset) -> Trial:
  """Deals the data to the clients, to learn from and to be judged on.

  Raises:
    UserError: a partition or a shift that these data and clients do not allow.
  """
  deal = config.data.partition
  parts = PARTITIONS[deal.name](
    data.train_label, config.num_clients, config.seed, **deal.options
  )
  shift, back = config.eval.shift, list[np.ndarray]()
  if config.eval.holdout:
    parts, back = held_out.keep_back(parts, config.seed, config.eval.holdout)
  trial = SHIFTS[shift.name](
    data, parts, config.eval.rhos, config.seed, **shift.options
  )
  return trial._replace(held=back) if back else trial


def make_held(config: Config, data: Dataset, trial: Trial) -> Held | None:
  """What thresholds are chosen on; None where they are not."""
  if not config.eval.calibrates:
    return None
  return held_out.table(data.train_label, trial.held, config.seed)


def aside(config: Config, held: Held) -> Aside:
  """Held-out samples in chunks [N, chunks, B] int32, on the host.

  Each is looked at beside its proxy, so that B is half of eval.batch_size.
  """
  half = max(1, config.eval.batch_size // 2)
  each = (held.rows, held.partner, held.draw)
  return Aside(*(chunked(table, half) for table in each))  # type: ignore[arg-type]


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
    decay=chosen.decay,
    floor=chosen.floor,
    rounds=config.rounds,
    keep_state=chosen.keep_state,
    clip=chosen.clip,
  )
  return METHODS[spec.name](backbone, optimizer, **spec.options)


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
