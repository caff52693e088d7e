"""Everything that the training of a Config's methods needs, built once.

`build` makes the Task that the methods of a run share: data, clients, network,
methods. `make_setup` adds what one method has of its own: its cohorts and their
data on the devices. Errors in a configuration are raised here or earlier,
before anything is compiled.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax import target
from splitjax.config.config import CHANNELS, Config, Noise, Rows
from splitjax.data import (
  PARTITIONS,
  Dataset,
  TestSets,
  feed,
  holdout,
  load,
  merged,
)
from splitjax.data.partitions import VALIDATE, client_split, padded
from splitjax.data.test_sets import Holdout
from splitjax.engine import devices, faults, layout
from splitjax.engine.faults import FaultTable
from splitjax.engine.layout import Layout
from splitjax.engine.loops import one_server
from splitjax.engine.round import FAULT
from splitjax.evaluation import gate, metrics
from splitjax.evaluation.exits import chunked
from splitjax.evaluation.gate import Aside
from splitjax.evaluation.scores import Scores
from splitjax.evaluation.subject import End, Line, Subject
from splitjax.experiment import client_data, machine, tracing
from splitjax.experiment.network import (
  Network,
  abstract_state,
  check_layers,
  make_devices,
  make_method,
  make_network,
  own_fleet,
)
from splitjax.fleet import fleets, orders
from splitjax.fleet.fleets import Cohort, Fleet
from splitjax.fleet.orders import IN_TURN
from splitjax.methods.method import Method
from splitjax.models.network import Backbone, Pretrained, init
from splitjax.reports import paper_numbers, tensorboard
from splitjax.reports.quantities import QUANTITIES
from splitjax.types import Net, Shard, State, UserError, naming
from splitjax.wire import KINDS


class Task(NamedTuple):
  """Everything that the methods of a run share.

  Facts of the data (`client_data.facts`) may have "names" of the clients,
  "devices" of the clients, if `fleet` sets profiles or an allocation other than
  even, and "pretrained", the digest of pretrained weights.
  """

  config: Config
  network: Network  #: backbone, clients, standardisation
  methods: dict[str, Method]  #: by their keys in the config
  data: Dataset  #: on the host
  test_sets: TestSets  #: each client's training samples and test sets
  facts: dict[str, Any]
  thresholds: tuple[float, ...]  #: [E] entropy thresholds, nats
  image: Array  #: [Z, ...] inputs of the training split, on the device
  label: Array  #: [Z] int32 labels of the training split, on the device
  pool: Array  #: [T, ...] the split that test sets are drawn from, likewise
  shown: Array  #: [N, chunks, B] int32 test samples as rows of pool, padded
  mesh: Mesh | None  #: None if there is one device
  faults: FaultTable  #: drawn faults [N, R], on the device
  held: Holdout | None = None  #: samples to choose thresholds on, on the host
  aside: Aside | None = None  #: `held` with proxies, on the device

  @property
  def class_counts(self) -> np.ndarray:
    """Counts each client's training samples by class, [N, C] int64."""
    label = self.data.train_label
    count = functools.partial(np.bincount, minlength=self.data.classes)
    return np.stack([count(label[part]) for part in self.test_sets.parts])

  @property
  def client_names(self) -> list[str]:
    """The clients' names; their numbers where the data name none."""
    count = self.network.fleet.num_clients
    return list(self.network.names or map(str, range(count)))

  @property
  def class_names(self) -> list[str]:
    """The classes' names; their numbers where the data name none."""
    return list(self.data.class_names or map(str, range(self.data.classes)))


