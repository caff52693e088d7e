"""Training and evaluation of a method whose clients lie on the host.

A round's clients are sampled on the device, with the random keys that would be
used if all clients were there. The host gathers the sampled clients' halves and
images, the compiled round runs on these alone, and the halves are written back.
While a round runs, the images of the next one are gathered. For evaluation and
personalisation, a cohort is cut into parts, each with as many clients as a
round takes from the cohort. If all clients of a cohort give the same answers,
one client on each device answers for all.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import fleets, sharding
from splitjax.engine.base import Metrics
from splitjax.engine.host_clients import HostClients, data_of
from splitjax.experiment.setup.method_factory import abstract_state
from splitjax.experiment.setup.tasks import chunked
from splitjax.experiment.setup.training_setup import TrainingSetup, of_cohort
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers import programs
from splitjax.experiment.trainers.compile_cache import Note, quiet
from splitjax.experiment.trainers.evaluation_images import (
  Shown,
  chunks,
  shares,
  tested,
)
from splitjax.experiment.trainers.trainer import EvaluationPart, Trainer
from splitjax.types import Segment, Shard, State, Tree, UserError


def make_trainer(setup: TrainingSetup, note: Note = quiet) -> Trainer:
  """Makes a HostTrainer if system.clients_on is "host", otherwise a Trainer."""
  at_host = setup.task.config.system.clients_on == "host"
  return (HostTrainer if at_host else Trainer)(setup, note)


class RoundSample(NamedTuple):
  """The sampled clients of a round, with their data on the devices.

  Attributes:
    places: per cohort [S] int on the host, positions of clients in the cohort.
    on: per cohort [S] bool on the host, false where a slot has no client.
    shards: per cohort, the clients' data, stacked [S, ...] as in `Shard`.
  """

  places: tuple[np.ndarray, ...]
  on: tuple[np.ndarray, ...]
  shards: tuple[Shard, ...]


class HostTrainer(Trainer):
  """The trainer of one method; its states have HostClients as clients."""

  by_place = True

  def __init__(self, setup: TrainingSetup, note: Note = quiet):
    super().__init__(setup, note)
    devices = setup.fleet.devices
    self._spare = devices if devices > 1 else 2  # devices divide the rows
    self._drawn = dict[int, RoundSample]()  # by number of earlier rounds
    counts = setup.fleet.participation == "label_balanced"
    facts = [
      tuple(getattr(shard, name) for shard in setup.shards)
      for name in ("number", "counts")[: 1 + counts]
    ]
    self._facts = sharding.put(self.task.mesh, tuple(facts))

  def init(self, full: Segment) -> State:
    """Makes the first state like `Trainer.init`, from one client per cohort.

    Raises:
      UserError: the method gives its clients different halves.
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
    """Makes a jitted function (seed, network) -> (state, alike).

    The state has one client per cohort. `alike` tells for each of its arrays
    whether all clients of the cohort have the same value.
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
    """Adds padding clients to a saved state, like `Trainer.place`."""
    return self.hold(fleets.with_padding(state, self.setup.fleet))

  def hold(self, state: State) -> State:
    """Turns a state read from a checkpoint into this trainer's form."""
    held: Any = tuple(HostClients(half, self._spare) for half in state.clients)
    put = sharding.put(self.task.mesh, (state.round, state.server))
    return state._replace(clients=held, round=put[0], server=put[1])

  def whole(self, state: State) -> State:
    """Returns the state to save, with read-only arrays [N, ...] of clients."""
    clients: Any = tuple(each.whole() for each in _held(state))
    return state._replace(clients=clients)

  def shapes(self, places: Sequence[int]) -> Tree:
    """Returns shapes like `Trainer.shapes`, with the clients on the host."""
    state = abstract_state(self.setup.method, self.task.network, places)
    clients = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), state.clients)
    rest = checkpoint.on_first_device(state._replace(clients=()))
    return rest._replace(clients=clients)

  def inputs(self, state: State) -> tuple:
    """Samples the next round's clients; returns the round's arguments."""
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
    """Makes the jitted round of those clients that `inputs` samples."""
    drawn = next(iter(self._drawn.values()))
    count = [len(places) + self._spare for places in drawn.places]
    part = setup._replace(fleet=fleets.with_places(setup.fleet, count))
    return programs.make_round(part, drawn=True, **options)

  def step(self, state: State) -> tuple[State, Metrics]:
    """Trains a round like `Trainer.step`.

    Raises:
      UserError: see `HostClients.put`.
    """
    given, before = self.inputs(state), int(state.round)
    program = self.round(given)
    last = before + 1 >= self.task.config.rounds
    sample = None if last else self._draw(state, 1)
    held: Any = _held(state)
    drawn = self._drawn.pop(before)
    state, metrics = program(*given)
    # The device computes; meanwhile gather the next images.
    if sample is not None:
      self._drawn[before + 1] = self._gather(sample)
    new = jax.device_get(state.clients)
    for kept, *rows in zip(held, drawn.places, drawn.on, new, strict=True):
      kept.put(*rows)
    return state._replace(clients=held), jax.device_get(metrics)

  def personalise(self, state: State) -> tuple:
    """Personalises every client; returns arrays [N, ...] on the host."""
    if not any(row.personal for row in self.setup.method.traits.rows):
      return ()
    out = []
    for c, half in enumerate(self.whole(state).clients):
      own = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), half)
      leaves, done = jax.tree.leaves(own), 0
      for part in self.evaluation_parts((c,), state, None, personal=True):
        count = len(part.ids)
        new = jax.tree.leaves(self.tuned(part))
        for leaf, rows in zip(leaves, new, strict=True):
          leaf[done : done + count] = np.asarray(rows)[:count]
        done += count
      for leaf in leaves:  # padding clients, which are never read
        leaf[done:] = leaf[0]
      out.append(own)
    return tuple(out)

  def evaluated_together(self) -> list[tuple[int, ...]]:
    """Lists each cohort by itself: a program takes clients of one cohort."""
    return [(c,) for c in range(len(self.setup.fleet.cohorts))]

  def evaluation_parts(
    self,
    cohorts: tuple[int, ...],
    state: State,
    samples: int | None,
    personal: bool,
  ) -> Iterator[EvaluationPart]:
    """Yields a cohort in parts of as many clients as a round trains at a time.

    `cohorts` has the number of this one cohort, see `evaluated_together`.

    If the clients divide the test split (`shares`), one client on each device
    answers a part of the split for all of them. Training images are gathered
    only if `personal` is true.
    """
    setup, task = self.setup, self.task
    (c,) = cohorts
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
      places, part = np.zeros(devices, int), of_cohort(setup, c, devices)
      yield self._part(c, part, state, places, ids, images, data=False)
      return
    # A part has as many clients as a round computes.
    lot = devices * (cohort.chunk or 1)
    count = -(-max(fleets.slots(fleet)[c], 1) // lot) * lot
    part = of_cohort(setup, c, min(count, len(cohort.places)))
    size = len(part.fleet.cohorts[0].ids)
    first = chunks(task, samples)
    for start in range(0, len(ids), size):
      places = np.minimum(np.arange(start, start + size), len(ids) - 1)
      mine, seen = ids[start : start + size], ids[places]
      images = Shown(task.shown[seen], first[seen])
      yield self._part(c, part, state, places, mine, images, data=personal)

  def _part(
    self,
    cohort: int,
    setup: TrainingSetup,
    state: State,
    places: np.ndarray,
    ids: np.ndarray,
    images: Shown,
    *,
    data: bool,
  ) -> EvaluationPart:
    """Makes an EvaluationPart of the clients at `places`.

    Their training images are gathered only if `data` is true.
    """
    task, count = self.task, len(places)
    on = (np.arange(count) < len(ids)) & data
    size = task.test_sets.images_of(count if data else 0)
    shards = self._data(setup.shards, (places,), (on,), size)
    half = _held(state)[cohort].take(places)
    clients = sharding.put(task.mesh, half, sharding.DIVIDED)
    mine = state._replace(clients=(clients,))
    return EvaluationPart((cohort,), setup, mine, shards, ids, images)

  def _draw(self, state: State, ahead: int) -> Any:
    """Samples the clients of round `state.round + ahead` on the device."""
    given = state.key, state.round + ahead, *self._facts
    return self._program("sample", programs.make_sample, self.setup, given)(
      *given
    )

  def _gather(self, samples: Any) -> RoundSample:
    # A padding slot has a position beyond the end.
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
    """Puts clients' data on the devices; the arguments go to `data_of`."""
    stock: Any = self.task.image, self.task.label
    how: Any = {"public": self.task.network.backbone.public}
    shared, own = data_of(*stock, *of, **how)
    shared = sharding.put(self.task.mesh, shared)
    divided = sharding.put(self.task.mesh, own, sharding.DIVIDED)
    return tuple(Shard(*shared, *each) for each in divided)


def _held(state: State) -> tuple[HostClients, ...]:
  clients: Any = state.clients
  return clients
