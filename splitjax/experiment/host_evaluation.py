"""Evaluation and personalisation of clients that lie on the host.

As many clients of a cohort at a time come to the devices as a round computes;
where all of a cohort answer alike, one of them answers for the whole split.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import fleet as fleets
from splitjax.engine import sharding
from splitjax.experiment import host_data, programs, test_images
from splitjax.experiment import task as tasks
from splitjax.experiment.compile_cache import Note, quiet, reuse
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.types import Exits, Half, Outputs, Row, Shard, State

Read = Callable[[int, np.ndarray], Half]
"""(cohort, places [n]) -> the halves there, leaves [n, ...] on the host."""


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
  size = task.test_sets.images_of(count if data else 0)
  shards = host_data.of_clients(
    task, chunk.federation.shards, (chunk.places,), (on,), size
  )
  clients = sharding.put(task.mesh, read(c, chunk.places), sharding.DIVIDED)
  return rest._replace(clients=(clients,)), shards


def _evaluations(
  task: Task,
  federation: Federation,
  rest: State,
  read: Read,
  c: int,
  personal: bool,
  samples: int | None = None,
) -> Iterator[tuple[_Chunk, State, tuple[Shard, ...], Any]]:
  """The parts of a cohort's evaluation: state, data, and what it is shown.

  The last is (rows [E, chunks, B], [E] chunks to compute). A part without ids
  is one client, on every device, for a share of the split. The data are
  complete only if `personal`; `samples` are as in `programs.evaluate_rows`.
  """
  cohort = federation.fleet.cohorts[c]
  if not personal and test_images.shares(task, federation, c, None):
    devices = federation.fleet.devices
    own = _one_cohort(federation, c, devices)
    chunk = _Chunk(own, (), np.zeros(devices, int))
    split = np.arange(len(task.pool))
    split = np.resize(split, (devices, _each(task, federation)))
    rows = tasks.chunked(split, task.config.eval.batch_size)
    first = np.full(devices, rows.shape[1], np.int32)
    given = _given(task, rest, read, c, chunk, data=False)
    yield chunk, *given, sharding.put(task.mesh, (rows, first))
    return
  first = test_images.chunks(task, samples)
  for chunk in _chunks(federation, c):
    given = _given(task, rest, read, c, chunk, data=personal)
    numbers = np.array(cohort.ids)[chunk.places]
    seen = task.shown[numbers], first[numbers]
    yield chunk, *given, sharding.put(task.mesh, seen)


def _each(task: Task, federation: Federation) -> int:
  """Samples of the split for each device."""
  return -(-len(task.pool) // federation.fleet.devices)


def _personaliser(
  task: Task, chunk: _Chunk, c: int, given: tuple, note: Note = quiet
) -> Any:
  """The compiled personalisation of a part of a cohort."""
  make, name = programs.make_personalised, "personalisation on host"
  return reuse(make, name, task, chunk.federation, given, note, facts=c)


def _evaluation(
  task: Task,
  chunk: _Chunk,
  c: int,
  state: State,
  shards: tuple[Shard, ...],
  seen: Any,
  note: Note = quiet,
) -> tuple[Any, tuple]:
  """The compiled evaluation of a part of a cohort, and its arguments."""
  numbers = tuple(shard.number for shard in shards)
  given = state.clients, state.server, numbers, task.pool, *seen
  program = reuse(
    programs.make_evaluator,
    "evaluation on host",
    task,
    chunk.federation,
    given,
    note,
    facts=(c, task.config.eval.probabilities),
    by_place=True,
    probabilities=task.config.eval.probabilities,
  )
  return program, given


def compile_evaluation(
  task: Task, federation: Federation, rest: State, read: Read, note: Note
) -> None:
  """Compiles what `evaluate_rows` needs; `note` is as in `reuse`."""
  for row in federation.method.traits.rows:
    for c in range(len(federation.fleet.cohorts)):
      parts = _evaluations(task, federation, rest, read, c, row.personal)
      chunk, state, shards, seen = next(parts)
      if row.personal:
        _personaliser(task, chunk, c, (state, shards), note)
      _evaluation(task, chunk, c, state, shards, seen, note)


def evaluate_rows(
  task: Task,
  federation: Federation,
  rest: State,
  read: Read,
  rows: tuple[Row, ...],
  samples: int | None = None,
) -> list[Outputs]:
  """Evaluates all clients: the outputs of result rows, on the host.

  `rest` is the state without clients, which `read` gives; `samples` are as in
  `programs.evaluate_rows`.
  """
  return [
    Outputs(_exits(task, federation, rest, read, row.personal, samples))
    for row in rows
  ]


def _exits(
  task: Task,
  federation: Federation,
  rest: State,
  read: Read,
  personal: bool,
  samples: int | None,
) -> Exits:
  """The exits [N, M] of a result row for the test samples."""
  # Padding reads sample 0.
  rows = np.maximum(test_images.tested(task, samples).rows, 0)
  clients, size = rows.shape
  real = jax.numpy.result_type(float)
  kinds = real, real, np.int32, np.int32
  exits = Exits(*(np.zeros((clients, size), kind) for kind in kinds))
  if task.config.eval.probabilities:
    both = np.zeros((clients, size, 2, task.data.classes), real)
    exits = exits._replace(probabilities=both)
  for c, cohort in enumerate(federation.fleet.cohorts):
    parts = _evaluations(task, federation, rest, read, c, personal, samples)
    for chunk, state, shards, seen in parts:
      if personal:
        tune = _personaliser(task, chunk, c, (state, shards))
        state = state._replace(clients=tune(state, shards))
      program, given = _evaluation(task, chunk, c, state, shards, seen)
      found = jax.device_get(program(*given))
      ids = list(chunk.ids or cohort.ids)
      leaves = jax.tree.leaves(exits), jax.tree.leaves(found)
      for leaf, new in zip(*leaves, strict=True):
        if chunk.ids:
          leaf[ids] = new[: len(ids), :size]
        else:
          split = new[:, : _each(task, federation)]
          leaf[ids] = split.reshape(-1, *split.shape[2:])[rows[ids]]
      if not chunk.ids:
        test_images.forget_exit(exits, ids, federation.method.traits.answers)
  return exits


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
      program = _personaliser(task, chunk, c, given)
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
