"""The setup of one method in a task: cohorts, data, and state on devices."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from splitjax import target
from splitjax.data import feed
from splitjax.data.partitions import VALIDATE, hold_out, padded
from splitjax.engine import devices
from splitjax.engine.layout import Layout
from splitjax.engine.layout import of as layout_of
from splitjax.engine.loops import one_server
from splitjax.evaluation.scores import Scores
from splitjax.evaluation.subject import End, Line, Subject
from splitjax.experiment.setup import data_summary, tracing
from splitjax.experiment.setup.method_factory import make_method, own_fleet
from splitjax.experiment.setup.tasks import Task
from splitjax.fleet import fleets, orders
from splitjax.fleet.fleets import Cohort, Fleet
from splitjax.fleet.orders import IN_TURN
from splitjax.methods.method import Method
from splitjax.models.network import Backbone
from splitjax.types import Net, Shard, State


class TrainingSetup(NamedTuple):
  """All that the training of one method in a task needs, built once.

  Attributes:
    task: all that the methods of the run share.
    key: the method's key in the config.
    method: the method.
    fleet: the method's clients (`own_fleet`), divided among the devices.
    plans: per cohort, the batch schedule.
    shards: per cohort, the clients' data.
    sizes: [N] int, training samples of each client, on the host.
    batch: the clients' batch size; a small cohort's may be less (BatchPlan).
  """

  task: Task
  key: str
  method: Method
  fleet: Fleet
  plans: tuple[feed.BatchPlan, ...]
  shards: tuple[Shard, ...]
  sizes: np.ndarray
  batch: int

  @property
  def labels(self) -> list[str]:
    """The labels of the method's result rows."""
    label = self.task.config.methods[self.key].label or self.key
    return [label + row.suffix for row in self.method.rows]

  @property
  def layout(self) -> Layout:
    """The cohorts, as a compiled round knows them."""
    return layout_of(self.fleet)

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
      counts=data_summary.class_counts(task),
      clients=data_summary.client_names(task),
      classes=data_summary.class_names(task),
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
  # The fleet, and how each cohort walks through its data.
  config, network = task.config, task.network
  method = task.methods.get(key)
  if method is None:  # from an earlier start of the workdir
    method = make_method(config, network.backbone, key)
  fleet = own_fleet(method, network)
  batch = method.batch_size(config.num_clients, config.batch_size)
  parts, held = training_rows(task, method)
  sizes = np.array([len(part) for part in parts])
  steps = config.local_steps
  epochs = feed.epochs(config.local_epochs, steps, sizes, batch)
  plans = tuple(
    feed.plan(
      sizes[list(cohort.ids)].tolist(),
      batch,
      epochs,
      network.mean,
      network.std,
      config.data.augment,
      steps,
    )
    for cohort in fleet.cohorts
  )

  # Divide clients among devices; then make shards with the order of service.
  fleet = _divide(task, method, fleet, plans)
  setup = TrainingSetup(task, key, method, fleet, plans, (), sizes, batch)

  def data_of(cohort, plan):
    shard = _shard(task, cohort, parts, held)
    shard = _with_turns(task, method, shard, plan, fleet)
    rows = devices.put_on_devices(task.mesh, tuple(shard[2:]), devices.DIVIDED)
    return Shard(task.image, task.label, *rows)

  return setup._replace(shards=tuple(map(data_of, fleet.cohorts, plans)))


def clients_side_by_side(setup: TrainingSetup) -> list[int]:
  """Returns how many clients of each cohort a device trains at a time."""
  if setup.in_turn:
    return [1]
  return [
    cohort.chunk or -(-count // setup.fleet.devices)
    for cohort, count in zip(
      setup.fleet.cohorts, fleets.slots(setup.fleet), strict=True
    )
  ]


def training_rows(
  task: Task, method: Method
) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray] | None]:
  """Returns each client's training rows and, if needed, its validation rows."""
  parts = task.test_sets.parts
  if not method.validates:
    return parts, None
  share, seed = method.validates, task.config.seed
  return hold_out(parts, seed, share, stream=VALIDATE)


def _with_turns(
  task: Task, method: Method, shard: Shard, plan: feed.BatchPlan, fleet: Fleet
) -> Shard:
  """Adds the config's order of service to a cohort's data."""
  config = task.config
  return orders.with_service_order(
    method,
    shard,
    plan,
    fleet,
    order=config.order.name,
    turn=config.order.batches,
    rounds=config.rounds,
    seed=config.seed,
    groups=task.test_sets.groups,
  )


def _divide(
  task: Task, method: Method, fleet: Fleet, plans: tuple[feed.BatchPlan, ...]
) -> Fleet:
  """Divides clients among devices, and each device's clients into chunks.

  Chunks have system.clients_per_chunk clients. With "auto" they have one on a
  CPU, because one client keeps the cores busy and its arrays stay in the cache
  (benchmarks/scaling.py), and all clients on other devices.
  """
  system, count = task.config.system, devices.size(task.mesh)
  chunks: list[int | None] = [None] * len(plans)
  if one_server(method):  # one server takes one chunk
    return fleets.divide(fleet, count, chunks)
  if system.clients_per_chunk != "auto":
    chunks = [system.clients_per_chunk] * len(plans)
  elif target.current().platform == "cpu":
    chunks = [1] * len(plans)
  return fleets.divide(fleet, count, chunks)


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


def _shard(
  task: Task,
  cohort: Cohort,
  parts: Sequence[np.ndarray],
  held: Sequence[np.ndarray] | None,
) -> Shard:
  """Makes a cohort's Shard, not yet divided among the devices.

  `parts` has the training rows of all clients, and `held` their validation
  rows or None.
  """
  shard = feed.shards(
    task.image,
    task.data.train_label,
    [parts[i] for i in cohort.numbers],
    task.data.classes,
    cohort.numbers,
  )
  numbers, groups = np.array(cohort.numbers), task.test_sets.groups
  if held is not None:
    shard = shard._replace(validation=jnp.asarray(padded(held)[numbers]))
  if groups is not None:
    shard = shard._replace(group=jnp.asarray(groups[numbers], np.int32))
  return shard
