"""Training and evaluating a method whose clients lie on the host.

The sample of a round is drawn on the device, by the same keys as where all
clients lie there. The host gathers the sampled clients' halves and images, and
the compiled round runs on these alone; then the halves are written back. While
a round runs, the images of the next are gathered. Evaluation and
personalisation take as many clients of a cohort at a time as a round does;
where all of a cohort answer alike, one of them answers for the whole split.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import fleets, sharding
from splitjax.engine.base import Metrics
from splitjax.engine.host_clients import HostClients, data_of
from splitjax.experiment.setup.build import abstract_state
from splitjax.experiment.setup.tasks import chunked
from splitjax.experiment.setup.test_images import Shown, chunks, shares, tested
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers import programs
from splitjax.experiment.trainers.trainer import Part, Trainer, grown
from splitjax.types import Segment, Shard, State, Tree, UserError


def make_trainer(setup: TrainingSetup) -> Trainer:
  """The trainer of a method, its clients where the config has them."""
  at_host = setup.task.config.system.clients_on == "host"
  return HostTrainer(setup) if at_host else Trainer(setup)


class RoundSample(NamedTuple):
  """A round's sample, with the data of its clients on the devices.

  Attributes:
    places: per cohort [S] int, on the host.
    on: per cohort [S] bool, the sampled clients, on the host.
    shards: per cohort, leaves [S, ...].
  """

  places: tuple[np.ndarray, ...]
  on: tuple[np.ndarray, ...]
  shards: tuple[Shard, ...]


class HostTrainer(Trainer):
  """One method in training; clients of its states are HostClients."""

  by_place = True

  def __init__(self, setup: TrainingSetup):
    """As `Trainer`."""
    super().__init__(setup)
    devices = setup.fleet.devices
    self._spare = devices if devices > 1 else 2  # rows are divided among them
    self._drawn = dict[int, RoundSample]()  # by the number of rounds before it
    counts = setup.fleet.participation == "label_balanced"
    facts = [
      tuple(getattr(shard, name) for shard in setup.shards)
      for name in ("number", "counts")[: 1 + counts]
    ]
    self._facts = sharding.put(self.task.mesh, tuple(facts))

  def init(self, full: Segment) -> State:
    """As `Trainer.init`, one client drawn for each cohort.

    Raises:
      UserError: the method gives its clients halves of their own.
    """
    made: Any = super().init(full)
    state, alike = made
    if not all(map(bool, jax.tree.leaves(alike))):
      raise UserError(
        "system.clients_on=host: the method begins with other halves for other"
        " clients; leave it 'device'"
      )
    clients = tuple(
      jax.tree.map(lambda x, n=n: np.broadcast_to(x, (n, *x.shape)), half)
      for half, n in zip(
        jax.device_get(state.clients), self.setup.places, strict=True
      )
    )
    return self.hold(state._replace(clients=clients))

  def make_init(self, setup: TrainingSetup, *, jit: Callable[..., Any]) -> Any:
    """A jitted (seed, network) -> the state with one client of each cohort.

    And leaf by leaf whether all clients of a cohort are alike.
    """
    whole = super().make_init(setup, jit=lambda function, **_: function)

    def init(seed, full):
      state = whole(seed, full)
      alike = jax.tree.map(lambda x: (x == x[:1]).all(), state.clients)
      one = tuple(trees.take(half, 0) for half in state.clients)
      return state._replace(clients=one), alike

    copied = sharding.sharding(setup.task.mesh, sharding.COPIED)
    return jit(init, out_shardings=copied)

  def place(self, state: State) -> State:
    """As `Trainer.place`."""
    return self.hold(grown(state, self.setup.fleet))

  def hold(self, state: State) -> State:
    """Turns a state read from a checkpoint into this trainer's form."""
    held: Any = tuple(HostClients(half, self._spare) for half in state.clients)
    put = sharding.put(self.task.mesh, (state.round, state.server))
    return state._replace(clients=held, round=put[0], server=put[1])

  def whole(self, state: State) -> State:
    """The state as it is saved; of the clients see `HostClients.whole`."""
    clients: Any = tuple(each.whole() for each in _held(state))
    return state._replace(clients=clients)

  def shapes(self, places: Sequence[int]) -> Tree:
    """As `Trainer.shapes`: clients are read to the host."""
    state = abstract_state(self.setup.method, self.task.network, places)
    clients = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), state.clients)
    rest = checkpoint.on_first_device(state._replace(clients=()))
    return rest._replace(clients=clients)

  def inputs(self, state: State) -> tuple:
    """The arguments of the next round, drawn: `engine.rounds.make_round`."""
    number = int(state.round)
    if number not in self._drawn:
      self._drawn[number] = self._gather(self._draw(state, 0))
    drawn = self._drawn[number]
    clients = tuple(
      each.with_spare(places)
      for each, places in zip(_held(state), drawn.places, strict=True)
    )
    mesh = self.task.mesh
    clients = sharding.put(mesh, clients, sharding.DIVIDED)
    on = sharding.put(mesh, drawn.on)
    return state._replace(clients=clients), drawn.shards, on

  def make_round(self, setup: TrainingSetup, **options: Any) -> Any:
    """The jitted round of a sample's clients, after `inputs`."""
    drawn = next(iter(self._drawn.values()))
    count = [len(places) + self._spare for places in drawn.places]
    part = setup._replace(fleet=fleets.with_places(setup.fleet, count))
    return programs.make_round(part, drawn=True, **options)

  def step(self, state: State) -> tuple[State, Metrics]:
    """As `Trainer.step`.

    Raises:
      UserError: as `HostClients.put`.
    """
    given, before = self.inputs(state), int(state.round)
    program = self.round(given)
    last = before + 1 >= self.task.config.rounds
    sample = None if last else self._draw(state, 1)
    held: Any = _held(state)
    drawn = self._drawn.pop(before)
    state, metrics = program(*given)
    # The device computes; meanwhile the next images are gathered.
    if sample is not None:
      self._drawn[before + 1] = self._gather(sample)
    new = jax.device_get(state.clients)
    for kept, *rows in zip(held, drawn.places, drawn.on, new, strict=True):
      kept.put(*rows)
    return state._replace(clients=held), jax.device_get(metrics)

  def personalise(self, state: State) -> tuple:
    """Every client personalised, leaves [N, ...] on the host."""
    if not any(row.personal for row in self.setup.method.traits.rows):
      return ()
    out = []
    for c, half in enumerate(self.whole(state).clients):
      own = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), half)
      leaves, done = jax.tree.leaves(own), 0
      for part in self.parts(c, state, None, personal=True):
        count = len(part.ids)
        new = jax.tree.leaves(self.tuned(c, part))
        for leaf, rows in zip(leaves, new, strict=True):
          leaf[done : done + count] = np.asarray(rows)[:count]
        done += count
      for leaf in leaves:  # padding clients, which nobody reads
        leaf[done:] = leaf[0]
      out.append(own)
    return tuple(out)

  def lots(self) -> range:
    """Cohorts: a part has clients of one of them."""
    return range(len(self.setup.fleet.cohorts))

  def parts(
    self, c: int, state: State, samples: int | None, *, personal: bool
  ) -> Iterator[Part]:
    """The parts of a cohort's evaluation.

    Where its clients are alike, one of them, on every device, answers a share
    of the split for all. Training images are there only if `personal`.
    """
    setup, task = self.setup, self.task
    fleet, cohort = setup.fleet, setup.fleet.cohorts[c]
    ids, devices = np.array(cohort.ids), fleet.devices
    if not personal and shares(setup, c, None):
      each = -(-len(task.pool) // devices)
      split = np.resize(np.arange(len(task.pool)), (devices, each))
      rows = chunked(split, task.config.eval.batch_size)
      first = np.full(devices, rows.shape[1], np.int32)
      # Padding reads sample 0.
      row = np.maximum(tested(task, samples).rows[ids], 0)
      whose = np.stack(np.divmod(row, each), -1)
      images = Shown(rows, first, whose, range(len(ids)))
      places, part = np.zeros(devices, int), _of_cohort(setup, c, devices)
      yield self._part(c, part, state, places, ids, images, data=False)
      return
    # As many clients as a round computes.
    lot = devices * (cohort.chunk or 1)
    count = -(-max(fleets.slots(fleet)[c], 1) // lot) * lot
    part = _of_cohort(setup, c, min(count, len(cohort.places)))
    size = len(part.fleet.cohorts[0].ids)
    first = chunks(task, samples)
    for start in range(0, len(ids), size):
      places = np.minimum(np.arange(start, start + size), len(ids) - 1)
      mine, seen = ids[start : start + size], ids[places]
      images = Shown(task.shown[seen], first[seen])
      yield self._part(c, part, state, places, mine, images, data=personal)

  def _part(
    self,
    c: int,
    setup: TrainingSetup,
    state: State,
    places: np.ndarray,
    ids: np.ndarray,
    images: Shown,
    *,
    data: bool,
  ) -> Part:
    """State and data of some clients; their images only if `data`."""
    task, count = self.task, len(places)
    on = (np.arange(count) < len(ids)) & data
    size = task.test_sets.images_of(count if data else 0)
    shards = self._data(setup.shards, (places,), (on,), size)
    half = _held(state)[c].take(places)
    clients = sharding.put(task.mesh, half, sharding.DIVIDED)
    mine = state._replace(clients=(clients,))
    return Part(setup, mine, shards, ids, images)

  def _draw(self, state: State, ahead: int) -> Any:
    """The sample of the next round, or of one later, on the device."""
    given = state.key, state.round + ahead, *self._facts
    return self._program("sample", programs.make_sample, self.setup, given)(
      *given
    )

  def _gather(self, samples: Any) -> RoundSample:
    """The data of a sample."""
    # A padding slot has a place beyond the end.
    shards = self.setup.shards
    drawn = [jax.device_get(each) for each in samples]
    places = tuple(
      np.minimum(slots, len(shard.number) - 1)
      for (slots, _), shard in zip(drawn, shards, strict=True)
    )
    on = tuple(on for _, on in drawn)
    count = self.setup.fleet.participants
    size = self.task.test_sets.images_of(count)
    return RoundSample(places, on, self._data(shards, places, on, size))

  def _data(self, *of: Any) -> tuple[Shard, ...]:
    """The data of some clients, on the devices, see `data_of`."""
    stock: Any = self.task.image, self.task.label
    shared, own = data_of(*stock, *of)
    shared = sharding.put(self.task.mesh, shared)
    divided = sharding.put(self.task.mesh, own, sharding.DIVIDED)
    return tuple(Shard(*shared, *each) for each in divided)


def _held(state: State) -> tuple[HostClients, ...]:
  """The clients of a HostTrainer's state."""
  clients: Any = state.clients
  return clients


def _of_cohort(setup: TrainingSetup, c: int, count: int) -> TrainingSetup:
  """So many clients of one cohort."""
  fleet = dataclasses.replace(
    setup.fleet,
    cohorts=(setup.fleet.cohorts[c],),
    participation="uniform",
  )
  return setup._replace(
    fleet=fleets.with_places(fleet, [count]),
    plans=(setup.plans[c],),
    shards=(setup.shards[c],),
  )
