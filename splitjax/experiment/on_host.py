"""Rounds and evaluations of clients whose halves and data lie on the host.

The sample of a round is drawn on the device, by the same keys as where all
clients lie there. The host gathers the sampled clients' halves and images, and
the compiled round runs on these alone; then the halves are written back. While
a round runs, the images of the next are gathered. Evaluation and
personalisation take as many clients at a time as a round does.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import fleet as fleets
from splitjax.engine import round as rounds
from splitjax.engine import sharding
from splitjax.engine.base import Metrics
from splitjax.engine.host_clients import HostClients
from splitjax.engine.sampling import sample_clients
from splitjax.experiment import host_data, host_evaluation
from splitjax.experiment.compile_cache import Note, quiet, reuse
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.types import (
  Half,
  Outputs,
  Row,
  Segment,
  Shard,
  State,
  UserError,
)


class Drawn(NamedTuple):
  """A round's sample, with the data of its clients on the devices.

  Attributes:
    places: per cohort [S] int, on the host.
    on: per cohort [S] bool, the sampled clients, on the host.
    shards: per cohort, leaves [S, ...].
  """

  places: tuple[np.ndarray, ...]
  on: tuple[np.ndarray, ...]
  shards: tuple[Shard, ...]


def fresh_state(task: Task, federation: Federation, full: Segment) -> State:
  """The state before the first round; clients are views of one on the host.

  Raises:
    UserError: the method gives its clients halves of their own.
  """
  seed = np.uint32(task.config.seed)
  given = sharding.put(task.mesh, (seed, jax.device_get(full)))
  places = [len(cohort.places) for cohort in federation.fleet.cohorts]
  name = "init on host"
  program = reuse(_make_init, name, task, federation, given, facts=(*places,))
  state, alike = program(*given)
  if not all(map(bool, jax.tree.leaves(alike))):
    raise UserError(
      "system.clients_on=host: the method begins with other halves for other"
      " clients; leave it 'device'"
    )
  clients = tuple(
    jax.tree.map(lambda x, n=n: np.broadcast_to(x, (n, *x.shape)), half)
    for half, n in zip(jax.device_get(state.clients), places, strict=True)
  )
  return state._replace(clients=clients)


def _make_init(
  task: Task, federation: Federation, *, jit: Callable[..., Any]
) -> Any:
  """A jitted (seed, network) -> the state with one client of each cohort.

  And leaf by leaf whether all clients of a cohort are alike.
  """

  def init(seed, full):
    key = jax.random.fold_in(jax.random.key(seed), 1)
    state = federation.method.init(key, federation.fleet, full)
    alike = jax.tree.map(lambda x: (x == x[:1]).all(), state.clients)
    one = tuple(trees.take(half, 0) for half in state.clients)
    return state._replace(clients=one), alike

  return jit(init, out_shardings=sharding.sharding(task.mesh, sharding.COPIED))


def place_state(task: Task, federation: Federation, state: State) -> State:
  """A state with the padding clients of this run, on the host."""
  clients = tuple(
    trees.take(half, np.minimum(np.arange(len(c.places)), len(c.ids) - 1))
    for half, c in zip(state.clients, federation.fleet.cohorts, strict=True)
  )
  return state._replace(clients=clients)


class HostRun:
  """A method in training, its clients on the host.

  Attributes:
    step: the compiled round, see `compile`.
  """

  def __init__(self, task: Task, federation: Federation, state: State):
    """Takes over a state, its clients' leaves [N, ...] on the host."""
    self._task, self._federation = task, federation
    devices = federation.fleet.devices
    self._spare = devices if devices > 1 else 2  # rows are divided among them
    self._cohorts = [HostClients(half, self._spare) for half in state.clients]
    rest = state._replace(clients=())
    self._rest = rest._replace(
      round=sharding.put(task.mesh, rest.round),
      server=sharding.put(task.mesh, rest.server),
    )
    counts = federation.fleet.participation == "label_balanced"
    facts = [
      tuple(getattr(shard, name) for shard in federation.shards)
      for name in ("number", "counts")[: 1 + counts]
    ]
    self._clients = sharding.put(task.mesh, tuple(facts))
    given = self._rest.key, self._rest.round, *self._clients
    self._sample = reuse(_make_sample, "sample", task, federation, given)
    self._next: Drawn | None = None
    self.step: Any = None

  def compile(self, note: Note = quiet) -> None:
    """Compiles round and evaluation; `note` is as in `compile_cache.reuse`."""
    given = self.inputs()
    task, federation, name = self._task, self._federation, "round on host"
    make = functools.partial(self.make_round, faults=task.config.faults)
    self.step = reuse(make, name, task, federation, given, note)
    del given
    host_evaluation.compile_evaluation(
      task, federation, self._rest, self._read, note
    )

  def make_round(self, task: Task, federation: Federation, **how: Any) -> Any:
    """The jitted round of a sample's clients; `how` as of `rounds.make_round`.

    Of a federation like this one, whose numbers may be traced.
    """
    drawn = self._next
    assert drawn is not None
    count = [len(places) + self._spare for places in drawn.places]
    fleet = fleets.with_places(federation.fleet, count)
    parts = federation.method, federation.plans, fleet
    return rounds.make_round(*parts, mesh=task.mesh, drawn=True, **how)

  def inputs(self) -> tuple[State, tuple[Shard, ...], tuple[Any, ...]]:
    """What the next round gets: see `rounds.make_round`, drawn."""
    task = self._task
    if self._next is None:
      self._next = self._gather(self._draw(0))
    drawn = self._next
    clients = tuple(
      each.with_spare(places)
      for each, places in zip(self._cohorts, drawn.places, strict=True)
    )
    clients = sharding.put(task.mesh, clients, sharding.DIVIDED)
    on = sharding.put(task.mesh, drawn.on)
    return self._rest._replace(clients=clients), drawn.shards, on

  def advance(self) -> Metrics:
    """Trains a round; its metrics, on the host.

    Raises:
      UserError: as `HostClients.put`.
    """
    given, drawn = self.inputs(), self._next
    assert drawn is not None
    last = int(self._rest.round) + 1 >= self._task.config.rounds
    following = None if last else self._draw(1)
    state, metrics = self.step(*given)
    # The device computes; meanwhile the next images are gathered.
    self._next = None if following is None else self._gather(following)
    for kept, places, on, new in zip(
      self._cohorts,
      drawn.places,
      drawn.on,
      jax.device_get(state.clients),
      strict=True,
    ):
      kept.put(places, on, new)
    self._rest = state._replace(clients=())
    return jax.device_get(metrics)

  def state(self) -> State:
    """The whole state; of the clients see `HostClients.whole`."""
    clients = tuple(each.whole() for each in self._cohorts)
    return self._rest._replace(clients=clients)

  def evaluate(
    self, rows: tuple[Row, ...], samples: int | None = None
  ) -> list[Outputs]:
    """The outputs of result rows, as `programs.evaluate_rows`."""
    return host_evaluation.evaluate_rows(
      self._task, self._federation, self._rest, self._read, rows, samples
    )

  def _read(self, c: int, places: np.ndarray) -> Half:
    """The halves at some places of a cohort."""
    return self._cohorts[c].take(places)

  def _draw(self, ahead: int) -> Any:
    """The sample of the next round, or of one later, on the device."""
    rest = self._rest
    return self._sample(rest.key, rest.round + ahead, *self._clients)

  def _gather(self, samples: Any) -> Drawn:
    """The data of a sample."""
    # A padding slot has a place beyond the end.
    shards = self._federation.shards
    drawn = [jax.device_get(each) for each in samples]
    places = tuple(
      np.minimum(slots, len(shard.number) - 1)
      for (slots, _), shard in zip(drawn, shards, strict=True)
    )
    on = tuple(on for _, on in drawn)
    count = self._federation.fleet.participants
    size = self._task.test_sets.images_of(count)
    return Drawn(
      places, on, host_data.of_clients(self._task, shards, places, on, size)
    )


def _make_sample(
  task: Task, federation: Federation, *, jit: Callable[..., Any]
) -> Any:
  """A jitted (key, round, numbers, counts) -> per cohort slots and active.

  The last two are per cohort, as in `sample_clients`.
  """

  def sample(key, round, numbers, counts=()):
    own, _ = rounds.round_keys(key, round)
    found = sample_clients(federation.fleet, own, numbers, counts)
    return [(each.slots, each.active) for each in found]

  return jit(
    sample, out_shardings=sharding.sharding(task.mesh, sharding.COPIED)
  )