def build(
  config: Config | Any, hardware: dict[str, list] | None = None
) -> Task:
  """Loads the data, deals them to the clients and cuts the network.

  `hardware` are the clients' devices in an earlier run (`make_devices`); if
  None, new devices are made as the config says. A setting that no method reads
  is no error.

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
  paper_numbers.check_source(config.paper)
  if config.tensorboard:
    tensorboard.event_library()
  loaded = load(
    config.data.name,
    data_dir=config.data.dir,
    train_samples=config.data.train_samples,
    test_samples=config.data.test_samples,
  )
  if config.data.pool == "all":
    loaded = merged(loaded)
  client_data.check_options(config, loaded)
  data, test_sets = client_data.deal(config, loaded, hardware)
  network, facts = _network(config, loaded, test_sets, hardware)
  methods = {
    key: make_method(config, network.backbone, key) for key in config.methods
  }
  metrics.check_metrics(config.eval.metrics, data.classes, QUANTITIES)
  for key, method in methods.items():
    with naming(f"methods.{key}"):
      abstract_state(method, network)
  _check_methods(config, network, methods)

  # Data go to the devices once; all clients of one server train on the same.
  alone = any(map(one_server, methods.values()))
  mesh = devices.make_mesh(1 if alone else _devices(config, network))
  put = functools.partial(devices.put_on_devices, mesh)
  image = put(data.train_image)
  pool = None
  if test_sets.pool != "train":
    pool = put(data.test_image)
  holdout_rows = None
  aside = None
  if config.eval.calibrates:
    holdout_rows = holdout(data.train_label, test_sets.validation, config.seed)
    aside = gate.aside(image, holdout_rows, mesh)
    rows = chunked(aside.rows, config.eval.batch_size)
    aside = aside._replace(rows=put(rows))
  return Task(
    config=config,
    network=network,
    methods=methods,
    data=data,
    test_sets=test_sets,
    facts=facts,
    thresholds=config.eval.thresholds or gate.default_grid(data.classes),
    image=image,
    label=put(data.train_label),
    pool=image if pool is None else pool,
    shown=put(chunked(test_sets.rows, config.eval.chunk)),
    mesh=mesh,
    faults=put(_faults(config)),
    held=holdout_rows,
    aside=aside,
  )


def _network(
  config: Config,
  loaded: Dataset,
  test_sets: TestSets,
  hardware: dict[str, list] | None,
) -> tuple[Network, dict[str, Any]]:
  """Builds network and clients; returns them and all facts, see `Task`."""
  facts = client_data.facts(config, loaded, test_sets)
  partition = PARTITIONS[config.data.partition.name]
  names = client_data.owner_names(loaded, partition, test_sets.parts)
  if names:
    facts["names"] = names
  if hardware is not None:
    facts["devices"] = hardware
  network = make_network(config, facts)
  check_layers(config, network.backbone)
  custom = config.fleet.profiles or config.fleet.allocation.name != "even"
  if custom and hardware is None:
    facts["devices"] = make_devices(config, network.backbone, names)
  start = network.backbone.start
  if isinstance(start, Pretrained):
    facts["pretrained"] = start.digest
  return network, facts


def _faults(config: Config) -> FaultTable:
  return faults.draw_faults(
    faults.Faults(**vars(config.faults)),
    jax.random.fold_in(run_key(config.seed), FAULT),
    config.num_clients,
    config.rounds,
    config.seed,
  )


class Tasks:
  """Tasks of several configs: each is built once, and equal data are shared.

  All cells of a sweep are built, and so checked, before the first one trains;
  a cell's task is kept until it trains. Of a cell with several seeds it is that
  of the first seed, whose facts the cell's folder records.
  """

  def __init__(self):
    self._built = dict[str, Task]()
    self._shared = dict[Any, Task]()

  def of(self, config: Config) -> Task:
    """Returns the task of a config; raises UserError like `build`."""
    key = _text(config)
    if key not in self._built:
      task = build(config)
      origin = task.data.name, task.test_sets.pool, task.mesh
      identity = task.facts["digest"], *origin, *_domains(task)
      shared = self._shared.setdefault(identity, task)
      self._built[key] = task._replace(
        data=shared.data,
        image=shared.image,
        label=shared.label,
        pool=shared.pool,
      )
    return self._built[key]

  def take(self, config: Config) -> Task:
    """Returns the task of a config and removes it from the cache."""
    task = self.of(config)
    del self._built[_text(config)]
    return task


def _text(config: Config) -> str:
  """Returns all of a config, labels included; they are part of its task."""
  return json.dumps(config.to_dict())


def _domains(task: Task) -> tuple[Any, ...]:
  """Returns what decides how a task's images differ from those loaded."""
  trained = task.config.data.domains
  tested = task.config.eval.domains
  if not trained and not tested:
    return ()
  # A training image is in the domain of the client that it is dealt to.
  dealt = task.facts["partition"] if trained else ""
  return trained, tested, dealt, task.config.seed


def _devices(config: Config, network: Network) -> int | None:
  """Returns how many devices the clients are divided among; None: all.

  The devices of a CPU are its cores. A core that would have no client of any
  cohort is not used as a device; the other devices can then compute on it.
  """
  aim = target.current()
  several = machine.is_distributed() or aim.platform != "cpu"
  if config.system.devices is not None or several:
    return config.system.devices
  return min(len(aim.devices), max(fleets.slots(network.fleet)))


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


