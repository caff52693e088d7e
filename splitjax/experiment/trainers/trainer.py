"""Training and evaluation of one method: its state, rounds and evaluations.

`Trainer` keeps the clients on the devices, `host_trainer.HostTrainer` on the
host; `host_trainer.make_trainer` chooses.
"""

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import trees
from splitjax.engine import sharding
from splitjax.engine.base import Metrics
from splitjax.engine.fleets import Fleet
from splitjax.evaluation import ood_proxies
from splitjax.experiment.setup.build import abstract_state
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.test_images import Shown, show, tested
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers import programs
from splitjax.experiment.trainers.compile_cache import (
  Note,
  compile_program,
  quiet,
)
from splitjax.types import Exits, Outputs, Row, Segment, Shard, State, Tree


class Part(NamedTuple):
  """The clients that one call of a program evaluates or personalises.

  Attributes:
    setup: a setup of these clients alone.
    state: their state, on the devices.
    shards: their data, on the devices.
    ids: [n] int, numbers of the clients whose outputs are returned.
    images: the images that they see.
  """

  setup: TrainingSetup
  state: State
  shards: tuple[Shard, ...]
  ids: np.ndarray
  images: Shown


class Trainer:
  """The trainer of one method; the halves of all clients lie on the devices.

  Attributes:
    setup: the method in its task.
    task: the task of the setup.
    by_place: true if `Part.images` are in the order of the clients' places
      (their positions in the cohorts).
  """

  by_place = False

  def __init__(self, setup: TrainingSetup):
    """Compiles nothing: a program is compiled where it is first needed."""
    self.setup, self.task = setup, setup.task
    self._programs = dict[Hashable, Any]()

  def init(self, full: Segment) -> State:
    """Makes the state before the first round, in new buffers.

    Rounds donate their state; the network `full` stays alive for the next
    method.
    """
    seed = np.uint32(self.task.config.seed)
    given = sharding.put(self.task.mesh, (seed, jax.device_get(full)))
    return compile_program(self.make_init, "init", self.setup, given)(*given)

  def make_init(self, setup: TrainingSetup, *, jit: Callable[..., Any]) -> Any:
    """Makes the jitted (seed, network) -> the state before the first round."""

    def init(seed, full):
      key = jax.random.fold_in(jax.random.key(seed), 1)
      return setup.method.init(key, setup.fleet, full)

    return jit(init, out_shardings=_state_sharding(setup))

  def place(self, state: State) -> State:
    """Adds to a saved state the padding clients that this trainer needs.

    Its cohorts begin with the real clients, in their order.
    """
    fleet, placed = self.setup.fleet, _state_sharding(self.setup)
    grow = jax.jit(lambda state: grown(state, fleet), out_shardings=placed)
    return grow(sharding.put(self.task.mesh, state))

  def hold(self, state: State) -> State:
    """Turns a state read from a checkpoint into this trainer's form."""
    return state

  def whole(self, state: State) -> State:
    """Returns the state in its saved form, its clients' leaves [N, ...]."""
    return state

  def shapes(self, places: Sequence[int]) -> Tree:
    """Returns the shapes of a checkpoint's state and the devices to read to.

    `places` are the numbers of clients in its cohorts, padding included. If
    they differ from this trainer's, every device reads all clients.
    """
    mesh = self.task.mesh
    state = abstract_state(self.setup.method, self.task.network, places)
    if mesh is None:
      return checkpoint.on_first_device(state)
    specs = sharding.state_specs(len(places))
    if places != self.setup.places:
      every: Any = (sharding.COPIED,) * len(places)
      specs = specs._replace(clients=every)
    target = sharding.sharding(mesh, specs)
    return jax.tree.map(lambda x, y: checkpoint.shapes(y, x), target, state)

  def inputs(self, state: State) -> tuple:
    """Returns the arguments of the next round."""
    return state, self.setup.shards

  def make_round(self, setup: TrainingSetup, **options: Any) -> Any:
    """Makes the jitted round of `inputs`, for a setup like this trainer's."""
    return programs.make_round(setup, **options)

  def compile(self, state: State, note: Note = quiet) -> None:
    """Compiles round and evaluation; `note` is that of `compile_program`."""
    self.round(self.inputs(state), note)
    self.compile_evaluation(state, note)

  def round(self, given: tuple, note: Note = quiet) -> Any:
    """Compiles the round: `inputs` (state donated) -> (state, Metrics)."""
    return self._program("round", self.make_round, self.setup, given, note)

  def use(self, program: Any) -> None:
    """Sets the round to a program compiled elsewhere, from `make_round`."""
    self._programs["round", None] = program

  def step(self, state: State) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The given state is donated.
    """
    given = self.inputs(state)
    state, metrics = self.round(given)(*given)
    return state, jax.device_get(metrics)  # waits for the round

  def compile_evaluation(self, state: State, note: Note = quiet) -> None:
    """Compiles the programs that `evaluate` needs for all result rows."""
    for row in self.setup.method.traits.rows:
      for c in self.lots():
        part = next(self.parts(c, state, None, personal=row.personal))
        if row.personal:
          self._personaliser(c, part, note)
        self._evaluations(c, part, note)

  def evaluate(
    self,
    state: State,
    rows: tuple[Row, ...] | None = None,
    samples: int | None = None,
  ) -> list[Outputs]:
    """Evaluates a state: the outputs of result rows (None: all), on the host.

    `samples` is the number of test samples of each client; None: all.
    """
    if rows is None:
      rows = self.setup.method.traits.rows
    return [self._outputs(state, row.personal, samples) for row in rows]

  def personalise(self, state: State) -> tuple:
    """Personalises every client; returns () if the method does not."""
    if not any(row.personal for row in self.setup.method.traits.rows):
      return ()
    (part,) = self.parts(0, state, None, personal=True)
    return self.tuned(0, part)

  def lots(self) -> range:
    """Returns the numbers of the lots: groups of clients with one program."""
    return range(1)

  def parts(
    self, c: int, state: State, samples: int | None, *, personal: bool
  ) -> Iterator[Part]:
    """Yields the parts of an evaluation of lot `c`."""
    images = show(self.setup, samples, personal=personal)
    every = np.arange(self.task.config.num_clients)
    yield Part(self.setup, state, self.setup.shards, every, images)

  def tuned(self, c: int, part: Part) -> tuple:
    """Returns personalised copies of a part's clients in lot `c`."""
    return self._personaliser(c, part)(part.state, part.shards)

  def _outputs(
    self, state: State, personal: bool, samples: int | None
  ) -> Outputs:
    """Evaluates a result row; personalised copies are discarded."""
    answers = self.setup.method.traits.answers
    size = tested(self.task, samples).rows.shape[1]
    ids, found, aside = [], [], list[Exits]()
    for c in self.lots():
      for part in self.parts(c, state, samples, personal=personal):
        if personal:
          copies = self.tuned(c, part)
          part = part._replace(state=part.state._replace(clients=copies))
        each = self._evaluations(c, part)
        test, *aside = (program(*given) for program, given in each)
        mine = part.images.of(test, size, answers)
        real = slice(len(part.ids))
        found.append(jax.tree.map(lambda x, real=real: x[real], mine))
        ids.append(part.ids)
    order = np.argsort(np.concatenate(ids), kind="stable")
    row = jax.tree.map(lambda *x: np.concatenate(x)[order], *found)
    return Outputs(row, *(_split_proxies(self.task, *aside) if aside else ()))

  def _evaluations(
    self, c: int, part: Part, note: Note = quiet
  ) -> list[tuple[Any, tuple]]:
    """Returns compiled evaluations of a part's clients, and their arguments.

    The first evaluates the test samples that they see; its result is Exits. If
    thresholds are chosen on held-out samples, a second evaluates these and
    their proxies.
    """
    task, state, images = self.task, part.state, part.images
    numbers = tuple(shard.number for shard in part.shards)
    mine = state.clients, state.server, numbers

    def program(name, *seen, **options):
      given, make = (*mine, *seen), programs.make_evaluator
      key = c, images.rows.shape
      found = self._program(name, make, part.setup, given, note, key, **options)
      return found, given

    seen = sharding.put(task.mesh, (images.rows, images.first))
    how = {"probabilities": task.config.eval.probabilities}
    how["by_place"] = self.by_place
    test = program("evaluation", task.pool, *seen, **how)
    if task.aside is None or len(part.setup.method.traits.answers) < 2:
      return [test]
    gather = ood_proxies.with_proxies(task.config.eval.proxy)
    name = "evaluation on samples held out"
    return [test, program(name, task.image, task.aside, gather=gather)]

  def _personaliser(self, c: int, part: Part, note: Note = quiet) -> Any:
    """Compiles (state, shards) -> per cohort the personalised clients."""
    given, make = (part.state, part.shards), programs.make_personalised
    return self._program("personalisation", make, part.setup, given, note, c)

  def _program(
    self,
    name: str,
    make: Callable,
    setup: TrainingSetup,
    given: tuple,
    note: Note = quiet,
    key: Hashable = None,
    **options: Any,
  ) -> Any:
    """Returns a program, compiled once per key and form of the arguments."""
    if (name, key) not in self._programs:
      self._programs[name, key] = compile_program(
        make, name, setup, given, note, **options
      )
    return self._programs[name, key]


def grown(state: State, fleet: Fleet) -> State:
  """Adds padding clients until a state's cohorts have a fleet's sizes."""
  clients = tuple(
    trees.take(half, np.minimum(np.arange(len(c.places)), len(c.ids) - 1))
    for half, c in zip(state.clients, fleet.cohorts, strict=True)
  )
  return state._replace(clients=clients)


def _state_sharding(setup: TrainingSetup) -> Any:
  """Returns how a State is divided among the devices."""
  specs = sharding.state_specs(len(setup.fleet.cohorts))
  return sharding.sharding(setup.task.mesh, specs)


def _split_proxies(task: Task, both: Exits) -> list[Exits]:
  """Splits exits [N, H] into held-out samples and proxies, unpadded."""
  assert task.held is not None and task.aside is not None
  clients, chunks, size = task.aside.rows.shape
  count = task.held.rows.shape[1]

  def part(which, leaf):
    pairs = np.asarray(leaf).reshape(clients, chunks, 2, size)[:, :, which]
    return pairs.reshape(clients, -1)[:, :count]

  return [
    jax.tree.map(functools.partial(part, which), both) for which in (0, 1)
  ]
