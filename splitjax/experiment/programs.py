"""The compiled programs of a method, reused within a process.

A round does not depend on a seed: which client holds what is data. So several
seeds of a config, and cells of a sweep that differ in data alone, share one
program, which is compiled once.
"""

import dataclasses
import functools
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.config.schema import Config
from splitjax.data.feed import standardise
from splitjax.engine import round as round_program
from splitjax.engine import sharding
from splitjax.evaluation import evaluate, ood_proxies
from splitjax.experiment.build import make_method
from splitjax.experiment.federation import Federation, state_sharding
from splitjax.experiment.progress import say
from splitjax.experiment.task import Task
from splitjax.files import one_line
from splitjax.methods import METHODS, hyper
from splitjax.methods.optimizer import OPTIMIZERS
from splitjax.models import BACKBONES, inference
from splitjax.types import Exits, Outputs, Segment, State, Tree

LIMIT = 64
"""Compiled programs that are kept; the one that was not used longest goes."""

NAMES = ("name", "label")
"""Of a method in a config: what is no option."""

Begin = Callable[[], None]

_compiled: OrderedDict[Hashable, list["Compiled"]] = OrderedDict()


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
  named = "init", places, devices
  program = reuse(_make_init, named, task, federation, given)
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
  task: Task, federation: Federation, state: State, begin: Begin = lambda: None
) -> Any:
  """A method's compiled round: (state, shards) -> (state, Metrics).

  The state is donated. `begin` is called before anything is compiled.
  """
  given = state, federation.shards
  return reuse(make_round, "round", task, federation, given, begin)


def compile_evaluation(
  task: Task, federation: Federation, state: State, begin: Begin = lambda: None
) -> list[tuple[Any, tuple]]:
  """The compiled evaluation of a method: programs and their arguments.

  The first gives one Exits per result row, of the test samples. A second, of
  held-out samples and their proxies, is there where thresholds are chosen on
  them. `begin` is as in `compile_round`.
  """
  given = state, federation.shards, task.pool, task.shown
  test = reuse(make_evaluator, "test", task, federation, given, begin)
  if task.aside is None or len(federation.method.traits.answers) < 2:
    return [(test, given)]
  gather = ood_proxies.with_proxies(task.config.eval.proxy)
  held = state, federation.shards, task.image, task.aside
  aside = reuse(
    make_evaluator, "aside", task, federation, held, begin, gather=gather
  )
  return [(test, given), (aside, held)]


def evaluate_rows(
  task: Task, federation: Federation, state: State
) -> list[Outputs]:
  """Evaluates a state: the outputs of each result row, on the host."""
  test, *aside = (
    program(*given)
    for program, given in compile_evaluation(task, federation, state)
  )
  size = task.test_sets.rows.shape[1]
  rows = [_on_host(exits, lambda x: x[:, :size]) for exits in test]
  if not aside:
    return list(map(Outputs, rows))
  return [
    Outputs(each, *_split_proxies(task, both))
    for each, both in zip(rows, *aside, strict=True)
  ]


def _on_host(exits: Exits, part: Callable[[np.ndarray], np.ndarray]) -> Exits:
  """A part of every leaf, on the host."""
  return Exits(*(part(np.asarray(leaf)) for leaf in exits))


def _split_proxies(task: Task, both: Exits) -> list[Exits]:
  """Exits [N, H] of held-out samples and of their proxies, unpadded."""
  assert task.held is not None and task.aside is not None
  clients, chunks, size = task.aside.rows.shape
  count = task.held.rows.shape[1]

  def part(which, leaf):
    pairs = leaf.reshape(clients, chunks, 2, size)[:, :, which]
    return pairs.reshape(clients, -1)[:, :count]

  return [_on_host(both, functools.partial(part, which)) for which in (0, 1)]


def personalise(task: Task, federation: Federation, state: State) -> tuple:
  """Every client personalised; () if the method does not."""
  if not any(row.personal for row in federation.method.traits.rows):
    return ()
  given = state, federation.shards
  make = _on_devices(evaluate.make_personalised)
  return reuse(make, "personalise", task, federation, given)(*given)


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


class Compiled(NamedTuple):
  """A compiled program and the settings that it is right for.

  Attributes:
    program: (given, hyper-parameters) -> results.
    digest: of its text.
    conditions: on the hyper-parameters.
  """

  program: Any
  digest: bytes
  conditions: tuple[hyper.Condition, ...]


def reuse(
  make: Callable,
  name: Hashable,
  task: Task,
  federation: Federation,
  given: Tree,
  begin: Begin = lambda: None,
  **options: Any,
) -> Any:
  """Compiles `make(task, federation, **options)`, or takes an earlier program.

  Hyper-parameters are arguments of the program (`hyper`): one program serves
  all values with the same branches. Only the executable is kept: neither the
  function, which closes over the network's pretrained weights, nor any
  argument. The shapes, dtypes and shardings of the arguments `given` count,
  `name` stands for make and options. `begin` is called before it compiles.
  """
  leaves, structure = jax.tree.flatten(given)
  shapes = tuple((jax.typeof(x), x.sharding) for x in leaves)
  key = (name, structure, shapes, identity(task, federation))
  values = hyper_parameters(task.config, federation.key)
  kept = _compiled.get(key, [])
  found = next((c for c in kept if hyper.fits(c.conditions, values)), None)
  if found is None:
    begin()
    found = _compile(make, task, federation, given, values, options)
    _compiled[key] = [*kept, found]
  _compiled.move_to_end(key)
  if sum(map(len, _compiled.values())) > LIMIT:
    oldest = next(iter(_compiled))
    _compiled[oldest] = _compiled[oldest][1:]
    if not _compiled[oldest]:
      del _compiled[oldest]
  return functools.partial(_call, found.program, values)


