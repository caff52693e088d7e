"""Processes and CPU devices of a run, and the folder of compiled programs.

All processes compute and save the states. Process 0 writes the rest.
"""

import os
import sys
from pathlib import Path

import jax
import joblib
import numpy as np
from jax.experimental import multihost_utils

from splitjax import target
from splitjax.engine.devices import compile_quickly
from splitjax.files import expanded
from splitjax.types import UserError

_MOST_CORES = 8
"""Default limit of CPU devices: each holds a copy of the data set."""

_MOST_DEVICES = 256
"""Limit of --cpu_devices: each device has threads of its own."""


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


def use_cores(count: int | None = None) -> None:
  """Splits a CPU into several devices, so that clients train on all cores.

  One device uses several cores only within large operations. Accelerators are
  not affected. Call it before anything is computed.

  Args:
    count: number of devices. None: the number that XLA_FLAGS or
      JAX_NUM_CPU_DEVICES sets, else one per core that the process may use, but
      at most MOST_CORES.

  Raises:
    UserError: `count` is not in 1..MOST_DEVICES; or XLA_FLAGS sets a number of
      devices too; or jax already runs with another number of devices.
  """
  if count is not None and not 1 <= count <= _MOST_DEVICES:
    raise UserError(f"--cpu_devices={count} must be in 1..{_MOST_DEVICES}")
  flag = "--xla_force_host_platform_device_count"
  forced = flag in os.environ.get("XLA_FLAGS", "")
  if forced and count is not None:
    text = f"XLA_FLAGS has {flag}: leave one of them out"
    raise UserError(f"--cpu_devices={count}: {text}")
  is_set = forced or "JAX_NUM_CPU_DEVICES" in os.environ
  count = count or (None if is_set else min(joblib.cpu_count(), _MOST_CORES))
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


def check_platform() -> None:
  """Starts jax's backend; call it after `initialize` and `use_cores`.

  Raises:
    UserError: jax lacks a plugin or device for the platforms in JAX_PLATFORMS.
  """
  try:
    target.current()
  except (AssertionError, RuntimeError) as error:  # jax asserts without a text
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    reason = str(error).partition("\n")[0] or "it finds no device of that kind"
    raise UserError(
      f"JAX_PLATFORMS={platforms}: jax cannot compute there ({reason}): correct"
      " or unset it, or install the plugin, such as pip install 'jax[cuda13]'"
    ) from None


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
