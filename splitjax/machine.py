"""Connects a run's processes; splits a CPU into devices; keeps programs.

All processes compute and save the states. Process 0 writes the rest.
"""

import contextlib
import os
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from splitjax import target
from splitjax.files import expanded
from splitjax.types import UserError


def initialize(
  address: str | None, processes: int | None, number: int | None
) -> None:
  """Connects the processes of a run; call it before any other use of jax.

  Args:
    address: HOST:PORT of process 0; None for a run of one process.
    processes: number of processes.
    number: number of this process, from 0 on.

  Raises:
    UserError: an argument is missing, or the processes cannot connect.
  """
  flags = (address, processes, number)
  if flags == (None, None, None):
    return
  if None in flags:
    raise UserError(
      "--coordinator_address, --num_processes and --process_id go together"
    )
  try:
    jax.distributed.initialize(address, processes, number)
  except (RuntimeError, ValueError) as error:
    reason = str(error).partition("\n")[0]
    raise UserError(
      f"the processes could not connect ({reason}): is process 0 running, and"
      " its --coordinator_address right?"
    ) from None


_HINT = " (set JAX_PLATFORMS='' to automatically choose an available backend)"


def check_platform() -> None:
  """Starts jax's backend; call it after `initialize` and `use_cores`.

  Raises:
    UserError: jax lacks a plugin or device for the platforms in JAX_PLATFORMS.
  """
  try:
    target.attached()
  except (AssertionError, RuntimeError) as error:  # jax asserts without a text
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    why = str(error).partition("\n")[0].removesuffix(_HINT)
    raise UserError(
      f"JAX_PLATFORMS={platforms}: jax cannot compute there"
      f" ({why or 'it finds no device of that kind'}): correct or unset it, or"
      " install the plugin, such as pip install 'jax[cuda13]'"
    ) from None


CGROUP = Path("/sys/fs/cgroup/cpu.max")
"""File with a container's quota and period of CPU time, microseconds."""

NO_UNROLLING = "xla_cpu_disable_loop_unrolling"
"""An option of XLA's CPU backend, see `compile_quickly`."""

MOST_CORES = 8
"""Default limit of CPU devices: each holds a copy of the data set."""

MOST_DEVICES = 256
"""Limit of --cpu_devices: each device has threads of its own."""


def use_cores(count: int | None = None) -> None:
  """Splits a CPU into several devices, so that clients train on all cores.

  One device uses several cores only within large operations. `compile_quickly`
  is called, too. Call `use_cores` before anything is computed. Accelerators are
  not affected.

  Args:
    count: number of devices. None: the number that XLA_FLAGS or
      JAX_NUM_CPU_DEVICES sets, else one per core, but at most MOST_CORES.

  Raises:
    UserError: `count` is not in 1..MOST_DEVICES; or XLA_FLAGS sets a number of
      devices too; or jax already runs with another number of devices.

  Example:
    >>> import jax, splitjax
    >>> splitjax.use_cores(2)
    >>> jax.device_count()
    2
  """
  if count is not None and not 1 <= count <= MOST_DEVICES:
    raise UserError(f"--cpu_devices={count} must be in 1..{MOST_DEVICES}")
  forced = "xla_force_host_platform_device_count" in os.environ.get(
    "XLA_FLAGS", ""
  )
  if forced and count is not None:
    raise UserError(
      f"--cpu_devices={count}: XLA_FLAGS has"
      " --xla_force_host_platform_device_count: leave one of them out"
    )
  is_set = forced or "JAX_NUM_CPU_DEVICES" in os.environ
  count = count or (None if is_set else min(_cores(), MOST_CORES))
  current = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
  if count is not None and count != current:
    try:
      jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
      raise UserError(
        "jax has looked for devices already: call splitjax.set_up() before"
        " anything else uses jax, in a notebook after a restart of its kernel"
      ) from None
  compile_quickly()


def compile_quickly() -> None:
  """Sets XLA_FLAGS to compile for the CPU without unrolled loops.

  `devices` then also selects `devices.OLDER_EMITTERS`. Both changes together
  compile programs in about two thirds of the CPU time, and rounds are as fast
  as before. With only one of them, compiling takes longer than with both, or
  rounds are slower. XLA reads XLA_FLAGS when it first compiles. If XLA_FLAGS
  already has xla_backend_extra_options, nothing is changed. A version of XLA
  that does not know the new option ignores it. Options of LLVM are not used,
  because an option that LLVM does not know ends the process.
  """
  flags = os.environ.get("XLA_FLAGS", "")
  if "xla_backend_extra_options" not in flags:
    extra = f"--xla_backend_extra_options={NO_UNROLLING}"
    os.environ["XLA_FLAGS"] = f"{flags} {extra}".strip()


def _cores() -> int:
  """Counts the cores that this process may use, rounded up."""
  try:
    cores = len(os.sched_getaffinity(0))
  except AttributeError:  # macOS
    return os.cpu_count() or 1
  with contextlib.suppress(OSError, ValueError):  # no cgroups, or no limit
    quota, period = CGROUP.read_text().split()
    cores = min(cores, -(-int(quota) // int(period)))
  return max(cores, 1)


def keep_compiled(folder: str | Path) -> None:
  """Keeps compiled programs in a folder for later runs; "" keeps none.

  If the folder cannot be made, a warning is printed and nothing is kept.
  """
  path = expanded(folder) if folder else None
  if path is not None:
    try:
      path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
      print(f"--compilation_cache={folder}: {error}", file=sys.stderr)
      path = None
  jax.config.update("jax_enable_compilation_cache", path is not None)
  if path is not None:
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def set_up(
  cpu_devices: int | None = None, compilation_cache: str = "~/.cache/splitjax"
) -> None:
  """Prepares jax as the command line does; call it before anything is computed.

  Clients train on all cores of a CPU, compiling takes less time, and programs
  that the command line or an earlier start has compiled are not compiled again.
  A second call with the same arguments changes nothing.

  Args:
    cpu_devices: number of devices that the CPU is split into; None: see
      `use_cores`, usually one per core and at most 8.
    compilation_cache: folder of compiled programs; "" for none.

  Raises:
    UserError: as `use_cores`.

  Example:
    >>> import jax, splitjax
    >>> splitjax.set_up(cpu_devices=2)
    >>> jax.device_count()
    2
  """
  keep_compiled(compilation_cache)
  use_cores(cpu_devices)


def is_first_process() -> bool:
  """Tells whether this process writes the run's files."""
  return jax.process_index() == 0


def is_distributed() -> bool:
  """Tells whether the run has more than one process."""
  return jax.process_count() > 1


def wait_for_all(point: str) -> None:
  """Waits until all processes are at the point with this name."""
  multihost_utils.sync_global_devices(point)


def of_first(number: int) -> int:
  """Returns on every process the number that process 0 gives."""
  return int(multihost_utils.broadcast_one_to_all(np.int32(number)))