def _call(program: Any, values: hyper.Values, *given: Any) -> Any:
  return program(*given, dict(values))


def _compile(
  make: Callable,
  task: Task,
  federation: Federation,
  given: Tree,
  values: hyper.Values,
  options: dict[str, Any],
) -> Compiled:
  """Compiles a program whose hyper-parameters are arguments.

  They are constants, and a line says so, where a method's code is not such that
  it can be traced with them.
  """
  trace = hyper.Trace(values)
  _, settings = make(task, federation, jit=_pieces, **options)

  def traced(find: Callable, *arguments: Any) -> Any:
    *given, arrays = arguments
    numbers = find(trace, arrays)
    net = task.network.backbone
    method = make_method(task.config, net, federation.key, numbers)
    own = federation._replace(method=method)
    function, _ = make(task, own, jit=_pieces, **options)
    return function(*given)

  def lower(find: Callable) -> Any:
    function = functools.partial(traced, find)
    return jax.jit(function, **settings).lower(*given, dict(values))

  try:
    lowered = lower(hyper.numbers)
  except (TypeError, ValueError, AttributeError) as error:
    # Whatever else is wrong with the method is raised here, too.
    lowered = lower(hyper.constants)
    say(
      f"{federation.key}: hyper-parameters are constants of its program, which"
      f" is compiled for each value ({one_line(error)})"
    )
  # Two settings with other branches may still be one program.
  facts = jax.tree.structure((given, values)), settings.get("compiler_options")
  text = f"{lowered.as_text()} {facts}"
  digest = hashlib.sha256(text.encode()).digest()
  kept = (c for each in _compiled.values() for c in each if c.digest == digest)
  same = next(kept, None)
  program = lowered.compile() if same is None else same.program
  return Compiled(program, digest, tuple(trace.conditions.values()))


def _pieces(function: Callable, **settings: Any) -> tuple[Callable, dict]:
  """A function and its options of jax.jit, apart."""
  return function, settings


def _unbound(factory: Callable) -> tuple[Callable, dict[str, Any]]:
  """A factory, and the arguments that functools.partial binds."""
  if isinstance(factory, functools.partial):
    return factory.func, dict(factory.keywords)
  return factory, {}


def hyper_parameters(config: Config, key: str) -> dict[str, float]:
  """The numbers of a method's options and of the optimiser, by their paths."""
  spec = config.methods[key]
  _, bound = _unbound(METHODS[spec.name])
  given = {
    "optimizer": dataclasses.asdict(config.optimizer),
    "options": bound | spec.options,
  }
  return {
    f"{group}.{name}": value
    for group, tree in given.items()
    for name, value in tree.items()
    if type(value) is float
  }


def identity(task: Task, federation: Federation) -> Hashable:
  """All that a method's programs depend on, beside their arguments.

  Of the fleet its sizes: who the clients are is data.
  """
  config, fleet = task.config.to_dict(), federation.fleet
  spec = config["methods"][federation.key]
  factory, bound = _unbound(METHODS[spec["name"]])
  names = "backbone", "batch_norm", "rounds", "optimizer", "faults", "system"
  settings: dict[str, Any] = {name: config[name] for name in names} | {
    "method": bound | {k: v for k, v in spec.items() if k not in NAMES},
    "proxy": config["eval"]["proxy"],
    "data": [task.facts["shape"], task.facts["classes"]],
  }
  # Hyper-parameters are arguments of the program.
  for path in hyper_parameters(task.config, federation.key):
    group, _, name = path.partition(".")
    place = "optimizer" if group == "optimizer" else "method"
    settings[place] = {**settings[place], name: "number"}
  # Weights and planned faults are data: their files do not count.
  for group, name in (("backbone", "pretrained"), ("faults", "schedule")):
    path = settings[group].get(name)
    settings[group] = {**settings[group], name: path is not None}
  rules = [config["optimizer"][field] for field in ("name", "server_name")]
  cohorts = [(c.depth, len(c.ids), c.padding, c.chunk) for c in fleet.cohorts]
  return (
    factory,
    BACKBONES[config["backbone"]["name"]],
    *(OPTIMIZERS[name] for name in rules if name is not None),
    json.dumps(settings, sort_keys=True),
    federation.plans,
    (*cohorts, fleet.participants, fleet.participation, fleet.devices),
    task.mesh,
    _flags(),
  )


def _flags() -> Hashable:
  """The settings of jax that a program is compiled under."""
  settings: Any = jax.config
  return (
    settings.jax_enable_x64,
    settings.jax_default_matmul_precision,
    settings.jax_threefry_partitionable,
    settings.read("jax_disable_most_optimizations"),
  )
