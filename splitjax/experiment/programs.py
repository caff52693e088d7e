"""The programs of a method: its state, round, evaluation and embeddings."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from splitjax.data.feed import standardise
from splitjax.engine import round as round_program
from splitjax.engine import sharding
from splitjax.evaluation import evaluate, ood_proxies
from splitjax.experiment.compile_cache import Note, quiet, reuse
from splitjax.experiment.task import Task
from splitjax.experiment.test_images import Shown, show, tested
from splitjax.experiment.training_setup import Federation, state_sharding
from splitjax.models import inference
from splitjax.types import Exits, Outputs, Row, Segment, State


def fresh_state(task: Task, federation: Federation, full: Segment) -> State:
  """The state before the first round, in buffers of its own.

  Rounds donate their state; the network `full` stays alive for the next method.
  """
  seed = np.uint32(task.config.seed)
  given = sharding.put(task.mesh, (seed, jax.device_get(full)))
  # A method may initialise its clients by their numbers.
  places = tuple(tuple(c.places) for c in federation.fleet.cohorts)
  # One with cuts of its own starts from the clients' devices.
  devices = federation.fleet.hardware if federation.method.cut else None
  facts = places, devices
  program = reuse(_make_init, "init", task, federation, given, facts=facts)
  return program(*given)


def _make_init(
  task: Task, federation: Federation, *, jit: Callable[..., Any]
) -> Any:
  """The jitted (seed, network) -> the state before the first round."""

  def init(seed, full):
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return federation.method.init(key, federation.fleet, full)

  placed = state_sharding(task.mesh, federation)
  return jit(init, out_shardings=placed)


def compile_round(
  task: Task, federation: Federation, state: State, note: Note = quiet
) -> Any:
  """A method's compiled round: (state, shards) -> (state, Metrics).

  The state is donated. `note` is as in `compile_cache.reuse`.
  """
  given = state, federation.shards
  return reuse(make_round, "round", task, federation, given, note)


def compile_evaluation(
  task: Task, federation: Federation, state: State, note: Note = quiet
) -> list[Any]:
  """Compiles what `evaluate_rows` needs; `note` is as in `compile_round`."""
  needed = []
  for row in federation.method.traits.rows:
    if row.personal:
      needed.append(_personaliser(task, federation, state, note))
    seen = show(task, federation, None, personal=row.personal)
    each = _evaluations(task, federation, state, seen, note)
    needed += [program for program, _ in each]
  return needed


def _evaluations(
  task: Task,
  federation: Federation,
  state: State,
  seen: Shown,
  note: Note = quiet,
) -> list[tuple[Any, tuple]]:
  """Compiled evaluations of clients, and their arguments.

  The first is of the test samples that are `seen`, its result Exits. A second,
  of held-out samples and their proxies, is there where thresholds are chosen on
  them.
  """
  numbers = tuple(shard.number for shard in federation.shards)
  mine = state.clients, state.server, numbers

  def program(name, image, *shown, **options):
    given = *mine, image, *shown
    maker = make_evaluator
    found = reuse(maker, name, task, federation, given, note, **options)
    return found, given

  rows, first = sharding.put(task.mesh, (seen.rows, seen.first))
  kept = task.config.eval.probabilities
  facts = {"facts": "with probabilities", "probabilities": True} if kept else {}
  test = program("evaluation", task.pool, rows, first, **facts)
  if task.aside is None or len(federation.method.traits.answers) < 2:
    return [test]
  gather = ood_proxies.with_proxies(task.config.eval.proxy)
  name = "evaluation on samples held out"
  return [test, program(name, task.image, task.aside, gather=gather)]


def evaluate_rows(
  task: Task,
  federation: Federation,
  state: State,
  rows: tuple[Row, ...] | None = None,
  samples: int | None = None,
) -> list[Outputs]:
  """Evaluates a state: the outputs of result rows (None: all), on the host.

  Of so many test samples of each client; None: of all.
  """
  if rows is None:
    rows = federation.method.traits.rows
  return [
    _outputs(task, federation, state, row.personal, samples) for row in rows
  ]


def _outputs(
  task: Task,
  federation: Federation,
  state: State,
  personal: bool,
  samples: int | None,
) -> Outputs:
  """The outputs of a result row; personalised copies are discarded."""
  if personal:
    copies = _personaliser(task, federation, state)(state, federation.shards)
    state = state._replace(clients=copies)
  seen = show(task, federation, samples, personal=personal)
  programs = _evaluations(task, federation, state, seen)
  test, *aside = (program(*given) for program, given in programs)
  size = tested(task, samples).rows.shape[1]
  row = seen.of(test, size, federation.method.traits.answers)
  return Outputs(row, *(_split_proxies(task, aside[0]) if aside else ()))


def _split_proxies(task: Task, both: Exits) -> list[Exits]:
  """Exits [N, H] of held-out samples and of their proxies, unpadded."""
  assert task.held is not None and task.aside is not None
  clients, chunks, size = task.aside.rows.shape
  count = task.held.rows.shape[1]

  def part(which, leaf):
    pairs = np.asarray(leaf).reshape(clients, chunks, 2, size)[:, :, which]
    return pairs.reshape(clients, -1)[:, :count]

  return [
    jax.tree.map(functools.partial(part, which), both) for which in (0, 1)
  ]


def personalise(task: Task, federation: Federation, state: State) -> tuple:
  """Every client personalised; () if the method does not."""
  if not any(row.personal for row in federation.method.traits.rows):
    return ()
  return _personaliser(task, federation, state)(state, federation.shards)


def _personaliser(
  task: Task, federation: Federation, state: State, note: Note = quiet
) -> Any:
  """The compiled (state, shards) -> per cohort the personalised clients."""
  given, name = (state, federation.shards), "personalisation"
  return reuse(make_personalised, name, task, federation, given, note)


def embed(task: Task, federation: Federation, state: State, shown) -> list:
  """The server's embeddings of the same images behind every client's prefix.

  `shown` [chunks, B] int32 are rows of the task's pool. Returns per cohort
  [N, chunks * B, D] float32.
  """
  given = state, task.pool, shown
  return reuse(_make_embed, "embed", task, federation, given)(*given)


def _on_devices(maker: Callable) -> Callable:
  """A maker of the engine or the evaluation as one of (task, federation)."""

  def make(task: Task, federation: Federation, **options: Any) -> Any:
    return maker(
      federation.method,
      federation.plans,
      federation.fleet,
      mesh=task.mesh,
      deterministic=task.config.system.deterministic,
      **options,
    )

  return make


def make_round(task: Task, federation: Federation, **options: Any) -> Any:
  """The jitted round of a method, on the devices of its task."""
  make = _on_devices(round_program.make_round)
  return make(task, federation, faults=task.config.faults, **options)


make_evaluator = _on_devices(evaluate.make_evaluate)
"""The jitted evaluation of a method, on the devices of its task."""

make_personalised = _on_devices(evaluate.make_personalised)
"""The jitted personalisation of all clients, likewise."""


def _make_embed(
  task: Task, federation: Federation, *, jit: Callable[..., Any]
) -> Any:
  """A jitted (state, pool, shown) -> per cohort embeddings [N, .., D]."""
  net = task.network.backbone

  def one(c, common, client):
    server, image, shown = common
    plan, rest = federation.plans[c], federation.method.part_two
    if rest is not None:
      server = rest(client, server)

    def chunk(rows):
      x = standardise(image[rows], plan.mean, plan.std)
      return inference.embedding(net, client.segment, server.segment, x)

    z = jax.lax.map(chunk, shown)
    return z.reshape(-1, z.shape[-1])

  def every(state, image, shown):
    common = state.server, image, shown
    return evaluate.map_clients(
      one, federation.fleet, task.mesh, common, state.clients
    )

  exact = task.config.system.deterministic
  return evaluate.compiled(every, task.mesh, sharding.COPIED, exact, jit)
