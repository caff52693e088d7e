"""Compiled programs, reused within a process.

A round does not depend on a seed: which client holds what is data; nor on a
learning rate or a weight of a loss: those are arguments. So several seeds of a
config, cells of a sweep and methods that differ in numbers share one program,
which is compiled once.
"""

import contextlib
import functools
import gc
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.engine import sharding
from splitjax.experiment import program_identity
from splitjax.experiment.build import make_method
from splitjax.experiment.progress import say
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.files import one_line
from splitjax.methods import hyper
from splitjax.types import Tree

LIMIT = 64
"""Compiled programs that are kept; the one that was not used longest goes."""

Note = Callable[[str, str | None], None]
"""Told a program's name, and None before it is compiled or, where it was
before, the label of the method that it was compiled for."""

_compiled: OrderedDict[Hashable, list["Compiled"]] = OrderedDict()


def quiet(name: str, owner: str | None) -> None:
  """A Note that says nothing."""


class Compiled(NamedTuple):
  """A compiled program and the settings that it is right for.

  Attributes:
    program: (given, hyper-parameters) -> results.
    digest: of its text.
    conditions: on the hyper-parameters.
    owner: label of the method that it was compiled for.
    names: of the hyper-parameters that it takes. Another method's program with
      the same text has others, and uses the same of them.
  """

  program: Any
  digest: bytes
  conditions: tuple[hyper.Condition, ...]
  owner: str
  names: tuple[str, ...] = ()


def reuse(
  make: Callable,
  name: str,
  task: Task,
  federation: Federation,
  given: Tree,
  note: Note = quiet,
  facts: Hashable = None,
  **options: Any,
) -> Any:
  """Compiles `make(task, federation, **options)`, or takes an earlier program.

  Hyper-parameters are arguments of the program (`hyper`): one program serves
  all values with the same branches. Only the executable is kept: neither the
  function, which closes over the network's pretrained weights, nor any
  argument. The shapes, dtypes and shardings of the arguments `given` count;
  `name` and `facts` stand for make and options. `note` is called with the name
  before anything is compiled, with the method's label that it was compiled for
  where it was before.
  """
  leaves, structure = jax.tree.flatten(given)
  shapes = tuple((jax.typeof(x), x.sharding) for x in leaves)
  key = (
    name,
    facts,
    structure,
    shapes,
    program_identity.identity(task, federation),
  )
  values = program_identity.hyper_parameters(task.config, federation.key)
  kept = _compiled.get(key, [])
  found = next((c for c in kept if hyper.fits(c.conditions, values)), None)
  if found is None:
    note(name, None)
    found = _compile(make, task, federation, given, values, options)
    _keep(key, found)
  else:
    note(name, found.owner)
    _compiled.move_to_end(key)
  # Of the program's precision, as processes compare what they put.
  kind = jax.numpy.result_type(float)
  host = {n: np.asarray(values.get(n, 0.0), kind) for n in found.names}
  numbers = sharding.put(task.mesh, host)
  return functools.partial(_call, found.program, numbers)


def once(name: str, lowered: Any, owner: str, note: Note) -> Any:
  """Compiles a traced program, or takes an earlier one with the same text.

  `owner` is whom it is compiled for; name and note are as in `reuse`.
  """
  digest = _digest(lowered, lowered.args_info, None)
  found = next(_of_digest(digest), None)
  note(name, None if found is None else found.owner)
  if found is None:
    quick = sharding.quick_options(deterministic=False)
    found = Compiled(lowered.compile(quick), digest, (), owner)
  _keep((name, digest), found)
  return found.program


def _of_digest(digest: bytes) -> Iterator[Compiled]:
  return (c for each in _compiled.values() for c in each if c.digest == digest)


def _digest(
  lowered: Any, arguments: Tree, options: dict[str, Any] | None
) -> bytes:
  """Of a traced program, with what its text leaves out.

  That is the compiler's options, jax's settings, the forms of `arguments` and
  results and which of all arguments the program uses.
  """
  leaves, structure = jax.tree.flatten(arguments)
  given = [(x.shape, x.dtype, x.donated) for x in leaves]
  forms = structure, given, lowered.out_tree
  facts = forms, _used(lowered), options, program_identity.flags()
  return hashlib.sha256(f"{lowered.as_text()} {facts}".encode()).digest()


def _used(lowered: Any) -> list[str]:
  """The arguments that a traced program uses, by their names.

  Where jax does not say, no other program has the same.
  """
  operations = lowered.compiler_ir("stablehlo").body.operations
  (main,) = (x for x in operations if x.attributes["sym_name"].value == "main")
  names = [str(each.location) for each in main.arguments]
  if any("unknown" in name for name in names):
    return [uuid.uuid4().hex]
  return names


def _keep(key: Hashable, compiled: Compiled) -> None:
  """Keeps a program; beyond the limit the one not used longest goes."""
  mine = _compiled.setdefault(key, [])
  if compiled not in mine:
    mine.append(compiled)
  _compiled.move_to_end(key)
  if sum(map(len, _compiled.values())) > LIMIT:
    oldest = next(iter(_compiled))
    _compiled[oldest] = _compiled[oldest][1:]
    if not _compiled[oldest]:
      del _compiled[oldest]


def _call(program: Any, numbers: dict[str, jax.Array], *given: Any) -> Any:
  return program(*given, numbers)


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
    with _uncollected():
      return jax.jit(function, **settings).lower(*given, dict(values))

  try:
    lowered = lower(hyper.numbers)
  except Exception as error:  # whatever a method raises that meets no number
    lowered = lower(hyper.constants)  # raises whatever else is wrong with it
    say(
      f"{federation.key}: hyper-parameters are constants of its program, which"
      f" is compiled for each value ({one_line(error)})"
    )
  # Two settings with other branches may still be one program.
  *arguments, _ = lowered.args_info[0]
  how = settings.get("compiler_options")
  digest = _digest(lowered, arguments, how)
  quick = sharding.quick_options(task.config.system.deterministic)
  conditions, names = tuple(trace.conditions.values()), tuple(sorted(values))
  same = next(_of_digest(digest), None)
  if same is None:
    program = lowered.compile(quick)
  else:
    program, names = same.program, same.names
  owner = task.config.methods[federation.key].label or federation.key
  return Compiled(program, digest, conditions, owner, names)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
  """Leaves garbage where it is.

  Looking for it among the objects of a trace, again and again, took a sixth of
  the time of tracing.
  """
  was_on = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_on:
      gc.enable()


def _pieces(function: Callable, **settings: Any) -> tuple[Callable, dict]:
  """A function and its options of jax.jit, apart."""
  return function, settings
