"""Training and evaluation of one method: its programs, and what runs them.

`that_fit` makes a trainer whose programs, once compiled, fit into a device.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from splitjax.engine import rounds, sharding
from splitjax.engine.base import Metrics
from splitjax.engine.fleets import with_padding
from splitjax.evaluation import calibration, evaluate, personalisation
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import training_setup
from splitjax.experiment.setup.method_factory import abstract_state
from splitjax.experiment.setup.tasks import run_key
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers.compile_cache import (
  Note,
  compile_program,
  quiet,
)
from splitjax.experiment.trainers.evaluation_images import (
  Shown,
  show,
  split_proxies,
  tested,
)
from splitjax.models import target
from splitjax.types import Outputs, Row, Segment, State, Tree

ROOM = 0.9
"""The fraction of a device's memory that a program may take."""


class Trainer:
  """The trainer of one method.

  Attributes:
    setup: the method in its task.
    task: the task of the setup.
    note: see `compile_cache.Note`.
    programs: the programs compiled so far, by name.
  """

  def __init__(self, setup: TrainingSetup, note: Note = quiet):
    """Compiles nothing: a program is compiled where it is first needed."""
    self.setup, self.task, self.note = setup, setup.task, note
    self.programs = dict[str, Any]()

  def init(self, full: Segment) -> State:
    """Makes the state before the first round, in new buffers.

    Rounds donate their state; the network `full` stays alive for the next
    method.
    """
    seed = np.uint32(self.task.config.seed)
    given = sharding.put_on_devices(
      self.task.mesh, (seed, jax.device_get(full))
    )
    return compile_program(_make_init, "init", self.setup, given)(*given)

  def place(self, state: State) -> State:
    """Adds to a saved state the padding clients that this trainer needs.

    The saved cohorts must begin with their real clients, in order.
    """
    fleet, placed = self.setup.fleet, _state_sharding(self.setup)
    grow = jax.jit(
      lambda state: with_padding(state, fleet), out_shardings=placed
    )
    return grow(sharding.put_on_devices(self.task.mesh, state))

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
    placed = sharding.client_sharding(mesh, specs)
    return jax.tree.map(lambda x, y: checkpoint.shapes(y, x), placed, state)

  def compile(self, state: State) -> None:
    """Compiles round and evaluation."""
    self.round(state)
    self.compile_evaluation(state)

  def too_large(self) -> bool:
    """Compiles all programs from shapes; tells if one takes too much memory."""
    try:
      self.compile(self.shapes(self.setup.places))
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error):
        raise
      return True
    sizes = [size_of(x.args[0]) for x in self.programs.values()]
    return max(sizes) > ROOM * target.current().capacity

  def round(self, state: State) -> Any:
    """Returns the compiled round: (state, shards) -> (state, Metrics).

    The round donates the state.
    """
    given = state, self.setup.shards
    return self._program("round", make_round, given)

  def step(self, state: State) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The given state is donated.
    """
    state, metrics = self.round(state)(state, self.setup.shards)
    return state, jax.device_get(metrics)  # waits for the round

  def compile_evaluation(self, state: State) -> None:
    """Compiles the programs that `evaluate` needs for all result rows."""
    for row in self.setup.method.traits.rows:
      if row.personal:
        self._personaliser(state)
      images = show(self.setup, None, personal=row.personal)
      self._evaluations(state, images)

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
    return self._personaliser(state)(state, self.setup.shards)

  def _outputs(
    self, state: State, personal: bool, samples: int | None
  ) -> Outputs:
    """Evaluates a state for one result row; keeps no personalised copies."""
    if personal:
      state = state._replace(clients=self.personalise(state))
    images = show(self.setup, samples, personal=personal)
    evaluations = self._evaluations(state, images)
    test, *aside = (program(*given) for program, given in evaluations)
    size = tested(self.task, samples).rows.shape[1]
    row = images.of(test, size, self.setup.method.traits.answers)
    return Outputs(row, *(split_proxies(self.task, *aside) if aside else ()))

  def _evaluations(
    self, state: State, images: Shown
  ) -> list[tuple[Any, tuple]]:
    """Returns the compiled evaluations of all clients, and their arguments.

    The first evaluation returns the Exits of the test samples shown to the
    clients. If thresholds are chosen on held-out samples, there is a second
    evaluation, of held-out samples and their proxies.
    """
    task, make = self.task, make_evaluator
    numbers = tuple(shard.number for shard in self.setup.shards)
    clients = state.clients, state.server, numbers
    seen = sharding.put_on_devices(task.mesh, (images.rows, images.first))
    given = *clients, task.pool, *seen
    probabilities = task.config.eval.probabilities
    test = self._program("evaluation", make, given, probabilities=probabilities)
    if task.aside is None or len(self.setup.method.traits.answers) < 2:
      return [(test, given)]
    held = *clients, task.image, task.aside
    aside = self._program(
      "evaluation on samples held out",
      make,
      held,
      gather=calibration.with_proxies,
    )
    return [(test, given), (aside, held)]

  def _personaliser(self, state: State) -> Any:
    """Compiles a function (state, shards) -> personalised clients by cohort."""
    given = state, self.setup.shards
    return self._program("personalisation", make_personalised, given)

  def _program(
    self, name: str, make: Callable, given: tuple, **options: Any
  ) -> Any:
    """Returns the program called `name`, which is compiled once."""
    if name not in self.programs:
      self.programs[name] = compile_program(
        make, name, self.setup, given, self.note, **options
      )
    return self.programs[name]


def that_fit(setup: TrainingSetup, note: Note = quiet) -> Trainer:
  """Makes a method's trainer, with chunks of clients that fit into memory.

  With `system.clients_per_chunk=auto`, the number of clients side by side is
  halved as long as a compiled program needs more memory than the device has.
  """
  while True:
    trainer, fewer = Trainer(setup, note), _with_half_as_many(setup)
    if fewer is None or not trainer.too_large():
      return trainer
    most = max(training_setup.clients_side_by_side(setup))
    say(
      f"{setup.labels[0]}: compiled for {most} clients side by side, a program"
      f" needs more than the {target.current().capacity / 1e9:.3g} GB of a"
      f" device; takes {max(training_setup.clients_side_by_side(fewer))}",
      aside=True,
    )
    setup = fewer


def _with_half_as_many(setup: TrainingSetup) -> TrainingSetup | None:
  """Makes a setup with chunks half as large as those that "auto" chose.

  Returns None if "auto" did not choose them, if each has one client, or if
  there is one server for all.
  """
  config = setup.task.config
  most = max(training_setup.clients_side_by_side(setup))
  chosen = config.system.clients_per_chunk == "auto"
  if not chosen or setup.topology.one_server or most == 1:
    return None
  system = dataclasses.replace(config.system, clients_per_chunk=most // 2)
  stated = dataclasses.replace(config, system=system)
  fewer = setup.task._replace(config=stated)
  made = training_setup.make_setup(fewer, setup.key)
  return made._replace(task=setup.task)


def _on_devices(make: Callable, setup: TrainingSetup, **options: Any) -> Any:
  fleet, mesh = setup.fleet, setup.task.mesh
  return make(setup.method, setup.plans, fleet, mesh=mesh, **options)


def make_round(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted round; `options` go to `rounds.make_round`."""
  return _on_devices(rounds.make_round, setup, **options)


