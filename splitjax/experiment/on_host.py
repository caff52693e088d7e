"""Rounds and evaluations of clients whose halves and data lie on the host.

The sample of a round is drawn on the device, by the same keys as where all
clients lie there. The host gathers the sampled clients' halves and images, and
the compiled round runs on these alone; then the halves are written back. While
a round runs, the images of the next are gathered. Evaluation and
personalisation take as many clients at a time as a round does.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
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
from splitjax.evaluation import evaluate
from splitjax.experiment import checks, programs
from splitjax.experiment import task as tasks
from splitjax.experiment.compiled import Note, quiet, reuse
from splitjax.experiment.federation import Federation
from splitjax.experiment.task import Task
from splitjax.types import (
  Exits,
  Half,
  Outputs,
  Segment,
  Shard,
  State,
  UserError,
)

Read = Callable[[int, np.ndarray], Half]
"""(cohort, places [n]) -> the halves there, leaves [n, ...] on the host."""


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
  """A state with the padding clients of this run, as `federations` has it."""
  clients = tuple(
    trees.take(half, np.minimum(np.arange(len(c.places)), len(c.ids) - 1))
    for half, c in zip(state.clients, federation.fleet.cohorts, strict=True)
  )
  return state._replace(clients=clients)


class HostRun:
  """A method in training, its clients on the host."""

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
    self._step: Any = None

  def compile(self, note: Note = quiet) -> None:
    """Compiles the round, or takes an earlier program; `reuse` has the note."""
    given = self.inputs()
    task, federation, name = self._task, self._federation, "round on host"
    make = functools.partial(self.make_round, faults=task.config.faults)
    self._step = reuse(make, name, task, federation, given, note)

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
    state, metrics = self._step(*given)
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

  def evaluate(self) -> list[Outputs]:
    """The outputs of each result row, as `programs.evaluate_rows`."""

    def read(c, places):
      return self._cohorts[c].take(places)

    return evaluate_rows(self._task, self._federation, self._rest, read)

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
    size = checks.images_of(self._task.test_sets, count)
    return Drawn(places, on, _part(self._task, shards, places, on, size))


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


def _part(
  task: Task,
  shards: Sequence[Shard],
  places: Sequence[np.ndarray],
  on: Sequence[np.ndarray],
  size: int,
) -> tuple[Shard, ...]:
  """The data of some clients of each cohort, on the devices.

  Args:
    task: has the images and labels on the host.
    shards: of all clients, on the host.
    places: [S] int in each cohort.
    on: [S] bool, whose images are needed; others get rows of image 0.
    size: number of images that there is room for; their shape is static.
  """
  # Image 0 stands first: padding reads it, as in the whole split.
  wanted, own, used = [np.zeros(1, int)], [], 1
  for shard, at, active in zip(shards, places, on, strict=True):
    mine = Shard(*shard[:2], *trees.take(tuple(shard[2:]), at))
    for name in ("rows", "held"):
      table = getattr(mine, name)
      if isinstance(table, tuple):
        continue
      real = (table >= 0) & active[:, None]
      local = np.minimum(table, 0)
      local[real] = np.arange(used, used + real.sum())
      wanted.append(table[real])
      used += int(real.sum())
      mine = mine._replace(**{name: local})
    own.append(tuple(mine[2:]))
  rows = np.concatenate(wanted)
  image = np.zeros((size, *task.image.shape[1:]), np.uint8)
  label = np.zeros(size, np.int32)
  image[: len(rows)], label[: len(rows)] = task.image[rows], task.label[rows]
  shared = sharding.put(task.mesh, (image, label))
  divided = sharding.put(task.mesh, tuple(own), sharding.DIVIDED)
  return tuple(Shard(*shared, *each) for each in divided)


class _Chunk(NamedTuple):
  """Some clients of one cohort.

  Attributes:
    federation: of so many clients of this cohort alone.
    ids: numbers of the real ones among them, at its beginning.
    places: [E] int.
  """

  federation: Federation
  ids: tuple[int, ...]
  places: np.ndarray


def _chunks(federation: Federation, c: int) -> Iterator[_Chunk]:
  """A cohort in parts of as many clients as a round computes of it."""
  fleet, cohort = federation.fleet, federation.fleet.cohorts[c]
  lot = fleet.devices * (cohort.chunk or 1)
  count = -(-max(fleets.slots(fleet)[c], 1) // lot) * lot
  of_part = _one_cohort(federation, c, min(count, len(cohort.places)))
  size = len(of_part.fleet.cohorts[0].ids)
  for start in range(0, len(cohort.ids), size):
    places = np.minimum(np.arange(start, start + size), len(cohort.ids) - 1)
    yield _Chunk(of_part, cohort.ids[start : start + size], places)


def _one_cohort(federation: Federation, c: int, count: int) -> Federation:
  """So many clients of one cohort."""
  fleet = dataclasses.replace(
    federation.fleet,
    cohorts=(federation.fleet.cohorts[c],),
    participation="uniform",
  )
  return federation._replace(
    fleet=fleets.with_places(fleet, [count]),
    plans=(federation.plans[c],),
    shards=(federation.shards[c],),
  )


def _given(
  task: Task, rest: State, read: Read, c: int, chunk: _Chunk, *, data: bool
) -> tuple[State, tuple[Shard, ...]]:
  """State and data of some clients; their images only if `data`."""
  count = len(chunk.places)
  on = (np.arange(count) < len(chunk.ids)) & data
  size = checks.images_of(task.test_sets, count if data else 0)
  shards = _part(task, chunk.federation.shards, (chunk.places,), (on,), size)
  clients = sharding.put(task.mesh, read(c, chunk.places), sharding.DIVIDED)
  return rest._replace(clients=(clients,)), shards


def evaluate_rows(
  task: Task, federation: Federation, rest: State, read: Read
) -> list[Outputs]:
  """Evaluates all clients: the outputs of each result row, on the host.

  `rest` is the state without clients, which `read` gives.
  """
  method, shown = federation.method, np.asarray(task.shown)
  kinds = method.traits.rows
  tuned = any(row.personal for row in kinds)
  size = task.test_sets.rows.shape[1]
  real = jax.numpy.result_type(float)
  outputs = [
    [
      np.zeros((len(shown), size), kind)
      for kind in (real, real, np.int32, np.int32)
    ]
    for _ in kinds
  ]
  once = evaluate.evaluates_once(method, shown, task.pool)
  for c, cohort in enumerate(federation.fleet.cohorts):
    if once:
      whole = _evaluate_split(task, federation, rest, read, c)
      ids = list(cohort.ids)
      rows = shown[ids].reshape(len(ids), -1)[:, :size]
      for out in outputs:
        for leaf, answers in zip(out, whole, strict=True):
          leaf[ids] = answers[rows]
      continue
    for chunk in _chunks(federation, c):
      given = _given(task, rest, read, c, chunk, data=tuned)
      numbers = np.array(cohort.ids)[chunk.places]
      found = _evaluate(task, chunk.federation, c, *given, shown[numbers])
      ids = list(chunk.ids)
      for out, exits in zip(outputs, found, strict=True):
        for leaf, answers in zip(out, exits, strict=True):
          leaf[ids] = np.asarray(answers)[: len(ids), :size]
  return [Outputs(Exits(*out)) for out in outputs]


def _evaluate_split(
  task: Task, federation: Federation, rest: State, read: Read, c: int
) -> list[np.ndarray]:
  """The outputs [P] of one client of a cohort for all samples of the split."""
  devices = federation.fleet.devices
  own = _one_cohort(federation, c, devices)
  chunk = _Chunk(own, (), np.zeros(devices, int))
  rows = tasks.chunked(
    np.arange(len(task.pool))[None], task.config.eval.batch_size
  )
  given = _given(task, rest, read, c, chunk, data=False)
  shown = np.repeat(rows, devices, axis=0)
  found = _evaluate(task, own, c, *given, shown)[0]
  return [np.asarray(leaf)[0, : len(task.pool)] for leaf in found]


def _evaluate(
  task: Task,
  federation: Federation,
  c: int,
  state: State,
  shards: tuple[Shard, ...],
  shown: np.ndarray,
) -> tuple[Exits, ...]:
  """Evaluates the clients of a chunk: Exits of each row, in their order."""
  shown = sharding.put(task.mesh, shown)
  given = state, shards, task.pool, shown
  make, name = programs.make_evaluator, "evaluation on host"
  program = reuse(make, name, task, federation, given, facts=c, by_place=True)
  return program(*given)


def personalise(task: Task, federation: Federation, state: State) -> tuple:
  """Every client personalised, leaves [N, ...] on the host; () if none is."""
  if not any(row.personal for row in federation.method.traits.rows):
    return ()
  rest = state._replace(clients=())

  def read(c, places):
    return trees.take(state.clients[c], places)

  out = []
  for c, half in enumerate(state.clients):
    own = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), half)
    leaves = jax.tree.leaves(own)
    for chunk in _chunks(federation, c):
      given = _given(task, rest, read, c, chunk, data=True)
      part, name = chunk.federation, "personalise on host"
      make = programs.make_personalised
      program = reuse(make, name, task, part, given, facts=c)
      # What fills up the last chunk is its last client again.
      for leaf, new in zip(
        leaves, jax.tree.leaves(program(*given)), strict=True
      ):
        real = slice(len(chunk.ids))
        leaf[chunk.places[real]] = np.asarray(new)[real]
    for leaf in leaves:  # padding clients, which nobody reads
      leaf[len(federation.fleet.cohorts[c].ids) :] = leaf[0]
    out.append(own)
  return tuple(out)
