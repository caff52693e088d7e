"""Processes and CPU devices of a run, and the folder of compiled programs.

All processes compute and save the states. Process 0 writes the rest.
"""

import contextlib
import os
import platform
import re
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


def set_up(
  cpu_devices: int | None = None, compilation_cache: str = "~/.cache/splitjax"
) -> None:
  """Prepares jax as the command line does; call it before anything is computed.

  Clients train on all cores of a CPU, compiling takes less time, and programs
  that the command line or an earlier start has compiled are not compiled again.
  A second call with the same arguments changes nothing.

  Args:
    cpu_devices: number of devices that the CPU is split into; None: the number
      that XLA_FLAGS or JAX_NUM_CPU_DEVICES sets, else one per core that the
      process may use, but at most 8. Accelerators are not affected.
    compilation_cache: folder of compiled programs; "" for none.

  Raises:
    UserError: the number is not in 1..256, XLA_FLAGS sets one too, or jax
      already runs with another one.

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

  One device uses several cores only within large operations. `count` is
  `cpu_devices` of `set_up`.
  """
  if count is not None and not 1 <= count <= 256:  # each has threads
    raise UserError(f"--cpu_devices={count} must be in 1..256")
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


def connect(
  address: str | None, processes: int | None, number: int | None
) -> None:
  """Connects the processes of a run, if there are several, and starts jax.

  Args:
    address: HOST:PORT of process 0; None for a run of one process.
    processes: number of processes.
    number: number of this process, from 0 on.

  Raises:
    UserError: an argument is missing, the processes cannot connect, or jax
      cannot compute on the platforms in JAX_PLATFORMS.
  """
  flags = address, processes, number
  if flags != (None, None, None):
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
  try:
    target.current()
  except (AssertionError, RuntimeError) as error:  # jax asserts without a text
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    reason = str(error).partition("\n")[0] or "it finds no device of that kind"
    raise UserError(
      f"JAX_PLATFORMS={platforms}: jax cannot compute there ({reason}): correct"
      " or unset it, or install the plugin, such as pip install 'jax[cuda13]'"
    ) from None


CPUINFO = Path("/proc/cpuinfo")
"""Linux's file with the names of the processors."""


def hardware() -> str:
  """Returns devices, CPU and the versions of Python and jax in one line."""
  name = platform.processor()
  with contextlib.suppress(OSError):
    text = CPUINFO.read_text(encoding="utf-8")
    if match := re.search(r"^model name\s*: (.*)$", text, re.M):
      name = match[1]
  aim = target.current()
  return (
    f"{len(aim.devices)} {aim.kind} device(s) ({aim.platform}),"
    f" {os.cpu_count()} CPU cores{f' ({name})' if name else ''},"
    f" {platform.machine()}, Python {platform.python_version()},"
    f" jax {jax.__version__}"
  )


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
