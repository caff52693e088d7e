"""The compiled programs of one method: begin, round, personalise, evaluate.

Programs of a process are kept and shared by methods, seeds and cells. One is
known by its function, the tree of its arguments and their shapes. The tree of a
method has its static fields and none of its numbers, so methods that differ in
a learning rate or a loss weight share a program.
"""

import dataclasses
import functools
import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, SingleDeviceSharding

from splitjax import rules, target
from splitjax.engine import devices
from splitjax.engine.loops import one_server
from splitjax.engine.round import run_round, start
from splitjax.evaluation import exits
from splitjax.evaluation.exits import Outputs
from splitjax.evaluation.metrics import take_probabilities
from splitjax.evaluation.subject import Subject
from splitjax.experiment.console import say
from splitjax.experiment.network import abstract_state
from splitjax.experiment.shown import Shown, show
from splitjax.experiment.task import fresh_network, make_subject, run_key
from splitjax.fleet.fleets import Layout, with_padding
from splitjax.fleet.orders import IN_TURN
from splitjax.methods.method import Method
from splitjax.types import Metrics, Net, Row, Shard, State, Tree

ROOM = 0.9
"""The fraction of a device's memory that a program may take."""

_LIMIT = 64
"""The largest number of programs kept; the least recently used is dropped."""

kept_programs: OrderedDict[Any, Any] = OrderedDict()
"""The compiled programs, the least recently used first."""


def compile_once(
  function: Any,
  *arguments: Tree,
  note: Callable[[], None] = lambda: None,
  **static: Any,
) -> Any:
  """Compiles a jitted function for these arguments, or finds it compiled.

  `arguments` are those of later calls, or their shapes and shardings. `static`
  are its static_argnames; later calls are without them. `note` is called before
  anything is compiled.
  """
  leaves, structure = jax.tree.flatten(arguments)
  key = (
    function,
    structure,
    tuple(map(_form, leaves)),
    tuple(sorted(static.items())),
    rules.forget_replaced(),
    target.aimed_at.value,
    jax.config.read("jax_disable_most_optimizations"),
  )
  if key not in kept_programs:
    note()
    # Repeated searches of a trace's objects took a sixth of the tracing time.
    collecting = gc.isenabled()
    gc.disable()
    try:
      lowered = function.lower(*arguments, **static)
    finally:
      if collecting:
        gc.enable()
    kept_programs[key] = lowered.compile(devices.quick_options())
  kept_programs.move_to_end(key)
  if len(kept_programs) > _LIMIT:
    kept_programs.popitem(last=False)
  return kept_programs[key]


def _form(leaf: Any) -> Any:
  """What a program depends on in an argument: its type and sharding."""
  kind = jax.typeof(leaf)
  return kind.shape, kind.dtype, kind.weak_type, getattr(leaf, "sharding", None)