# Checks.


def _check_methods(
  config: Config, network: Network, methods: Mapping[str, Method]
) -> None:
  """Raises UserError where methods and config contradict each other."""
  _check_prices(config, network, methods)
  for key, method in methods.items():
    if one_server(method):
      _check_one_server(config, network.backbone.cuts, key, method)


def _check_prices(
  config: Config, network: Network, methods: Mapping[str, Method]
) -> None:
  """Raises UserError if a message with a form or noise is only priced.

  A method may count a message's bytes without sending it (`wire.record`). The
  ledger would then have the bytes of a form that rounds nothing.
  """
  for kind in CHANNELS:
    form = getattr(config.wire, kind)
    noise = getattr(config.privacy, kind)
    if (form, noise) == (Rows(), Noise()):
      continue
    names = {name for name, channel in KINDS.items() if channel == kind}
    for key, method in methods.items():
      fleet = own_fleet(method, network)
      sent = tracing.of_steps(method, layout.of(fleet))
      if names & sent.priced and not names & set().union(*sent.counts):
        raise UserError(
          f"wire.{kind} and privacy.{kind}: {key} only counts the bytes of"
          f" {kind}, because its clients train the whole network"
          " (`Method.cuts`); set them back"
        )


def _check_one_server(
  config: Config, cuts: tuple[int, ...], key: str, method: Method
) -> None:
  name = config.methods[key].name
  if len(cuts) > 1:
    raise UserError(
      f"backbone.depths={cuts}: {name} has one server for clients of one"
      f" depth; choose one, as in ({cuts[0]},)"
    )
  if config.system.devices not in (None, 1) or machine.is_distributed():
    raise UserError(
      f"system.devices={config.system.devices}: {name} has one server, whose"
      " clients train on one device in one process; set it to 1"
    )
  if method.topology == "relay" and config.batch_norm == "local":
    raise UserError(
      f"batch_norm=local: {name} passes one part-1 from client to client;"
      " choose average or group_norm"
    )


# One method.


class TrainingSetup(NamedTuple):
  """All that the training of one method in a task needs, built once."""

  task: Task  #: all that the methods of the run share
  key: str  #: the method's key in the config
  method: Method
  fleet: Fleet  #: its clients (`own_fleet`), divided among the devices
  plans: tuple[feed.BatchPlan, ...]  #: each cohort's batch schedule
  shards: tuple[Shard, ...]  #: each cohort's data
  sizes: np.ndarray  #: [N] int, training samples of each client, on the host
  batch: int  #: the clients' batch size; a small cohort's may be less

  @property
  def label(self) -> str:
    """The method's name in what a user reads."""
    return self.task.config.methods[self.key].label or self.key

  @property
  def labels(self) -> list[str]:
    """The names of the method's result rows in stored numbers.

    They begin with the method's key. Reports show its label instead, which may
    be corrected after the training.
    """
    return [self.key + row.suffix for row in self.method.rows]

  @property
  def layout(self) -> Layout:
    """The cohorts, as a compiled round knows them."""
    return layout.of(self.fleet)

  @property
  def in_turn(self) -> bool:
    """Whether one server serves the clients one after another."""
    return self.method.topology in IN_TURN

  @property
  def backbone(self) -> Backbone:
    """The network."""
    return self.task.network.backbone

  @property
  def subject(self) -> Subject:
    """What measurements know of the method."""
    task = self.task
    return Subject(
      config=task.config,
      key=self.key,
      labels=self.labels,
      method=self.method,
      backbone=self.backbone,
      fleet=self.fleet,
      layout=self.layout,
      plans=self.plans,
      sizes=self.sizes,
      batch=self.batch,
      counts=task.class_counts,
      clients=task.client_names,
      classes=task.class_names,
      test_sets=task.test_sets,
      holdout=task.held,
      thresholds=task.thresholds,
      pool=task.pool,
      mesh=task.mesh,
    )

  @property
  def places(self) -> list[int]:
    """The numbers of clients in the cohorts, padding included."""
    return [len(cohort.numbers) for cohort in self.fleet.cohorts]