def make_evaluator(setup: TrainingSetup, **options: Any) -> Any:
  """Makes a method's jitted evaluation; `options` go to `make_evaluate`."""
  return _on_devices(evaluate.make_evaluate, setup, **options)


def make_personalised(setup: TrainingSetup, **options: Any) -> Any:
  """Makes the jitted personalisation of all clients of a method."""
  return _on_devices(personalisation.make_personalised, setup, **options)


def size_of(program: Any) -> int:
  """Returns how many bytes a compiled program takes on a device.

  Returns 0 if the device's compiler does not count bytes.
  """
  counted = program.memory_analysis()
  if counted is None:
    return 0
  return (
    counted.argument_size_in_bytes
    + counted.temp_size_in_bytes
    + counted.output_size_in_bytes
    - counted.alias_size_in_bytes
    + counted.generated_code_size_in_bytes
  )


def _make_init(setup: TrainingSetup, *, jit: Callable[..., Any]) -> Any:
  """Makes the jitted function (seed, network) -> the initial state."""

  def init(seed, full):
    return setup.method.init(run_key(seed), setup.fleet, full)

  return jit(init, out_shardings=_state_sharding(setup))


def _state_sharding(setup: TrainingSetup) -> Any:
  specs = sharding.state_specs(len(setup.fleet.cohorts))
  return sharding.client_sharding(setup.task.mesh, specs)
