"""Prepares jax for a process: the cores of a CPU, compiled programs on disk."""

import sys
from pathlib import Path

import jax

from splitjax.engine import distributed
from splitjax.files import expanded

_compiled_folder: Path | None = None


def compiled_folder() -> Path | None:
  """Where compiled programs are kept for later processes; None: nowhere."""
  return _compiled_folder


def keep_compiled(folder: str | Path) -> None:
  """Keeps compiled programs in a folder for later runs; "" keeps none.

  A folder that cannot be made is a warning: runs work without it.
  """
  global _compiled_folder
  _compiled_folder = expanded(folder) if folder else None
  if _compiled_folder is not None:
    try:
      _compiled_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      print(f"--compilation_cache={folder}: {error}", file=sys.stderr)
      _compiled_folder = None
  if _compiled_folder is None:
    jax.config.update("jax_enable_compilation_cache", False)
    return
  jax.config.update("jax_enable_compilation_cache", True)
  jax.config.update("jax_compilation_cache_dir", str(_compiled_folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def set_up(
  cpu_devices: int | None = None, compilation_cache: str = "~/.cache/splitjax"
) -> None:
  """Prepares jax as the command line does; call it before anything is computed.

  Clients train on all cores of a CPU, compiling takes less time, and programs
  that the command line or an earlier start has compiled are not compiled again.
  A second call changes nothing.

  Args:
    cpu_devices: number of devices that the CPU counts as; None: one per core,
      at most 8.
    compilation_cache: folder of compiled programs; "" for none.

  Raises:
    UserError: as `distributed.use_cores`.
  """
  keep_compiled(compilation_cache)
  distributed.use_cores(cpu_devices)
