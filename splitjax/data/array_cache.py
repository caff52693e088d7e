"""Arrays in .npy files, read fast and shared between runs by memory maps."""

import functools
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from splitjax import files

Arrays = dict[str, np.ndarray]
"""Name -> array, such as train_image, train_label, test_image, test_label."""


def store(arrays: Arrays, folder: Path) -> None:
  """Writes arrays as KEY.npy into a new folder, all of them or none.

  The files are written into a temporary folder, which is then renamed.
  Everything else in the parent folder is stale and is removed. The caller locks
  the parent folder (`files.locked`).

  Raises:
    OSError: the folder cannot be written, or the disk is full. (Writing to a
      memory map on a full disk would kill the process instead.)
  """
  shutil.rmtree(folder.parent, ignore_errors=True)
  partial = folder.with_name("partial")
  partial.mkdir(parents=True)
  try:
    for key, array in arrays.items():
      save = functools.partial(np.save, arr=array)
      files.write_bytes(partial / f"{key}.npy", save)
    partial.rename(folder)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def read_arrays(folder: Path, keys: Iterable[str]) -> Arrays:
  """Opens stored arrays, memory-mapped and read-only.

  Raises:
    OSError: an array is missing.
    ValueError: a file has no valid header or a wrong size.
  """
  arrays = {}
  for key in keys:
    path = folder / f"{key}.npy"
    array = arrays[key] = np.load(path, mmap_mode="r")
    if array.offset + array.nbytes != path.stat().st_size:
      raise ValueError(f"{path.name} has a wrong size")
  return arrays