class Programs:
  """The programs of one method, compiled on first use."""

  def __init__(self, subject: Subject):
    self.subject = subject
    self.task = subject.task
    # Arrays: processes compare what they put, and floats are in float64.
    self.method = self._put(jax.tree.map(jnp.asarray, subject.method))
    self._programs = dict[str, Any]()
    self._announce = functools.cache(lambda: say(f"{subject.label}: compiling"))

  def _put(self, tree: Tree) -> Tree:
    return devices.put_on_devices(self.task.mesh, tree)

  # States.

  def begin(self, full: Net | None = None) -> State:
    """Makes the state before the first round, in new buffers.

    `full` is the network that all methods start from; None: the task's.
    """
    full = fresh_network(self.task) if full is None else full
    seed = np.uint32(self.task.config.seed)
    arguments = self.method, *self._put((seed, jax.device_get(full)))
    layout = self.subject.fleet.layout
    program = compile_once(
      _start, *arguments, layout=layout, mesh=self.task.mesh
    )
    return program(*arguments)

  def place(self, state: State) -> State:
    """Adds to a saved state the padding clients that these programs need.

    The saved cohorts must begin with their real clients, in order.
    """
    grow = jax.jit(
      functools.partial(with_padding, self.subject.fleet),
      out_shardings=devices.client_sharding(self.task.mesh, devices.DIVIDED),
    )
    clients = grow(self._put(state.clients))
    return self._put(state._replace(clients=()))._replace(clients=clients)

  def shapes(self, widths: Sequence[int]) -> Tree:
    """Returns shapes, dtypes and shardings of a checkpoint's state.

    `widths` are the numbers of clients in its cohorts, padding included. If
    they differ from those of these programs, every device reads all clients.
    """
    mesh = self.task.mesh
    state = abstract_state(self.subject.method, self.task.network, widths)
    if mesh is None:
      return on_first_device(state)
    specs = devices.state_specs(len(widths))
    if list(widths) != self.subject.widths:
      copied: Any = (devices.COPIED,) * len(widths)
      specs = specs._replace(clients=copied)
    shardings = devices.client_sharding(mesh, specs)
    return jax.tree.map(lambda x, y: _shapes(y, x), shardings, state)

  @functools.cached_property
  def like(self) -> Tree:
    """Shapes, dtypes and shardings of the state."""
    return self.shapes(self.subject.widths)

  # Rounds.

  def round(
    self, state: State, shards: tuple[Shard, ...] | None = None
  ) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The given state is donated. `shards` may have another order of service than
    those of the subject.
    """
    shards = shards or self.subject.shards
    state, metrics = self._round(self.method, state, shards, self.task.faults)
    return state, jax.device_get(metrics)  # waits for the round

  @property
  def _round(self) -> Any:
    arguments = self.method, self.like, self.subject.shards, self.task.faults
    return self._program("round", run_round, arguments)

  def personalise(self, state: State) -> tuple[Net, ...]:
    """Returns personalised networks by cohort; () if no result row has any."""
    if not any(row.personal for row in self.subject.method.rows):
      return ()
    return self._personalise(self.method, state, self.subject.shards)

  @property
  def _personalise(self) -> Any:
    arguments = self.method, self.like, self.subject.shards
    return self._program("personalise", exits.personalise_clients, arguments)

  # Evaluations.

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
      rows = self.subject.method.rows
    return [self._outputs(state, row, samples) for row in rows]

  def _outputs(self, state: State, row: Row, samples: int | None) -> Outputs:
    # Personalised copies of the networks live no longer than this row.
    nets = self.personalise(state) if row.personal else None
    images = show(self.subject, samples, personal=row.personal)
    test, *held_out = (
      program(*arguments)
      for program, arguments in self._evaluations(state, nets, images)
    )
    outputs = Outputs(images.of(test, self.subject.method.answers))
    if not held_out:
      return outputs
    # Held-out samples come first, then their proxies; the rest fills a chunk.
    both = jax.device_get(held_out[0])
    assert self.task.holdout is not None
    count = self.task.holdout.rows.shape[1]
    return outputs._replace(
      holdout=jax.tree.map(lambda leaf: leaf[:, :count], both),
      proxy=jax.tree.map(lambda leaf: leaf[:, count : 2 * count], both),
    )

  def _evaluations(
    self, state: State, personal: tuple[Net, ...] | None, images: Shown
  ) -> list[tuple[Any, tuple]]:
    """Returns the compiled evaluations of all clients, and their arguments.

    The first is of the test samples shown to the clients. If thresholds are
    chosen on held-out samples, there is a second of these and their proxies.
    """
    task = self.task
    name = "evaluate" if personal is None else "evaluate+FT"
    numbers = tuple(shard.number for shard in self.subject.shards)
    clients = self.method, state.clients, state.server, personal, numbers
    arguments = *clients, task.pool, *self._put((images.rows, images.chunks))
    probabilities = take_probabilities(task.config.eval.metrics)
    test = self._program(
      name, exits.evaluate_clients, arguments, probabilities=probabilities
    )
    if task.calibration is None or len(self.subject.method.answers) < 2:
      return [(test, arguments)]
    calibration = task.calibration
    held_out = *clients, calibration.image, calibration.rows
    calibrate = self._program(
      f"{name} held out", exits.evaluate_clients, held_out
    )
    return [(test, arguments), (calibrate, held_out)]

  # Compiling.

  def compile(self) -> "Programs":
    """Compiles what a run needs; returns these programs."""
    _ = self._round
    for row in self.subject.method.rows:
      nets = self._personalise.out_info if row.personal else None
      images = show(self.subject, None, personal=row.personal)
      self._evaluations(self.like, nets, images)
    return self

  def compiled(self) -> list[Any]:
    """Returns the programs compiled so far."""
    return list(self._programs.values())

  def _program(
    self, name: str, function: Any, arguments: tuple, **static: Any
  ) -> Any:
    if name not in self._programs:
      self._programs[name] = compile_once(
        function,
        *arguments,
        note=self._announce,
        layout=self.subject.fleet.layout,
        plans=self.subject.plans,
        mesh=self.task.mesh,
        **static,
      )
    return self._programs[name]


def that_fit(subject: Subject) -> Programs:
  """Makes and compiles a method's programs, with chunks that fit into memory.

  With `system.clients_per_chunk=auto`, the number of clients side by side is
  halved as long as a compiled program needs more memory than the device has.
  """
  task = subject.task
  system = task.config.system
  while True:
    programs = Programs(subject)
    most = clients_side_by_side(subject)
    fixed = system.clients_per_chunk != "auto" or one_server(subject.method)
    if fixed or most == 1:
      return programs.compile()
    if _fits(programs):
      return programs
    say(
      f"{subject.label}: compiled for {most} clients side by side, a program"
      f" needs more than the {target.current().capacity / 1e9:.3g} GB of a"
      f" device; takes {most // 2}",
      to_stderr=True,
    )
    stated = dataclasses.replace(system, clients_per_chunk=most // 2)
    config = dataclasses.replace(task.config, system=stated)
    subject = make_subject(task._replace(config=config), subject.key)
    subject = subject._replace(task=task)


def _fits(programs: Programs) -> bool:
  try:
    programs.compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    return False
  largest = max(map(size_of, programs.compiled()))
  return largest <= ROOM * target.current().capacity


def clients_side_by_side(subject: Subject) -> int:
  """Counts the most clients that a device trains at a time."""
  if subject.method.topology in IN_TURN:
    return 1
  clients = subject.fleet.layout
  return max(
    cohort.chunk or -(-clients.computed(cohort) // clients.devices)
    for cohort in clients.cohorts
  )


def size_of(program: Any) -> int:
  """Counts the bytes of a program on a device; 0 if its compiler does not."""
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
  method: Method, seed: Array, full: Net, *, layout: Layout, mesh: Mesh | None
) -> State:
  """Makes the state before the first round."""
  state = start(method, layout, full, run_key(seed))
  return devices.laid_out(state, mesh)


# Shapes.


def on_first_device(tree: Tree) -> Tree:
  """Returns ShapeDtypeStructs of a tree on this process's first device."""
  return _shapes(tree, SingleDeviceSharding(target.current().local[0]))


def _shapes(tree: Tree, sharding: Any) -> Tree:
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
  )
