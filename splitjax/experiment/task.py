"""The task of a run, which its methods share, and one method in it.

`build` makes the Task of a config: data, clients, network, methods.
`make_subject` adds what one method has of its own: its cohorts and their data
on the devices. Errors in a configuration are raised here or earlier, before
anything is compiled.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax import target
from splitjax.config.config import Config
from splitjax.data import Dataset, TestSets, holdout, load, merged
from splitjax.data.feed import BatchPlan
from splitjax.data.partitions import VALIDATE, Parts, client_split
from splitjax.data.test_sets import Holdout
from splitjax.engine import devices, faults
from splitjax.engine.faults import FaultTable
from splitjax.engine.loops import loop_of, one_server
from splitjax.engine.round import FAULT
from splitjax.evaluation import gate, metrics
from splitjax.evaluation.exits import chunked
from splitjax.evaluation.gate import Calibration
from splitjax.evaluation.subject import Subject
from splitjax.experiment import client_data, machine
from splitjax.experiment.network import (
  Network,
  abstract_state,
  check_layers,
  make_method,
  make_network,
)
from splitjax.fields import naming
from splitjax.fleet import cohorts, fleets
from splitjax.fleet.fleets import Fleet, own_fleet
from splitjax.fleet.orders import Queue
from splitjax.methods.method import Method
from splitjax.models.network import Pretrained, init
from splitjax.reports import paper_numbers
from splitjax.reports.quantities import QUANTITIES
from splitjax.types import Net, Shard, UserError


class Task(NamedTuple):
  """Everything that the methods of a run share."""

  config: Config
  network: Network  #: backbone, clients, standardisation
  methods: dict[str, Method]  #: by their keys in the config
  data: Dataset  #: on the host
  test_sets: TestSets  #: each client's training samples and test sets
  #: of data and clients, JSON-ready: with the config they decide what a run is
  facts: dict[str, Any]
  thresholds: tuple[float, ...]  #: [E] entropy thresholds, nats
  image: Array  #: [Z, ...] inputs of the training split, on the device
  label: Array  #: [Z] int32 labels of the training split, on the device
  pool: Array  #: [T, ...] the split that test sets are drawn from, likewise
  #: [N, chunks, B] int32 test samples as rows of pool, padded, on the host
  shown: np.ndarray
  mesh: Mesh | None  #: None if there is one device
  faults: FaultTable  #: drawn faults [N, R], on the device
  #: samples to choose thresholds on, on the host
  holdout: Holdout | None = None
  calibration: Calibration | None = None  #: they and proxies, on the device

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


def build(config: Config | Any, depth: Sequence[int] | None = None) -> Task:
  """Loads the data, deals them to the clients and cuts the network.

  `depth` [N] are the clients' depths in an earlier run; None: those that the
  config allocates. A setting that no method reads is no error.

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
  loaded = load(
    config.data.name,
    data_dir=config.data.dir,
    train_samples=config.data.train_samples,
    test_samples=config.data.test_samples,
  )
  if config.data.pool == "all":
    loaded = merged(loaded)
  client_data.check(config, loaded)
  form = client_data.form_of(loaded)
  network = make_network(config, {**form, "depth": depth})
  backbone = network.backbone
  check_layers(config, backbone)
  depths = network.fleet.depths
  data, test_sets = client_data.deal(config, loaded, depths)
  metrics.check_metrics(config.eval.metrics, data.classes, QUANTITIES)

  dealt = client_data.facts_of(config, loaded, test_sets)
  network = network._replace(
    mean=tuple(dealt["mean"]),
    std=tuple(dealt["std"]),
    names=tuple(dealt["names"]),
  )
  facts = {**form, **dealt, "depth": depths}
  if isinstance(backbone.start, Pretrained):
    facts["pretrained"] = backbone.start.digest
  methods = _methods(config, network)

  # Data go to the devices once; all clients of one server train on the same.
  alone = any(map(one_server, methods.values()))
  mesh = devices.make_mesh(1 if alone else _devices(config, network))
  put = functools.partial(devices.put_on_devices, mesh)
  image = put(data.train_image)
  task = Task(
    config=config,
    network=network,
    methods=methods,
    data=data,
    test_sets=test_sets,
    facts=facts,
    thresholds=config.eval.thresholds or gate.default_grid(data.classes),
    image=image,
    label=put(data.train_label),
    pool=image if test_sets.pool == "train" else put(data.test_image),
    shown=chunked(test_sets.rows, config.eval.chunk),
    mesh=mesh,
    faults=put(
      faults.draw_faults(
        faults.Faults(**vars(config.faults)),
        jax.random.fold_in(run_key(config.seed), FAULT),
        config.num_clients,
        config.rounds,
        config.seed,
      )
    ),
  )
  return _with_calibration(task) if config.eval.calibrates else task


