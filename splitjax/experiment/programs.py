"""The compiled programs of a method, reused within a process.

A round does not depend on a seed: which client holds what is data. So several
seeds of a config, and cells of a sweep that differ in data alone, share one
program, which is compiled once.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax

from splitjax.data.feed import standardise
from splitjax.engine import round as round_program
from splitjax.engine import sharding
from splitjax.evaluation import evaluate, ood_proxies
from splitjax.experiment.federation import Federation
from splitjax.experiment.task import Task
from splitjax.methods import METHODS
from splitjax.models import BACKBONES, inference
from splitjax.types import State, Tree

LIMIT = 64
"""Compiled programs that are kept; the one that was not used longest goes."""

_compiled: OrderedDict[Hashable, Any] = OrderedDict()


class Evaluators(NamedTuple):
  """The evaluation programs of a method.

  Attributes:
    test: (state, shards, pool, shown) -> one Exits per result row.
    aside: (state, shards, image, aside) -> likewise, of held-out samples and
      their proxies; None where no threshold is chosen on them.
  """

  test: Any
  aside: Any = None


class Programs(NamedTuple):
  """What a training runs.

  Attributes:
    round: (state, shards) -> (state, Metrics); the state is donated.
    evaluators: the evaluation.
  """

  round: Any
  evaluators: Evaluators


def compile_programs(
  task: Task, federation: Federation, state: State
) -> Programs:
  """Traces and compiles a method's round and its evaluation, or reuses them."""
  given = state, federation.shards
  step = reuse(
    "round", task, federation, given, lambda: make_round(task, federation)
  )
  return Programs(step, compile_evaluators(task, federation, state))


def compile_evaluators(
  task: Task, federation: Federation, state: State
) -> Evaluators:
  """The evaluation of a method; those with one exit need but one program."""
  given = state, federation.shards
  test = reuse(
    "test",
    task,
    federation,
    (*given, task.pool, task.shown),
    lambda: make_evaluator(task, federation),
  )
  if task.aside is None or len(federation.method.answers) < 2:
    return Evaluators(test)
  gather = ood_proxies.with_proxies(task.config.eval.proxy)
  aside = reuse(
    "aside",
    task,
    federation,
    (*given, task.image, task.aside),
    lambda: make_evaluator(task, federation, gather=gather),
  )
  return Evaluators(test, aside)


def personalise(task: Task, federation: Federation, state: State) -> tuple:
  """Every client personalised; () if the method does not."""
  if not any(row.personal for row in federation.method.rows):
    return ()
  given = state, federation.shards
  tune = reuse(
    "personalise",
    task,
    federation,
    given,
    lambda: _make(evaluate.make_personalised, task, federation),
  )
  return tune(*given)


def embed(task: Task, federation: Federation, state: State, shown) -> list:
  """The server's embeddings of the same images behind every client's prefix.

  Args:
    task: has the images.
    federation: the method's.
    state: with the clients that embed.
    shown: [chunks, B] int32, rows of the task's pool.

  Returns:
    Per cohort [N, chunks * B, D] float32.
  """
  given = state, task.pool, shown
  program = reuse(
    "embed", task, federation, given, lambda: _make_embed(task, federation)
  )
  return program(*given)


def make_round(task: Task, federation: Federation, **options: Any) -> Any:
  """The jitted round of a method, on the devices of its task."""
  make = round_program.make_round
  return _make(make, task, federation, faults=task.config.faults, **options)


def make_evaluator(task: Task, federation: Federation, **options: Any) -> Any:
  """The jitted evaluation of a method, on the devices of its task."""
  return _make(evaluate.make_evaluate, task, federation, **options)


def _make(maker: Callable, task: Task, federation: Federation, **options: Any):
  """Calls a maker of the engine or the evaluation."""
  return maker(
    federation.method,
    federation.plans,
    federation.fleet,
    mesh=task.mesh,
    deterministic=task.config.system.deterministic,
    **options,
  )


def _make_embed(task: Task, federation: Federation) -> Any:
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
  return jax.jit(
    every,
    out_shardings=sharding.sharding(task.mesh, sharding.COPIED),
    compiler_options=sharding.deterministic_options(exact),
  )


def reuse(
  name: str,
  task: Task,
  federation: Federation,
  given: Tree,
  make: Callable[[], Any],
) -> Any:
  """A compiled program, from an earlier call if that made the same one.

  Only the executable is kept: neither the function, which closes over the
  network's pretrained weights, nor any argument.

  Args:
    name: which of a method's programs.
    task: what all methods share.
    federation: the method's.
    given: its arguments; their shapes, dtypes and shardings count.
    make: returns the jitted function.
  """
  leaves, structure = jax.tree.flatten(given)
  shapes = tuple((jax.typeof(x), x.sharding) for x in leaves)
  key = (name, structure, shapes, identity(task, federation))
  if key not in _compiled:
    _compiled[key] = make().lower(*given).compile()
    if len(_compiled) > LIMIT:
      _compiled.popitem(last=False)
  _compiled.move_to_end(key)
  return _compiled[key]


def clear() -> None:
  """Forgets all compiled programs."""
  _compiled.clear()


def identity(task: Task, federation: Federation) -> Hashable:
  """All that a method's programs depend on, beside their arguments.

  Of the fleet its sizes: who the clients are is data.
  """
  config, fleet = task.config.to_dict(), federation.fleet
  spec = config["methods"][federation.key]
  names = "backbone", "batch_norm", "rounds", "optimizer", "faults", "system"
  settings: dict[str, Any] = {name: config[name] for name in names} | {
    "method": {k: v for k, v in spec.items() if k != "label"},
    "proxy": config["eval"]["proxy"],
    "data": [task.facts["shape"], task.facts["classes"]],
  }
  # Weights and planned faults are data: their files do not count.
  for group, name in (("backbone", "pretrained"), ("faults", "schedule")):
    path = settings[group].get(name)
    settings[group] = {**settings[group], name: path is not None}
  cohorts = [(c.depth, len(c.ids), c.padding, c.chunk) for c in fleet.cohorts]
  return (
    METHODS[spec["name"]],
    BACKBONES[config["backbone"]["name"]],
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
