"""Prepares jax for a process: the cores of a CPU, compiled programs on disk."""

import sys
from pathlib import Path

import jax

from splitjax.engine import distributed
from splitjax.files import expanded


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
      `distributed.use_cores`, usually one per core and at most 8.
    compilation_cache: folder of compiled programs; "" for none.

  Raises:
    UserError: as `distributed.use_cores`.

  Example:
    >>> import jax, splitjax
    >>> splitjax.set_up(cpu_devices=2)
    >>> jax.device_count()
    2
  """
  keep_compiled(compilation_cache)
  distributed.use_cores(cpu_devices)
