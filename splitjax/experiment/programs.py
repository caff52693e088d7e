"""The compiled programs of one method: begin, round, personalise, evaluate.

Programs of a process are kept and shared by methods, seeds and cells. One is
known by its function, the tree of its arguments and their shapes. The tree of a
method has its static fields and none of its numbers, so methods that differ in
a learning rate or a loss weight share a program.
"""

import functools
import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from splitjax import rules, target
from splitjax.engine import devices
from splitjax.engine.loops import one_server
from splitjax.engine.round import run_round, start
from splitjax.evaluation.exits import (
  Exits,
  Outputs,
  evaluate_clients,
  personalise_clients,
)
from splitjax.evaluation.metrics import any_takes_probabilities
from splitjax.evaluation.subject import Subject
from splitjax.experiment.console import say
from splitjax.experiment.network import abstract_state
from splitjax.experiment.shown import Shown, show
from splitjax.experiment.task import fresh_network, make_subject, run_key
from splitjax.fleet.fleets import Layout, with_padding
from splitjax.methods.method import Method
from splitjax.types import Metrics, Net, Row, Shard, State, Tree

ROOM = 0.9
"""The fraction of a device's memory that a program may take."""

_LIMIT = 64
"""The largest number of programs kept; the least recently used is dropped."""

kept_programs: dict[Any, Any] = {}
"""The compiled programs, the least recently used first."""


def compile_once(
  function: Any,
  *arguments: Tree,
  note: Callable[[], None] = lambda: None,
  **static: Any,
) -> Any:
  """Compiles a jitted function for arguments or their shapes, or finds it.

  The program is called with `arguments` alone: `static`, the function's
  static_argnames, is compiled in. `note` is called before anything is compiled.
  """
  registries = rules.refresh()  # clears jax's caches if an entry was replaced
  leaves, structure = jax.tree.flatten(arguments)
  forms = [(jax.typeof(x), getattr(x, "sharding", None)) for x in leaves]
  key = (
    function,
    structure,
    tuple(forms),
    tuple(static.items()),
    registries,
    target.aimed_at.value,
    jax.config.read("jax_disable_most_optimizations"),
  )
  program = kept_programs.pop(key, None)
  if program is None:
    note()
    # Garbage collection took a sixth of the tracing time.
    collecting = gc.isenabled()
    gc.disable()
    try:
      lowered = function.lower(*arguments, **static)
    finally:
      if collecting:
        gc.enable()
    program = lowered.compile(devices.quick_options())
  kept_programs[key] = program  # as the newest
  if len(kept_programs) > _LIMIT:
    del kept_programs[next(iter(kept_programs))]
  return program


