"""Several processes of one run: who writes, who waits, what is kept."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from splitjax.types import UserError


def initialize(
  address: str | None,
  processes: int | None,
  number: int | None,
  *,
  detect: bool = False,
) -> None:
  """Joins the processes of a run, before anything else is done with jax.

  Args:
    address: HOST:PORT where process 0 can be reached; None: alone.
    processes: how many there are.
    number: of this one, from 0 on.
    detect: jax asks Slurm, Open MPI or the TPU pod for all three.

  Raises:
    UserError: the flags do not go together, or nobody answers.
  """
  given = (address, processes, number)
  if detect:
    if given != (None, None, None):
      raise UserError(
        "--distributed finds out --coordinator_address, --num_processes and"
        " --process_id: give it alone, or those three"
      )
  elif given == (None, None, None):
    return
  elif address is None or processes is None or number is None:
    raise UserError(
      "--coordinator_address, --num_processes and --process_id go together;"
      " on Slurm, Open MPI or a TPU pod --distributed finds them out"
    )
  elif not 0 <= number < processes:
    raise UserError(
      f"--process_id={number} must lie in 0..{processes - 1}"
      f" (--num_processes={processes})"
    )
  try:
    jax.distributed.initialize(address, processes, number)
  except (RuntimeError, ValueError) as error:
    reason = str(error).partition("\n")[0]
    raise UserError(
      f"the processes did not meet ({reason}): is process 0 running, and its"
      " --coordinator_address right?"
    ) from None


CGROUP = Path("/sys/fs/cgroup/cpu.max")
"""Quota and period of the CPU time of a container, in microseconds."""

MOST_CORES = 8
"""Devices that a CPU counts as, if not told: each has a copy of the data."""


def use_cores(count: int | None = None) -> None:
  """Lets a CPU count as several devices, so that clients train on all cores.

  One device uses several cores within large operations alone. To be called
  before anything is computed; accelerators are what they are.

  Args:
    count: how many; None: one for each core, at most MOST_CORES, unless
      XLA_FLAGS or JAX_NUM_CPU_DEVICES says so already.

  Raises:
    UserError: a count that cannot be.
  """
  if count is not None and count < 1:
    raise UserError(f"--cpu_devices={count} must be at least 1")
  forced = "xla_force_host_platform_device_count" in os.environ.get(
    "XLA_FLAGS", ""
  )
  if forced and count is not None:
    raise UserError(
      f"--cpu_devices={count}: XLA_FLAGS has"
      " --xla_force_host_platform_device_count: leave one of them out"
    )
  told = forced or "JAX_NUM_CPU_DEVICES" in os.environ
  if count is not None or not told:
    most = min(_cores(), MOST_CORES)
    jax.config.update("jax_num_cpu_devices", count or most)


def _cores() -> int:
  """How many cores this process may use at once, rounded up."""
  try:
    cores = len(os.sched_getaffinity(0))
  except AttributeError:  # not on a Mac
    return os.cpu_count() or 1
  with contextlib.suppress(OSError, ValueError):  # without cgroups, or a limit
    quota, period = CGROUP.read_text().split()
    cores = min(cores, -(-int(quota) // int(period)))
  return max(cores, 1)


def is_first_process() -> bool:
  """Whether this process is the one that writes reports."""
  return jax.process_index() == 0


def is_distributed() -> bool:
  """Whether a run has more than one process."""
  return jax.process_count() > 1


@contextlib.contextmanager
def all_agree() -> Iterator[None]:
  """What no process survives alone: all leave it, or all raise.

  So it is also a place where everyone waits for the slowest.

  Raises:
    UserError: another process failed in it; its own message says why.
  """
  problem = None
  try:
    yield
  except (UserError, OSError) as error:
    problem = error
  if is_distributed():
    failed = multihost_utils.process_allgather(np.array(problem is not None))
    if problem is None and failed.any():
      raise UserError(
        f"process {int(failed.argmax())} cannot go on, and so none can: it"
        " says why"
      )
  if problem is not None:
    raise problem


def of_first(flags: Sequence[bool]) -> list[bool]:
  """What process 0 thinks, for all: files may show later elsewhere."""
  if not is_distributed():
    return list(flags)
  said = multihost_utils.broadcast_one_to_all(np.array(flags, bool))
  return [bool(flag) for flag in said]


def any_process(flag: bool) -> bool:
  """Whether it is so in any of the processes."""
  if not is_distributed():
    return flag
  return bool(multihost_utils.process_allgather(np.array(flag)).any())


def keep_compiled(folder: Path | None) -> None:
  """Keeps compiled programs in a folder, for the next start; None: nowhere."""
  if folder is None:
    jax.config.update("jax_enable_compilation_cache", False)
    return
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
