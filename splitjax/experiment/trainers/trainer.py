"""Training and evaluation of one method: its state, rounds and evaluations.

`Trainer` keeps the clients on the devices, and `host_trainer.HostTrainer` keeps
them on the host; `host_trainer.make_trainer` chooses a trainer.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.engine import distributed, memory, sharding
from splitjax.engine.base import Metrics
from splitjax.engine.fleets import with_padding
from splitjax.evaluation import ood_proxies
from splitjax.experiment.setup.method_factory import abstract_state
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers import programs
from splitjax.experiment.trainers.compile_cache import (
  Note,
  bytes_of,
  compile_program,
  quiet,
)
from splitjax.experiment.trainers.evaluation_images import (
  Shown,
  show,
  split_proxies,
  tested,
)
from splitjax.types import Exits, Outputs, Row, Segment, Shard, State, Tree


class EvaluationPart(NamedTuple):
  """The clients that one call of a program evaluates or personalises.

  Attributes:
    cohorts: the numbers of the clients' cohorts.
    setup: a setup of these clients alone.
    state: their state, on the devices.
    shards: their data, on the devices.
    ids: [n] int, numbers of the clients whose outputs are returned.
    images: the images that they see.
  """

  cohorts: tuple[int, ...]
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
    note: see `compile_cache.Note`.
    by_place: if true, row n of a part's images is for the part's n-th client;
      if false, row n is for client number n.
  """

  by_place = False

  def __init__(self, setup: TrainingSetup, note: Note = quiet):
    """Compiles nothing: a program is compiled where it is first needed."""
    self.setup, self.task, self.note = setup, setup.task, note
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
    """Makes the jitted function (seed, network) -> the initial state."""

    def init(seed, full):
      key = jax.random.fold_in(jax.random.key(seed), 1)
      return setup.method.init(key, setup.fleet, full)

    return jit(init, out_shardings=_state_sharding(setup))

  def place(self, state: State) -> State:
    """Adds to a saved state the padding clients that this trainer needs.

    The saved cohorts must begin with their real clients, in order.
    """
    fleet, placed = self.setup.fleet, _state_sharding(self.setup)
    grow = jax.jit(
      lambda state: with_padding(state, fleet), out_shardings=placed
    )
    return grow(sharding.put(self.task.mesh, state))

  def hold(self, state: State) -> State:
    """Turns a state read from a checkpoint into this trainer's form."""
    return state

  def whole(self, state: State) -> State:
    """Returns the state to save, with arrays [N, ...] of all clients."""
    return state

  def shapes(self, places: Sequence[int]) -> Tree:
    """Returns shapes, dtypes and shardings of a checkpoint's state.

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
    """Makes the jitted round; its arguments are those that `inputs` returns."""
    return programs.make_round(setup, **options)

  def compile(self, state: State) -> None:
    """Compiles round and evaluation."""
    self.round(self.inputs(state))
    self.compile_evaluation(state)

  def too_large(self) -> bool:
    """Compiles all programs from shapes; tells if one takes too much memory."""
    try:
      self.compile(self.shapes(self.setup.places))
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error):
        raise
      return distributed.any_process(True)
    sizes = [sum(bytes_of(x.args[0]).values()) for x in self._programs.values()]
    return distributed.any_process(memory.too_large(max(sizes)))

  def round(self, given: tuple) -> Any:
    """Returns the compiled round: inputs -> (state, Metrics).

    The round donates the state among its inputs.
    """
    return self._program("round", self.make_round, self.setup, given)

  def use(self, program: Any) -> None:
    """Uses `program`, a round of `make_round` that was compiled elsewhere."""
    self._programs["round", None] = program

  def step(self, state: State) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The given state is donated.
    """
    given = self.inputs(state)
    state, metrics = self.round(given)(*given)
    return state, jax.device_get(metrics)  # waits for the round

  def compile_evaluation(self, state: State) -> None:
    """Compiles the programs that `evaluate` needs for all result rows."""
    for row in self.setup.method.traits.rows:
      for cohorts in self.evaluated_together():
        part = next(self.evaluation_parts(cohorts, state, None, row.personal))
        if row.personal:
          self._personaliser(part)
        self._evaluations(part)

  def evaluate(
    self,
    state: State,
    rows: tuple[Row, ...] | None = None,
    samples: int | None = None,
  ) -> list[Outputs]:
    """Evaluates result rows (None: all); returns their outputs, on the host.

    `samples` is the number of test samples of each client; None: all.
    """
    if rows is None:
      rows = self.setup.method.traits.rows
    return [self._outputs(state, row.personal, samples) for row in rows]

  def personalise(self, state: State) -> tuple:
    """Returns personalised clients by cohort; () if no result row needs any."""
    if not any(row.personal for row in self.setup.method.traits.rows):
      return ()
    (cohorts,) = self.evaluated_together()
    (part,) = self.evaluation_parts(cohorts, state, None, personal=True)
    return self.tuned(part)

  def evaluated_together(self) -> list[tuple[int, ...]]:
    """Returns the numbers of the cohorts that each evaluation program takes."""
    return [tuple(range(len(self.setup.fleet.cohorts)))]

  def evaluation_parts(
    self,
    cohorts: tuple[int, ...],
    state: State,
    samples: int | None,
    personal: bool,
  ) -> Iterator[EvaluationPart]:
    """Yields the clients of `cohorts`, as many at a time as a program takes."""
    images = show(self.setup, samples, personal=personal)
    every = np.arange(self.task.config.num_clients)
    mine = self.setup, state, self.setup.shards
    yield EvaluationPart(cohorts, *mine, every, images)

  def tuned(self, part: EvaluationPart) -> tuple:
    """Returns personalised copies of a part's clients."""
    return self._personaliser(part)(part.state, part.shards)

  def _outputs(
    self, state: State, personal: bool, samples: int | None
  ) -> Outputs:
    """Evaluates a state for one result row; keeps no personalised copies."""
    answers = self.setup.method.traits.answers
    size = tested(self.task, samples).rows.shape[1]
    ids, found, aside = [], [], list[Exits]()
    for cohorts in self.evaluated_together():
      for part in self.evaluation_parts(cohorts, state, samples, personal):
        if personal:
          copies = self.tuned(part)
          part = part._replace(state=part.state._replace(clients=copies))
        each = self._evaluations(part)
        test, *aside = (program(*given) for program, given in each)
        mine = part.images.of(test, size, answers)
        real = slice(len(part.ids))
        found.append(jax.tree.map(lambda x, real=real: x[real], mine))
        ids.append(part.ids)
    order = np.argsort(np.concatenate(ids), kind="stable")
    row = jax.tree.map(lambda *x: np.concatenate(x)[order], *found)
    return Outputs(row, *(split_proxies(self.task, *aside) if aside else ()))

  def _evaluations(self, part: EvaluationPart) -> list[tuple[Any, tuple]]:
    """Returns compiled evaluations of a part's clients, and their arguments.

    The first evaluation returns the Exits of the test samples shown to the
    clients. If thresholds are chosen on held-out samples, there is a second
    evaluation, of held-out samples and their proxies.
    """
    task, state, images = self.task, part.state, part.images
    numbers = tuple(shard.number for shard in part.shards)
    mine = state.clients, state.server, numbers

    def program(name, *seen, **options):
      given, make = (*mine, *seen), programs.make_evaluator
      key = part.cohorts, images.rows.shape
      found = self._program(name, make, part.setup, given, key, **options)
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

  def _personaliser(self, part: EvaluationPart) -> Any:
    """Compiles a function (state, shards) -> personalised clients by cohort."""
    given, make = (part.state, part.shards), programs.make_personalised
    name, key = "personalisation", part.cohorts
    return self._program(name, make, part.setup, given, key)

  def _program(
    self,
    name: str,
    make: Callable,
    setup: TrainingSetup,
    given: tuple,
    key: Hashable = None,
    **options: Any,
  ) -> Any:
    """Returns a program, compiled once per `name` and `key`."""
    if (name, key) not in self._programs:
      self._programs[name, key] = compile_program(
        make, name, setup, given, self.note, **options
      )
    return self._programs[name, key]


def _state_sharding(setup: TrainingSetup) -> Any:
  specs = sharding.state_specs(len(setup.fleet.cohorts))
  return sharding.sharding(setup.task.mesh, specs)
