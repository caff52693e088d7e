"""A cache of a process's compiled programs, keyed by the text of the program.

The text is the lowered program with its compiler options. The text of a round
does not depend on the seed, a learning rate or a loss weight, because the
partition and these numbers are arguments of the program (`methods.hyper`). So
seeds of a config, cells of a sweep and methods that differ only in such numbers
share one text, which is compiled once. jax caches programs on the disk in the
same way.
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
from splitjax.experiment.setup.method_factory import make_method
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.files import one_line
from splitjax.methods import METHODS, hyper
from splitjax.models import target
from splitjax.types import Tree

LIMIT = 64
"""The largest number of programs kept; the least recently used is dropped."""

Note = Callable[[str, str | None], None]
"""A function of a program's name and an owner, called before the program is
compiled or reused. The owner is the label of the method that a reused program
was compiled for, or None for a program that is about to be compiled."""


def quiet(name: str, owner: str | None) -> None:
  """Does nothing; serves as the Note of programs that are not announced."""


def announcing(label: str) -> Note:
  """Makes a Note about the programs of `label` that prints each line once."""
  line = functools.cache(say)

  def note(name, owner):
    told = f"reuses the {name} compiled for {owner}" if owner else "compiling"
    line(f"{label}: {told}")

  return note


class Compiled(NamedTuple):
  """A compiled program.

  Attributes:
    program: the executable alone, without the function (which closes over the
      network's pretrained weights) and without arguments.
    owner: the label of the method that it was compiled for.
    names: the names of the hyper-parameters that the program takes. If a later
      method with the same text has other hyper-parameters, the program uses
      only those that both methods have.
  """

  program: Any
  owner: str
  names: tuple[str, ...] = ()


kept_programs: OrderedDict[bytes, Compiled] = OrderedDict()
"""The programs by a digest of their text, the least recently used first."""


def hyper_parameters(setup: TrainingSetup) -> dict[str, float]:
  """Returns the numbers that a program takes as arguments, by their paths.

  These are the floats in the options of method and loss, in the optimiser's
  settings, and in the privacy settings of channels with noise.
  """
  config = setup.task.config
  spec = config.methods[setup.key]
  factory = METHODS[spec.name]
  bound = factory.keywords if isinstance(factory, functools.partial) else {}
  given = {
    "optimizer": dataclasses.asdict(config.optimizer),
    "options": bound | spec.options,
    "loss": config.loss.options,
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
  """Makes a setup with hyper-parameters as arrays, for tracing a program."""
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
  """Compiles `make(setup, **options)`, or reuses a program of the same text.

  `given` has the structure, shapes and dtypes of later calls' arguments.
  `note` (see `Note`) gets `name` before anything is compiled.
  """
  mesh, values = setup.task.mesh, hyper_parameters(setup)
  _, settings = make(setup, jit=_pieces, **options)
  lowered = lower_program(make, setup, given, values, settings, options)
  *arguments, _ = lowered.args_info[0]
  found = compile_once(
    name,
    lowered,
    setup.task.config.methods[setup.key].label or setup.key,
    note,
    arguments=arguments,
    mesh=mesh,
    names=tuple(sorted(values)),
  )
  # Numbers get the program's precision: jax compares them between processes.
  kind = jax.numpy.result_type(float)
  host = {n: np.asarray(values.get(n, 0.0), kind) for n in found.names}
  return functools.partial(
    _call, found.program, sharding.put_on_devices(mesh, host)
  )


def _call(program: Any, numbers: dict[str, jax.Array], *given: Any) -> Any:
  return program(*given, numbers)


def _pieces(function: Callable, **settings: Any) -> tuple[Callable, dict]:
  """Returns a function and its jax.jit options; stands in for jax.jit."""
  return function, settings


def lower_program(
  make: Callable,
  setup: TrainingSetup,
  given: Tree,
  values: hyper.Values,
  settings: dict[str, Any],
  options: dict[str, Any],
) -> Any:
  """Traces a program: (*given, hyper-parameters) -> results.

  If the method's code cannot be traced with hyper-parameters as arguments, they
  become constants, and a printed line says so.
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
  except Exception as error:  # any error of a method that needs the value
    lowered = lower(traced=False)  # raises any other error of the method
    _say_constants(setup.key, one_line(error))
    return lowered


@functools.cache
def _say_constants(key: str, reason: str) -> None:
  """Prints once that hyper-parameters are constants of a method's program."""
  say(
    f"{key}: hyper-parameters are constants of its program, which is compiled"
    f" for each value ({reason})"
  )


def compile_once(
  name: str,
  lowered: Any,
  owner: str,
  note: Note = quiet,
  *,
  arguments: Tree = None,
  mesh: Mesh | None = None,
  names: tuple[str, ...] = (),
) -> Compiled:
  """Compiles a traced program, or reuses an earlier one with the same text.

  Args:
    name: a name for `note`, see `compile_program`.
    lowered: the traced program.
    owner: the label of the method that it is compiled for.
    note: see `Note`.
    arguments: `args_info` of the arguments that the text describes, see
      `text_of`; None: of all arguments.
    mesh: the devices.
    names: the program's hyper-parameters.
  """
  level = jax.config.read("jax_disable_most_optimizations")
  text = f"{text_of(lowered, arguments)} {mesh}"
  text = f"{text} {target.aimed_at.value}"
  key = hashlib.sha256(f"{text} {level}".encode()).digest()
  found = kept_programs.get(key)
  note(name, None if found is None else found.owner)
  if found is None:
    quick = lowered.compile(sharding.quick_options())
    found = kept_programs[key] = Compiled(quick, owner, names)
  kept_programs.move_to_end(key)
  if len(kept_programs) > LIMIT:
    kept_programs.popitem(last=False)
  return found


def text_of(lowered: Any, arguments: Tree = None) -> str:
  """Returns the text of a traced program, with facts that jax leaves out.

  The facts are the structure, shapes, dtypes and donation of `arguments` (if
  None, of all arguments of the program), the structure of the results, and
  which arguments the program uses.
  """
  leaves, structure = jax.tree.flatten(arguments or lowered.args_info)
  forms = [(x.shape, x.dtype, x.donated) for x in leaves]
  told = structure, forms, lowered.out_tree, _used(lowered)
  return f"{lowered.as_text()} {told}"


def _used(lowered: Any) -> list[str]:
  """Returns the names of the arguments that a traced program uses.

  If jax does not tell the names, the result matches no other program's.
  """
  operations = lowered.compiler_ir("stablehlo").body.operations
  (main,) = (x for x in operations if x.attributes["sym_name"].value == "main")
  names = [str(each.location) for each in main.arguments]
  if any("unknown" in name for name in names):
    return [uuid.uuid4().hex]
  return names


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
  """Pauses garbage collection.

  Repeated searches of a trace's objects took a sixth of the tracing time.
  """
  was_on = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_on:
      gc.enable()