class Programs:
  """The programs of one method, compiled on first use.

  In the place of a state its shapes (`like`) may be given: then programs are
  only compiled, and shapes are returned.
  """

  def __init__(self, subject: Subject):
    self.subject = subject
    self.task = subject.task
    # Arrays in jax's float: where processes put one value, jax compares theirs
    # after a broadcast, which would round a Python float to float32.
    self.method = self._put(jax.tree.map(jnp.asarray, subject.method))
    self._programs = dict[str, Any]()
    self._announce = functools.cache(lambda: say(f"{subject.label}: compiling"))

  def _put(self, tree: Tree) -> Tree:
    return devices.put_on_devices(self.task.mesh, tree)

  # States.

  @functools.cached_property
  def like(self) -> Tree:
    """Shapes, dtypes and shardings of the state."""
    mesh = self.task.mesh
    layout = self.subject.fleet.layout
    state = abstract_state(self.subject.method, self.task.network, layout)

    def placed(part: Tree, spec: Any) -> Any:
      sharding: Any = SingleDeviceSharding(target.current().local[0])
      if mesh is not None:
        sharding = NamedSharding(mesh, spec)
      return jax.tree.map(lambda x: x.update(sharding=sharding), part)

    clients = placed(state.clients, devices.DIVIDED)
    return placed(state, devices.COPIED)._replace(clients=clients)

  def begin(self) -> State:
    """Makes the state before the first round, in new buffers."""
    full = jax.device_get(fresh_network(self.task))
    seed = np.uint32(self.task.config.seed)
    arguments = self.method, *self._put((seed, full))
    static = {"layout": self.subject.fleet.layout, "mesh": self.task.mesh}
    return compile_once(_start, *arguments, **static)(*arguments)

  def place(self, state: State) -> State:
    """Puts a stored state, which has no padding clients, on the devices."""
    clients = with_padding(self.subject.fleet, state.clients)

    def put(leaf, like):
      if isinstance(leaf, np.ndarray):
        return jax.device_put(leaf, like.sharding)
      # A key, which no process can put on the devices of others.
      data = np.asarray(jax.random.key_data(leaf))
      return jax.random.wrap_key_data(jax.device_put(data, like.sharding))

    return jax.tree.map(put, state._replace(clients=clients), self.like)

  # Rounds.

  def round(
    self, state: State, shards: tuple[Shard, ...] | None = None
  ) -> tuple[State, Metrics]:
    """Trains a round; returns the next state and the metrics on the host.

    The state is donated. `shards` may have another order of service than those
    of the subject.
    """
    shards = shards or self.subject.shards
    arguments = self.method, state, shards, self.task.faults
    state, metrics = self._run("round", run_round, *arguments)
    return state, jax.device_get(metrics)  # waits for the round

  def personalise(self, state: State) -> tuple[Net, ...]:
    """Returns personalised networks by cohort; () if no result row has any."""
    if not any(row.personal for row in self.subject.method.rows):
      return ()
    arguments = self.method, state, self.subject.shards
    return self._run("personalise", personalise_clients, *arguments)

  # Evaluations.

  def evaluate(
    self,
    state: State,
    rows: tuple[Row, ...] | None = None,
    samples: int | None = None,
  ) -> list[Outputs]:
    """Evaluates result rows on so many samples of each client (None: all)."""
    rows = self.subject.method.rows if rows is None else rows
    return [self._outputs(state, row, samples) for row in rows]

  def _outputs(self, state: State, row: Row, samples: int | None) -> Outputs:
    images = show(self.subject, samples, personal=row.personal)
    shown, held_out_then_proxy = self._exits(state, row, images)
    own_samples = Outputs(images.of(shown))
    if held_out_then_proxy is None:
      return own_samples
    # Behind the proxies is the padding of a chunk.
    exits = jax.device_get(held_out_then_proxy)
    assert self.task.holdout is not None
    count = self.task.holdout.rows.shape[1]
    return own_samples._replace(
      holdout=jax.tree.map(lambda x: x[:, :count], exits),
      proxy=jax.tree.map(lambda x: x[:, count : 2 * count], exits),
    )

  def _exits(
    self, state: State, row: Row, images: Shown
  ) -> tuple[Exits, Exits | None]:
    """Evaluates the clients on `images`, and on held-out samples and proxies.

    The second are None unless thresholds are chosen on them.
    """
    task = self.task
    # Personalised copies of the networks live no longer than this row.
    personal = self.personalise(state) if row.personal else None
    numbers = tuple(shard.number for shard in self.subject.shards)
    name = "evaluate personalised" if row.personal else "evaluate"
    common = self.method, state.clients, state.server, personal, numbers
    shown = self._run(
      name,
      evaluate_clients,
      *common,
      task.pool,
      *self._put((images.rows, images.chunks)),
      probabilities=any_takes_probabilities(task.config.eval.metrics),
    )
    if task.calibration is None or len(self.subject.method.answers) < 2:
      return shown, None
    held_out = task.calibration.image, task.calibration.rows
    name += " on held-out samples"
    return shown, self._run(name, evaluate_clients, *common, *held_out)

  # Compiling.

  def compile(self) -> "Programs":
    """Compiles what a run needs; returns these programs."""
    self.round(self.like)
    for row in self.subject.method.rows:
      images = show(self.subject, None, personal=row.personal)
      self._exits(self.like, row, images)
    return self

  def compiled(self) -> list[Any]:
    """Returns the programs compiled so far."""
    return list(self._programs.values())

  def _run(
    self, name: str, function: Any, *arguments: Tree, **static: Any
  ) -> Any:
    # One program per name: shapes depend neither on the number of samples nor
    # on the order of service.
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
    program = self._programs[name]
    kinds = map(type, jax.tree.leaves(arguments))
    return (
      program.out_info if jax.ShapeDtypeStruct in kinds else program(*arguments)
    )


def compile_to_fit(subject: Subject) -> Programs:
  """Makes and compiles a method's programs, with chunks that fit into memory.

  With `system.clients_per_chunk=auto`, the number of clients side by side is
  halved as long as a compiled program needs more memory than the device has.
  """
  task = subject.task
  auto = task.config.system.clients_per_chunk == "auto"
  capacity = target.current().capacity  # bytes
  while True:
    programs = Programs(subject)
    most = clients_side_by_side(subject)
    can_halve = auto and not one_server(subject.method) and most > 1
    try:
      programs.compile()
      sizes = map(size_of, programs.compiled())
      if not can_halve or max(sizes) <= ROOM * capacity:
        return programs
    except jax.errors.JaxRuntimeError as error:
      if not can_halve or "RESOURCE_EXHAUSTED" not in str(error):
        raise
    say(
      f"{subject.label}: compiled for {most} clients side by side, a program"
      f" needs more than the {capacity / 1e9:.3g} GB of a device; takes"
      f" {most // 2}"
    )
    subject = make_subject(task, subject.key, most // 2)


def clients_side_by_side(subject: Subject) -> int:
  """Counts the most clients that a device trains at a time."""
  layout = subject.fleet.layout
  return max(
    cohort.chunk or -(-layout.computed(cohort) // layout.devices)
    for cohort in layout.cohorts
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
