"""Everything that a run of a Config needs: data, clients, network, methods.

Errors in a configuration are raised here or earlier, before anything is
compiled.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.sharding import Mesh

from splitjax import machine, target
from splitjax.config.config import Config
from splitjax.data import (
  PARTITIONS,
  Dataset,
  TestSets,
  holdout,
  load,
  merged,
)
from splitjax.data.test_sets import Holdout
from splitjax.engine import devices, faults
from splitjax.engine.faults import FaultTable
from splitjax.engine.loops import one_server
from splitjax.engine.round import FAULT
from splitjax.evaluation import gate, metrics
from splitjax.evaluation.exits import chunked
from splitjax.evaluation.gate import Aside
from splitjax.experiment.setup import checks, client_data
from splitjax.experiment.setup.method_factory import abstract_state, make_method
from splitjax.experiment.setup.network import (
  Network,
  make_devices,
  make_network,
)
from splitjax.fleet import fleets
from splitjax.methods.method import Method
from splitjax.models.network import Backbone, Pretrained, init
from splitjax.reports import tensorboard
from splitjax.reports.quantities import QUANTITIES
from splitjax.types import Net, naming


class Task(NamedTuple):
  """Everything that the methods of a run share.

  Attributes:
    config: the config of the run.
    network: backbone, clients, standardisation.
    methods: the config's methods by key.
    data: the data set, on the host.
    test_sets: each client's training samples and test sets.
    facts: facts of the data (`client_data.facts`). Entry "names" has names of
      the clients, if the data have any. "devices" has the clients' devices, if
      `fleet` sets profiles or an allocation other than even. "pretrained" is
      the digest of pretrained weights.
    thresholds: [E] entropy thresholds, nats.
    image: [Z, ...], inputs of the training split, on the
      device.
    label: [Z] int32, labels of the training split, on the device.
    pool: [T, ...], the split that test sets are drawn from, on the device.
    shown: [N, chunks, B] int32, the clients' test samples as rows of `pool`,
      padded with row 0; on the device.
    mesh: the mesh of devices; None if there is one device.
    faults: drawn faults [N, R], on the device.
    held: the held-out samples that serve to choose thresholds, on the host;
      None if nothing is calibrated.
    aside: their inputs and proxies, on the device, with rows in chunks
      [N, chunks, B]; None without `held`.
  """

  config: Config
  network: Network
  methods: dict[str, Method]
  data: Dataset
  test_sets: TestSets
  facts: dict
  thresholds: tuple[float, ...]
  image: Array
  label: Array
  pool: Array
  shown: Array
  mesh: Mesh | None
  faults: FaultTable
  held: Holdout | None = None
  aside: Aside | None = None


def build(
  config: Config | Any,
  hardware: dict[str, list] | None = None,
  *,
  trained: bool = False,
) -> Task:
  """Loads the data, deals them to the clients and cuts the network.

  `hardware` are the clients' devices in an earlier run (`make_devices`); if
  None, new devices are made as the config says. If `trained`, the methods come
  from a finished run, and `build` does not check whether the training settings
  suit the methods or whether any method uses these settings.

  Raises:
    UserError: the config is wrong or data are missing; nothing is compiled.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.data.name = "digits"
    >>> task = splitjax.build(splitjax.Config.from_dict(c))
    >>> task.network.backbone.cuts, len(task.test_sets.parts)
    ((2, 3, 4), 50)
  """
  config = Config.from_dict(config)
  # Data, and the clients' parts of it.
  if config.tensorboard:
    tensorboard.event_library()
  data = load(
    config.data.name,
    data_dir=config.data.dir,
    train_samples=config.data.train_samples,
    test_samples=config.data.test_samples,
  )
  if config.data.pool == "all":
    data = merged(data)
  client_data.check_options(config, data)
  loaded = data
  data, test_sets = client_data.deal(config, loaded, hardware)
  known = client_data.facts(config, loaded, test_sets)

  # Network, methods, faults.
  partition = PARTITIONS[config.data.partition.name]
  named = client_data.owner_names(data, partition, test_sets.parts)
  if named:
    known["names"] = named
  if hardware is not None:
    known["devices"] = hardware
  network = make_network(config, known)
  checks.check_layers(config, network.backbone)
  custom = config.fleet.profiles or config.fleet.allocation.name != "even"
  if custom and hardware is None:
    known["devices"] = make_devices(config, network.backbone, named)
  start = network.backbone.start
  if isinstance(start, Pretrained):
    known["pretrained"] = start.digest
  made = {
    key: make_method(config, network.backbone, key) for key in config.methods
  }
  metrics.check_metrics(config.eval.metrics, data.classes, QUANTITIES)
  for key, method in made.items():
    with naming(f"methods.{key}"):
      abstract_state(method, network)
  if not trained:
    checks.check_methods(config, network, made, test_sets)
  drawn = faults.draw_faults(
    faults.Faults(**vars(config.faults)),
    jax.random.fold_in(run_key(config.seed), FAULT),
    config.num_clients,
    config.rounds,
    config.seed,
  )

  # Devices; all clients of one server train on the same device.
  count = _devices(config, network)
  if any(map(one_server, made.values())):
    count = 1
  mesh = devices.make_mesh(count)

  # Data go to the devices once.
  image = devices.put_on_devices(mesh, data.train_image)
  held, aside, validation = None, None, test_sets.validation
  if config.eval.calibrates:
    held = holdout(data.train_label, validation, config.seed)
    aside = gate.aside(image, held, mesh)
    rows = chunked(aside.rows, config.eval.batch_size)
    aside = aside._replace(rows=devices.put_on_devices(mesh, rows))
  from_train = test_sets.pool == "train"
  return Task(
    config,
    network,
    made,
    data,
    test_sets,
    known,
    config.eval.thresholds or gate.default_grid(data.classes),
    image,
    devices.put_on_devices(mesh, data.train_label),
    image if from_train else devices.put_on_devices(mesh, data.test_image),
    devices.put_on_devices(mesh, chunked(test_sets.rows, config.eval.chunk)),
    mesh,
    devices.put_on_devices(mesh, drawn),
    held,
    aside,
  )


class Tasks:
  """Tasks of several configs: each is built once, and equal data are shared.

  All cells of a sweep are built, and so checked, before the first one trains;
  this cache keeps each cell's task until the cell trains. If a cell has several
  seeds, the cache keeps the task of the first seed, because the cell's workdir
  records the facts of this task.
  """

  def __init__(self):
    self._built, self._data = dict[str, Task](), dict[str, Task]()

  def of(self, config: Config) -> Task:
    """Returns the task of a config; raises UserError like `build`."""
    key = repr(config)
    if key not in self._built:
      task = build(config)
      data = task.data
      how = data.name, data.vocabulary
      place = task.test_sets.pool, task.mesh
      same = f"{task.facts['digest']} {_changes(task)} {how} {place}"
      first = self._data.setdefault(same, task)
      names = "data", "image", "label", "pool"
      copies = {name: getattr(first, name) for name in names}
      self._built[key] = task._replace(**copies)
    return self._built[key]

  def take(self, config: Config) -> Task:
    """Returns the task of a config and removes it from the cache."""
    task = self.of(config)
    del self._built[repr(config)]
    return task


def _changes(task: Task) -> tuple:
  """What domains the images of a task are in, and by which draws."""
  config = task.config
  if not config.data.domains and not config.eval.domains:
    return ()
  dealt = config.data.domains and task.facts["partition"]
  return dealt, config.data.domains, config.eval.domains, config.seed


def _devices(config: Config, network: Network) -> int | None:
  """Returns how many devices the clients are divided among; None: all.

  The devices of a CPU are its cores. A core that would have no client of any
  cohort is not used as a device; the other devices can then compute on it.
  """
  goal = target.current()
  several = machine.is_distributed() or goal.platform != "cpu"
  if config.system.devices is not None or several:
    return config.system.devices
  return min(len(goal.devices), max(fleets.slots(network.fleet)))


def run_key(seed: Any) -> Array:
  """Derives the key [] of a run's rounds (State.key)."""
  return jax.random.fold_in(jax.random.key(seed), 1)


def fresh_network(task: Task) -> Net:
  """Makes the network that all methods start from, random or pretrained."""
  key = jax.random.fold_in(jax.random.key(task.config.seed), 0)
  net = task.network.backbone
  # Leave out the file's weights, which the compiled function would keep alive.
  if not isinstance(net.start, Pretrained):
    return _draw(net, key)
  return net.start.into(_draw(dataclasses.replace(net, start="he"), key))


@functools.partial(
  jax.jit,
  static_argnums=0,
  compiler_options={"xla_backend_optimization_level": 0},
)
def _draw(net: Backbone, key: Array) -> Net:
  """Draws a network's parameters in a program compiled without optimisation.

  Optimising the program would take longer than it saves.
  """
  return init(net, key)
