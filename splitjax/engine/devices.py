"""Sharding: the client axis of every cohort is divided over a device mesh.

Server and data set, which clients share, are replicated. One device needs no
mesh.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from splitjax import target
from splitjax.types import State, Tree, UserError

OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False}
"""Compiler option for XLA's older emitters, which compile kernels jointly."""

_NO_UNROLLING = "xla_cpu_disable_loop_unrolling"
"""An option of XLA's CPU backend, see `compile_quickly`."""

AXIS = "clients"
"""The mesh's one axis."""

DIVIDED = PartitionSpec(AXIS)
COPIED = PartitionSpec()
"""Specs of arrays that have a client axis, [N, ...], and of everything else."""


def compile_quickly() -> None:
  """Sets XLA_FLAGS to compile for the CPU without unrolled loops.

  With `quick_options`, which follow, programs compile in about two thirds of
  the CPU time, and rounds are as fast as before; either alone is slower. XLA
  reads XLA_FLAGS when it first compiles, and ignores an option that it does not
  know, while LLVM would end the process. Options of the user's own stay.
  """
  flags = os.environ.get("XLA_FLAGS", "")
  if "xla_backend_extra_options" not in flags:
    extra = f"--xla_backend_extra_options={_NO_UNROLLING}"
    os.environ["XLA_FLAGS"] = f"{flags} {extra}".strip()


def quick_options() -> dict[str, str | bool] | None:
  """Returns options that make compiling faster; None for the defaults.

  Pass them to the `compile` of a lowered program, not to `jax.jit`, because a
  jitted function that is called within another one must have no options.
  """
  on_cpu = target.current().platform == "cpu"
  if not on_cpu or _NO_UNROLLING not in os.environ.get("XLA_FLAGS", ""):
    return None
  options = tuple(OLDER_EMITTERS.items())
  return dict(options) if _accepted(options) else None


@functools.cache
def _accepted(options: tuple[tuple[str, bool], ...]) -> bool:
  """Tells whether this version of XLA has the compiler options."""
  try:
    jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
  except jax.errors.JaxRuntimeError:
    return False
  return True


def make_mesh(count: int | None) -> Mesh | None:
  """Makes a mesh of `count` devices, None of all; no mesh of a single one."""
  platform = target.current().platform
  devices = target.current().devices
  count = len(devices) if count is None else count
  if not 1 <= count <= len(devices):
    split = f", or let a CPU count as more with --cpu_devices={count}"
    raise UserError(
      f"system.devices={count}: there are {len(devices)} ({platform});"
      f" leave it None to use all{split if platform == 'cpu' else ''}"
    )
  if jax.process_count() > 1 and count < len(devices):
    raise UserError(
      f"system.devices={count}: with several processes all {len(devices)}"
      " devices are used; leave it None"
    )
  if count == 1:
    return None
  return Mesh(np.array(devices[:count]), (AXIS,))


def size(mesh: Mesh | None) -> int:
  """Counts the devices of a mesh."""
  return 1 if mesh is None else mesh.size


def put_on_devices(mesh: Mesh | None, tree: Tree, spec: Any = COPIED) -> Tree:
  """Puts host arrays on the devices; `spec` is that of all leaves."""
  if mesh is None:
    return jax.tree.map(jax.numpy.asarray, tree)
  return jax.device_put(tree, NamedSharding(mesh, spec))


def over_devices(
  function: Callable, mesh: Mesh | None, into: Any, out: Any
) -> Callable:
  """Maps a function over devices, each with its part of the clients.

  `into` and `out` are specs of arguments and result, prefixes of their trees.
  """
  if mesh is None:
    return function
  # With check_vma, the gradient with respect to a replicated argument would be
  # summed over devices, and so mix the steps of different clients.
  return jax.shard_map(
    function, mesh=mesh, in_specs=into, out_specs=out, check_vma=False
  )


def laid_out(state: State, mesh: Mesh | None) -> State:
  """Keeps clients divided and everything else copied, inside a program."""
  if mesh is None:
    return state
  lay = jax.lax.with_sharding_constraint
  copied = lay(state._replace(clients=()), NamedSharding(mesh, COPIED))
  clients = lay(state.clients, NamedSharding(mesh, DIVIDED))
  return copied._replace(clients=clients)
