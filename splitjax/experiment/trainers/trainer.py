"""Training and evaluation of one method: its programs, and what runs them.

`that_fit` makes a trainer whose programs, once compiled, fit into a device.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax import target
from splitjax.engine import devices
from splitjax.engine.layout import Layout
from splitjax.engine.loops import one_server
from splitjax.engine.round import run_round, start
from splitjax.evaluation.exits import (
  Outputs,
  evaluate_clients,
  personalise_clients,
)
from splitjax.evaluation.metrics import take_probabilities
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import training_setup
from splitjax.experiment.setup.method_factory import abstract_state
from splitjax.experiment.setup.tasks import run_key
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.trainers.evaluation_images import (
  Shown,
  show,
  split_proxies,
  tested,
)
from splitjax.experiment.trainers.programs import (
  Note,
  compile_once,
  quiet,
)
from splitjax.fleet.fleets import with_padding
from splitjax.methods.method import Method
from splitjax.types import Metrics, Net, Row, State, Tree

ROOM = 0.9
"""The fraction of a device's memory that a program may take."""


class Trainer:
  """The trainer of one method.

  Attributes:
    setup: the method in its task.
    task: the task of the setup.
    note: see `programs.Note`.
    method: the method, with its numbers on the devices.
    programs: the programs compiled so far, by name.
  """

  def __init__(self, setup: TrainingSetup, note: Note = quiet):
    """Compiles nothing: a program is compiled where it is first needed."""
    self.setup, self.task, self.note = setup, setup.task, note
    # Arrays: processes compare what they put, and floats are in float64.
    numbers = jax.tree.map(jnp.asarray, setup.method)
    self.method = devices.put_on_devices(setup.task.mesh, numbers)
    self.programs = dict[str, Any]()

  def init(self, full: Net) -> State:
    """Makes the state before the first round, in new buffers.

    Rounds donate their state; the network `full` stays alive for the next
    method.
    """
    mesh, seed = self.task.mesh, np.uint32(self.task.config.seed)
    arguments = devices.put_on_devices(mesh, (seed, jax.device_get(full)))
    static: dict[str, Any] = {"layout": self.setup.layout, "mesh": mesh}
    program = compile_once(_start, self.method, *arguments, **static)
    return program(self.method, *arguments)

  def place(self, state: State) -> State:
    """Adds to a saved state the padding clients that this trainer needs.

    The saved cohorts must begin with their real clients, in order.
    """
    clients = self.place_clients(state.clients)
    state = devices.put_on_devices(self.task.mesh, state._replace(clients=()))
    return state._replace(clients=clients)

  def place_clients(self, cohorts: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """Adds padding to saved cohorts [N, ...] of clients or their networks."""
    mesh, fleet = self.task.mesh, self.setup.fleet
    grow = jax.jit(
      functools.partial(with_padding, fleet),
      out_shardings=devices.client_sharding(mesh, devices.DIVIDED),
    )
    return grow(devices.put_on_devices(mesh, cohorts))

  def shapes(self, places: Sequence[int]) -> Tree:
    """Returns shapes, dtypes and shardings of a checkpoint's state.

    `places` are the numbers of clients in its cohorts, padding included. If
    they differ from this trainer's, every device reads all clients.
    """
    mesh = self.task.mesh
    state = abstract_state(self.setup.method, self.task.network, places)
    if mesh is None:
      return checkpoint.on_first_device(state)
    specs = devices.state_specs(len(places))
    if places != self.setup.places:
      copied: Any = (devices.COPIED,) * len(places)
      specs = specs._replace(clients=copied)
    placed = devices.client_sharding(mesh, specs)
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
    sizes = map(size_of, self.programs.values())
    return max(sizes) > ROOM * target.current().capacity

  def round(self, state: State) -> Any:
    """Returns the compiled round: (method, state, shards, faults) -> both.

    It returns the next state and Metrics, and donates the state.
    """
    return self._program("round", run_round, self._of_round(state))

  def step(self, state: State) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The given state is donated.
    """
    state, metrics = self.round(state)(*self._of_round(state))
    return state, jax.device_get(metrics)  # waits for the round

  def compile_evaluation(self, state: State) -> None:
    """Compiles the programs that `evaluate` needs for all result rows."""
    for row in self.setup.method.rows:
      personal = None
      if row.personal:
        personal = self._personaliser(state).out_info
      images = show(self.setup, None, personal=row.personal)
      self._evaluations(state, personal, images)

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
      rows = self.setup.method.rows
    return [self._outputs(state, row.personal, samples) for row in rows]

  def personalise(self, state: State) -> tuple[Net, ...]:
    """Returns personalised networks by cohort; () if no result row has any."""
    if not any(row.personal for row in self.setup.method.rows):
      return ()
    return self._personaliser(state)(self.method, state, self.setup.shards)

  def _of_round(self, state: State) -> tuple[Any, ...]:
    """The arguments of a round."""
    return self.method, state, self.setup.shards, self.task.faults

  def _outputs(
    self, state: State, personal: bool, samples: int | None
  ) -> Outputs:
    """Evaluates a state for one result row; keeps no personalised copies."""
    nets = self.personalise(state) if personal else None
    images = show(self.setup, samples, personal=personal)
    evaluations = self._evaluations(state, nets, images)
    test, *aside = (program(*given) for program, given in evaluations)
    size = tested(self.task, samples).rows.shape[1]
    row = images.of(test, size, self.setup.method.answers)
    return Outputs(row, *(split_proxies(self.task, *aside) if aside else ()))

  def _evaluations(
    self, state: State, personal: tuple[Net, ...] | None, images: Shown
  ) -> list[tuple[Any, tuple]]:
    """Returns the compiled evaluations of all clients, and their arguments.

    The first evaluation returns the Exits of the test samples shown to the
    clients. If thresholds are chosen on held-out samples, there is a second
    evaluation, of held-out samples and their proxies.
    """
    task, name = self.task, "evaluation" if personal is None else "personal"
    numbers = tuple(shard.number for shard in self.setup.shards)
    clients = self.method, state.clients, state.server, personal, numbers
    seen = devices.put_on_devices(task.mesh, (images.rows, images.first))
    arguments = *clients, task.pool, *seen
    test = self._program(
      name,
      evaluate_clients,
      arguments,
      probabilities=take_probabilities(task.config.eval.metrics),
    )
    if task.aside is None or len(self.setup.method.answers) < 2:
      return [(test, arguments)]
    held = *clients, *task.aside
    aside = self._program(f"{name} on samples held out", evaluate_clients, held)
    return [(test, arguments), (aside, held)]

  def _personaliser(self, state: State) -> Any:
    """Compiles the personalisation of all clients."""
    arguments = self.method, state, self.setup.shards
    return self._program("personalisation", personalise_clients, arguments)

  def _program(
    self, name: str, function: Any, arguments: tuple, **static: Any
  ) -> Any:
    """Returns the program called `name`, which is compiled once."""
    if name not in self.programs:
      self.programs[name] = compile_once(
        function,
        *arguments,
        note=self.note,
        layout=self.setup.layout,
        plans=self.setup.plans,
        mesh=self.task.mesh,
        **static,
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
  if not chosen or one_server(setup.method) or most == 1:
    return None
  system = dataclasses.replace(config.system, clients_per_chunk=most // 2)
  stated = dataclasses.replace(config, system=system)
  fewer = setup.task._replace(config=stated)
  made = training_setup.make_setup(fewer, setup.key)
  return made._replace(task=setup.task)


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


@functools.partial(jax.jit, static_argnames=("layout", "mesh"))
def _start(
  method: Method,
  seed: Array,
  full: Net,
  *,
  layout: Layout,
  mesh: Mesh | None,
) -> State:
  """Makes the state before the first round."""
  state = start(method, layout, full, run_key(seed))
  return devices.laid_out(state, mesh)
