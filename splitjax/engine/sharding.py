"""On which devices a run lies: the client axis of every cohort over a mesh.

Clients are divided among the devices; whatever all of them share (the server,
the data set) has a copy on each. One device needs no mesh.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from splitjax.types import State, Tree, UserError

DETERMINISTIC_OPTIONS: dict[str, Any] = {
  "cpu": {"xla_disable_hlo_passes": "fusion,algsimp"},
  "gpu": {"xla_gpu_deterministic_ops": True},
}
"""Compiler options of a deterministic round, by backend. What XLA fuses and
simplifies, and so how it rounds, depends on the number of devices; on a GPU
some operations also add up in whatever order threads arrive."""


def deterministic_options(deterministic: bool) -> dict[str, Any] | None:
  """Compiler options of this backend; None for its own."""
  return (
    DETERMINISTIC_OPTIONS.get(jax.default_backend()) if deterministic else None
  )


def state_specs(cohorts: int) -> State:
  """How a State lies on the devices: clients divided, all else copied."""
  copied, divided = COPIED, (DIVIDED,) * cohorts
  specs: Any = State(copied, copied, divided, copied)  # type: ignore[arg-type]
  return specs


AXIS = "clients"
"""The mesh's one axis."""

DIVIDED, COPIED = PartitionSpec(AXIS), PartitionSpec()
"""How leaves [N, ...] of clients lie, and how everything else does."""


def make(count: int | None, *, always: bool = False) -> Mesh | None:
  """A mesh of devices; None where there is but one.

  Args:
    count: of devices of all processes; None for all there are.
    always: a mesh even of one device.

  Raises:
    UserError: there are not so many, or a process would be left without.
  """
  devices = jax.devices()
  count = len(devices) if count is None else count
  if not 1 <= count <= len(devices):
    raise UserError(
      f"system.devices={count}: there are {len(devices)}"
      f" ({jax.default_backend()}); leave it None to use all, or let a CPU"
      f" count as more with --cpu_devices={count}"
    )
  if jax.process_count() > 1 and count < len(devices):
    raise UserError(
      f"system.devices={count}: with several processes all {len(devices)}"
      " devices are used; leave it None"
    )
  if count == 1 and not always:
    return None
  return Mesh(np.array(devices[:count]), (AXIS,))


def size(mesh: Mesh | None) -> int:
  """How many devices there are."""
  return 1 if mesh is None else mesh.size


def put(mesh: Mesh | None, tree: Tree, spec: Any = COPIED) -> Tree:
  """Puts host arrays on the devices; spec: a PartitionSpec for all leaves."""
  if mesh is None:
    return jax.tree.map(jax.numpy.asarray, tree)
  where = NamedSharding(mesh, spec)
  return jax.tree.map(lambda x: jax.device_put(x, where), tree)


def sharding(mesh: Mesh | None, specs: Tree) -> Tree:
  """Specs as shardings, for jit; None (wherever it likes) without a mesh."""
  if mesh is None:
    return None
  return jax.tree.map(
    lambda spec: NamedSharding(mesh, spec),
    specs,
    is_leaf=lambda x: isinstance(x, PartitionSpec),
  )


def on_each(
  function: Callable, mesh: Mesh | None, into: Any, out: Any
) -> Callable:
  """Runs a function on every device, on that device's part of the clients.

  Args:
    function: to run; with a mesh it may use collectives over AXIS.
    mesh: the devices; None runs it as it is.
    into: for each argument its specs, a prefix of its tree.
    out: likewise of the result.
  """
  if mesh is None:
    return function
  # Without check_vma: with it, a gradient with respect to what all devices
  # share would be summed over them, and every client's step would be mixed.
  return jax.shard_map(
    function, mesh=mesh, in_specs=into, out_specs=out, check_vma=False
  )