def _with_calibration(task: Task) -> Task:
  """Adds the samples on which thresholds are chosen, and their proxies."""
  config = task.config
  validation = task.test_sets.validation
  held_out = holdout(task.data.train_label, validation, config.seed)
  proxies = gate.calibration(task.image, held_out, task.mesh)
  rows = chunked(proxies.rows, config.eval.batch_size)
  rows = devices.put_on_devices(task.mesh, rows)
  return task._replace(
    holdout=held_out, calibration=proxies._replace(rows=rows)
  )


def _methods(config: Config, network: Network) -> dict[str, Method]:
  """Makes the methods; checks that each can start with the clients."""
  cuts = network.backbone.cuts
  methods = {}
  for key in config.methods:
    method = make_method(config, network.backbone, key)
    with naming(f"methods.{key}"):
      loop_of(method)  # that of its topology, if there is one
      abstract_state(method, network)
    if one_server(method) and len(cuts) > 1:
      raise UserError(
        f"backbone.depths={cuts}: methods.{key} has one server for clients of"
        f" one depth; choose one, as in ({cuts[0]},)"
      )
    methods[key] = method
  return methods


def _devices(config: Config, network: Network) -> int | None:
  """Returns how many devices the clients are divided among; None: all.

  A CPU's core without a client of any cohort is left to the other cores.
  """
  aim = target.current()
  several = machine.is_distributed() or aim.platform != "cpu"
  if config.system.devices is not None or several:
    return config.system.devices
  layout = network.fleet.layout
  return min(len(aim.devices), max(map(layout.computed, layout.cohorts)))


def run_key(seed: Any) -> Array:
  """Derives the key [] of a run's rounds (State.key)."""
  return jax.random.fold_in(jax.random.key(seed), 1)


def fresh_network(task: Task) -> Net:
  """Makes the network that all methods start from, random or pretrained."""
  key = jax.random.fold_in(jax.random.key(task.config.seed), 0)
  net = task.network.backbone
  if not isinstance(net.start, Pretrained):
    return _draw(net, key)
  # Leave out the file's weights, which the compiled function would keep alive.
  return net.start.into(_draw(dataclasses.replace(net, start="he"), key))


# Optimising this program would take longer than it saves.
_QUICK = {"xla_backend_optimization_level": 0}
_draw = jax.jit(init, static_argnums=0, compiler_options=_QUICK)


# One method.


def make_subject(task: Task, key: str, chunk: int | None = None) -> Subject:
  """Makes the subject of the method `key` in a task, its data in place.

  `chunk` is a number of clients per chunk in place of the config's.
  """
  config = task.config
  method = task.methods[key]
  fleet = _divide(task, method, chunk or config.system.clients_per_chunk)
  parts: Parts = task.test_sets.parts
  validation: Parts = ()
  if method.validates:
    shares = (1 - method.validates, method.validates)
    parts, validation = client_split(
      parts, config.seed, shares, stream=VALIDATE
    )
  plan = BatchPlan(
    batch=method.batch_size(config.num_clients, config.batch_size),
    epochs=config.local_epochs,
    mean=task.network.mean,
    std=task.network.std,
    augment=config.data.augment,
  )
  queue = Queue(
    order=config.order.name,
    turn=config.order.batches,
    rounds=config.rounds,
    seed=config.seed,
  )
  split = task.image, task.label
  groups = task.test_sets.groups
  plans, shards, queue = cohorts.deal(
    method, fleet, split, parts, plan, queue, validation, groups
  )

  def placed(shard: Shard) -> Shard:
    none: Any = ()  # images and labels, which all clients share
    of_clients = shard._replace(image=none, label=none)
    of_clients = devices.put_on_devices(task.mesh, of_clients, devices.DIVIDED)
    return of_clients._replace(image=task.image, label=task.label)

  return Subject(
    task=task,
    key=key,
    method=method,
    fleet=fleet,
    plans=plans,
    shards=tuple(map(placed, shards)),
    queue=queue,
    sizes=np.array([len(part) for part in parts]),
  )


def _divide(task: Task, method: Method, chunk: int | str) -> Fleet:
  """Divides clients among devices, and each device's clients into chunks."""
  fleet = own_fleet(method, task.network.fleet)
  if one_server(method):  # one server takes one chunk
    size = None
  elif chunk == "auto":
    # One client keeps a CPU busy, and its arrays stay in the cache.
    size = 1 if target.current().platform == "cpu" else None
  else:
    size = int(chunk)
  chunks = [size] * len(fleet.cohorts)
  return fleets.divide(fleet, devices.size(task.mesh), chunks)