def make_setup(task: Task, key: str) -> TrainingSetup:
  """Makes the setup of the method `key` in a task, with its data in place."""
  # The clients' rows, and how each cohort walks through them.
  config = task.config
  network = task.network
  method = task.methods[key]
  fleet = own_fleet(method, network)
  batch = method.batch_size(config.num_clients, config.batch_size)
  parts: Sequence[np.ndarray] = task.test_sets.parts
  holdout_rows: Sequence[np.ndarray] | None = None
  if method.validates:
    share = method.validates
    seed = config.seed
    parts, holdout_rows = client_split(
      parts, seed, (1 - share, share), stream=VALIDATE
    )
  sizes = np.array([len(part) for part in parts])
  steps = config.local_steps
  plans = tuple(
    feed.plan(
      sizes[list(cohort.ids)].tolist(),
      batch,
      feed.epochs(config.local_epochs, steps, sizes, batch),
      network.mean,
      network.std,
      config.data.augment,
      steps,
    )
    for cohort in fleet.cohorts
  )
  # Divide clients among devices; then make shards with the order of service.
  fleet = _divide(task, method, fleet, len(plans))

  def data_of(cohort: Cohort, plan: feed.BatchPlan) -> Shard:
    shard = orders.with_service_order(
      method,
      _shard(task, cohort, parts, holdout_rows),
      plan,
      fleet,
      order=config.order.name,
      turn=config.order.batches,
      rounds=config.rounds,
      seed=config.seed,
      groups=task.test_sets.groups,
    )
    rows = devices.put_on_devices(task.mesh, tuple(shard[2:]), devices.DIVIDED)
    return Shard(task.image, task.label, *rows)

  shards = tuple(map(data_of, fleet.cohorts, plans))
  return TrainingSetup(
    task=task,
    key=key,
    method=method,
    fleet=fleet,
    plans=plans,
    shards=shards,
    sizes=sizes,
    batch=batch,
  )


def _divide(task: Task, method: Method, fleet: Fleet, cohorts: int) -> Fleet:
  """Divides clients among devices, and each device's clients into chunks.

  Chunks have system.clients_per_chunk clients. With "auto" they have one on a
  CPU, because one client keeps the cores busy and its arrays stay in the cache,
  and all clients on other devices.
  """
  chunk = task.config.system.clients_per_chunk
  size = None if chunk == "auto" else int(chunk)
  if chunk == "auto" and target.current().platform == "cpu":
    size = 1
  if one_server(method):  # one server takes one chunk
    size = None
  return fleets.divide(fleet, devices.size(task.mesh), [size] * cohorts)


def _shard(
  task: Task,
  cohort: Cohort,
  parts: Sequence[np.ndarray],
  holdout_rows: Sequence[np.ndarray] | None,
) -> Shard:
  """Makes a cohort's Shard, not yet divided among the devices.

  `parts` has the training rows of all clients, and `holdout_rows` their
  validation rows or None.
  """
  shard = feed.shards(
    task.image,
    task.data.train_label,
    [parts[i] for i in cohort.numbers],
    task.data.classes,
    cohort.numbers,
  )
  numbers = np.array(cohort.numbers)
  groups = task.test_sets.groups
  if holdout_rows is not None:
    shard = shard._replace(
      validation=jnp.asarray(padded(holdout_rows)[numbers])
    )
  if groups is not None:
    shard = shard._replace(group=jnp.asarray(groups[numbers], np.int32))
  return shard


def clients_side_by_side(setup: TrainingSetup) -> list[int]:
  """Returns how many clients of each cohort a device trains at a time."""
  if setup.in_turn:
    return [1]
  cohorts = setup.fleet.cohorts
  slots = fleets.slots(setup.fleet)
  return [
    cohort.chunk or -(-count // setup.fleet.devices)
    for cohort, count in zip(cohorts, slots, strict=True)
  ]


def server_bytes(setup: TrainingSetup) -> int:
  """Returns the bytes of the server's parameters, see `tracing.at_server`."""
  return tracing.at_server(setup.method, setup.layout, setup.plans[0])


def end_of(
  setup: TrainingSetup,
  scores: Sequence[Scores],
  state: State,
  personal: tuple[Net, ...],
  lines: Sequence[Line],
  totals: Mapping[str, np.ndarray],
  *,
  current: bool = True,
) -> End:
  """Makes what the measurements of a trained method get; see `End`."""
  sent: Sequence[Mapping[str, int]] = ()
  if setup.task.config.privacy.accounted:
    sent = tracing.of_steps(setup.method, setup.layout).counts
  return End(
    subject=setup.subject,
    scores=scores,
    state=state,
    personal=personal,
    lines=lines,
    totals=totals,
    server_bytes=server_bytes(setup),
    sent=sent,
    current=current,
  )
