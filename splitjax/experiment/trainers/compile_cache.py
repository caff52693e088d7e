"""Compiled programs, found by their text within a process.

A program is its lowered text and the options that it is compiled with. A round
does not depend on a seed: which client holds what is data; nor on a learning
rate or a weight of a loss: those are arguments (`methods.hyper`). So several
seeds of a config, cells of a sweep and methods that differ in numbers have one
text, which is compiled once. On the disk jax's own cache does the same.
"""

import contextlib
import dataclasses
import functools
import gc
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from splitjax.engine import sharding
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup.build import make_method
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.files import one_line
from splitjax.methods import METHODS, hyper
from splitjax.types import Tree

LIMIT = 64
"""Compiled programs that are kept; the one that was not used longest goes."""

Note = Callable[[str, str | None], None]
"""Told a program's name, and None before it is compiled or, where it was
before, the label of the method that it was compiled for."""


def quiet(name: str, owner: str | None) -> None:
  """A Note that says nothing."""


class Compiled(NamedTuple):
  """A compiled program.

  Attributes:
    program: the executable alone: neither the function, which closes over the
      network's pretrained weights, nor any argument.
    owner: label of the method that it was compiled for.
    names: of the hyper-parameters that it takes. Another method's program with
      the same text has others, and uses the same of them.
  """

  program: Any
  owner: str
  names: tuple[str, ...] = ()


_compiled: OrderedDict[bytes, Compiled] = OrderedDict()


def hyper_parameters(setup: TrainingSetup) -> dict[str, float]:
  """The numbers that a program takes as arguments, by their paths.

  Those of a method's options, of the optimiser, and of noise where there is
  any.
  """
  config = setup.task.config
  spec = config.methods[setup.key]
  factory = METHODS[spec.name]
  bound = factory.keywords if isinstance(factory, functools.partial) else {}
  given = {
    "optimizer": dataclasses.asdict(config.optimizer),
    "options": bound | spec.options,
    "privacy": {
      f"{kind}.{name}": value
      for kind in config.privacy.noisy()
      for name, value in vars(getattr(config.privacy, kind)).items()
    },
  }
  return {
    f"{group}.{name}": value
    for group, tree in given.items()
    for name, value in tree.items()
    if type(value) is float
  }


def with_numbers(
  setup: TrainingSetup, arrays: dict[str, jax.Array]
) -> TrainingSetup:
  """While a program is traced: a setup whose hyper-parameters are arrays."""
  config, net = setup.task.config, setup.task.network.backbone
  numbers = hyper.numbers(hyper_parameters(setup), arrays)
  method = make_method(config, net, setup.key, numbers)
  return setup._replace(method=method)


def compile_program(
  make: Callable,
  name: str,
  setup: TrainingSetup,
  given: Tree,
  note: Note = quiet,
  **options: Any,
) -> Any:
  """Compiles `make(setup, **options)`, or takes a program of the same text.

  `given` are arguments like those that it will be called with; `name` is for
  `note`, which is told it before anything is compiled, with the label of the
  method that it was compiled for where it was before.
  """
  mesh, values = setup.task.mesh, hyper_parameters(setup)
  _, settings = make(setup, jit=_pieces, **options)
  lowered = _lowered(make, setup, given, values, settings, options)
  *arguments, _ = lowered.args_info[0]
  found = once(
    name,
    lowered,
    setup.task.config.methods[setup.key].label or setup.key,
    note,
    arguments=arguments,
    options=settings.get("compiler_options"),
    deterministic=setup.task.config.system.deterministic,
    mesh=mesh,
    names=tuple(sorted(values)),
  )
  # Of the program's precision, as processes compare what they put.
  kind = jax.numpy.result_type(float)
  host = {n: np.asarray(values.get(n, 0.0), kind) for n in found.names}
  return functools.partial(_call, found.program, sharding.put(mesh, host))


def _call(program: Any, numbers: dict[str, jax.Array], *given: Any) -> Any:
  return program(*given, numbers)


def _pieces(function: Callable, **settings: Any) -> tuple[Callable, dict]:
  """A function and its options of jax.jit, apart."""
  return function, settings


def _lowered(
  make: Callable,
  setup: TrainingSetup,
  given: Tree,
  values: hyper.Values,
  settings: dict[str, Any],
  options: dict[str, Any],
) -> Any:
  """A traced program: (*given, hyper-parameters) -> results.

  They are constants, and a line says so, where a method's code is not such that
  it can be traced with them.
  """

  def lower(traced: bool) -> Any:
    def program(*arguments):
      *given, arrays = arguments
      own = with_numbers(setup, arrays) if traced else setup
      function, _ = make(own, jit=_pieces, **options)
      return function(*given)

    with _uncollected():
      return jax.jit(program, **settings).lower(*given, dict(values))

  try:
    return lower(traced=True)
  except Exception as error:  # whatever a method raises that meets no number
    lowered = lower(traced=False)  # raises whatever else is wrong with it
    _say_constants(setup.key, one_line(error))
    return lowered


@functools.cache
def _say_constants(key: str, reason: str) -> None:
  """Says once that a method's numbers are constants."""
  say(
    f"{key}: hyper-parameters are constants of its program, which is compiled"
    f" for each value ({reason})"
  )


def once(
  name: str,
  lowered: Any,
  owner: str,
  note: Note = quiet,
  *,
  arguments: Tree = None,
  options: dict[str, Any] | None = None,
  deterministic: bool = False,
  mesh: Mesh | None = None,
  names: tuple[str, ...] = (),
) -> Compiled:
  """Compiles a traced program, or takes an earlier one with the same text.

  Args:
    name: for `note`, as in `compile_program`.
    lowered: the traced program.
    owner: whom it is compiled for.
    note: as in `compile_program`.
    arguments: `args_info` of those whose form counts; None: of all.
    options: of the compiler, that it was lowered with.
    deterministic: whether its rounding must not depend on the devices.
    mesh: the devices.
    names: of its hyper-parameters.
  """
  level = jax.config.read("jax_disable_most_optimizations")
  text = f"{text_of(lowered, arguments)} {options} {deterministic} {mesh}"
  key = hashlib.sha256(f"{text} {level}".encode()).digest()
  found = _compiled.get(key)
  note(name, None if found is None else found.owner)
  if found is None:
    quick = sharding.quick_options(deterministic)
    found = _compiled[key] = Compiled(lowered.compile(quick), owner, names)
  _compiled.move_to_end(key)
  if len(_compiled) > LIMIT:
    _compiled.popitem(last=False)
  return found


def text_of(lowered: Any, arguments: Tree = None) -> str:
  """The text of a traced program, with what jax leaves out of it.

  That are the forms of `arguments` (None: of all) and results, and which of all
  arguments the program uses.
  """
  leaves, structure = jax.tree.flatten(arguments or lowered.args_info)
  forms = [(x.shape, x.dtype, x.donated) for x in leaves]
  told = structure, forms, lowered.out_tree, _used(lowered)
  return f"{lowered.as_text()} {told}"


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
