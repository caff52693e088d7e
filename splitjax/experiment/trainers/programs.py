"""Compiled programs of a process, shared by methods, seeds and cells.

A program is known by its function, the tree of its arguments and their shapes.
The tree of a method has its static fields and none of its numbers, so methods
that differ in a learning rate or a loss weight share a program.
"""

import contextlib
import functools
import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import jax

from splitjax import target
from splitjax.engine import devices
from splitjax.experiment.console.progress import say
from splitjax.types import Tree

LIMIT = 64
"""The largest number of programs kept; the least recently used is dropped."""

Note = Callable[[], None]
"""A function that is called before a program is compiled."""


def quiet() -> None:
  """Does nothing; serves as the Note of programs that are not announced."""


def announcing(label: str) -> Note:
  """Makes a Note that prints once that the programs of `label` compile."""
  return functools.cache(lambda: say(f"{label}: compiling"))


kept_programs: OrderedDict[Any, Any] = OrderedDict()
"""The compiled programs, the least recently used first."""


def compile_once(
  function: Any, *arguments: Tree, note: Note = quiet, **static: Any
) -> Any:
  """Compiles a jitted function for these arguments, or finds it compiled.

  Args:
    function: made by `jax.jit`, with the names of `static` as static_argnames.
    arguments: of later calls, or their shapes, dtypes and shardings.
    note: called before anything is compiled.
    static: keywords, which are hashable; later calls are without them.
  """
  leaves, structure = jax.tree.flatten(arguments)
  key = (
    function,
    structure,
    tuple(map(_form, leaves)),
    tuple(sorted(static.items())),
    target.aimed_at.value,
    jax.config.read("jax_disable_most_optimizations"),
  )
  if key not in kept_programs:
    note()
    with _uncollected():
      lowered = function.lower(*arguments, **static)
    kept_programs[key] = lowered.compile(devices.quick_options())
  kept_programs.move_to_end(key)
  if len(kept_programs) > LIMIT:
    kept_programs.popitem(last=False)
  return kept_programs[key]


def _form(leaf: Any) -> Any:
  """What a program depends on in an argument: its type and sharding."""
  kind = jax.typeof(leaf)
  return kind.shape, kind.dtype, kind.weak_type, getattr(leaf, "sharding", None)


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
