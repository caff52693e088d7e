"""Arrays stored as .npy files and memory-mapped: read fast, shared by runs.

They are written row by row in the order in which they are decoded, so that a
data set of any size is in memory once or not at all.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
"""train_image, train_label, ..., test_image, test_label, ..."""


class Rows(NamedTuple):
  """Consecutive rows of one array.

  Attributes:
    key: name of the array.
    start: number of the first row.
    total: Z, rows of the whole array.
    rows: [B, ...].
  """

  key: str
  start: int
  total: int
  rows: np.ndarray


def collect(parts: Iterable[Rows]) -> Arrays:
  """Assembles arrays in memory.

  Args:
    parts: all rows of all arrays.

  Returns:
    The arrays.
  """
  arrays: Arrays = {}
  for key, start, total, rows in parts:
    if key not in arrays:
      arrays[key] = np.empty((total, *rows.shape[1:]), rows.dtype)
    arrays[key][start : start + len(rows)] = rows
  return arrays


def store(parts: Iterable[Rows], folder: Path) -> None:
  """Writes arrays into files, all of them or none.

  The files are written into another folder, which is renamed once they are on
  the disk: no reader sees an incomplete copy, not even after a power failure.
  Everything else in the parent folder is stale and is removed. The caller locks
  the parent folder (`files.locked`).

  Args:
    parts: all rows of all arrays.
    folder: to be made, with a KEY.npy for each array.

  Raises:
    OSError: it cannot be written. Files are written, not memory-mapped: on a
      full disk a memory map would kill the process.
  """
  shutil.rmtree(folder.parent, ignore_errors=True)
  partial = folder.with_name("partial")
  partial.mkdir(parents=True)
  try:
    _write(parts, partial)
    _sync(partial)
    partial.rename(folder)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def _write(parts: Iterable[Rows], folder: Path) -> None:
  """Writes KEY.npy of every array, row by row."""
  with contextlib.ExitStack() as stack:
    files: dict[str, IO] = {}
    for key, _, total, rows in parts:
      if key not in files:
        files[key] = stack.enter_context((folder / f"{key}.npy").open("wb"))
        header = {
          "descr": np.lib.format.dtype_to_descr(rows.dtype),
          "fortran_order": False,
          "shape": (total, *rows.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(files[key], header)
      files[key].write(rows.tobytes())
    for file in files.values():
      file.flush()
      os.fsync(file.fileno())


def _sync(folder: Path) -> None:
  """Flushes the names in a folder to the disk, if the file system can."""
  with contextlib.suppress(OSError):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)


def read(folder: Path, keys: Iterable[str]) -> Arrays:
  """Opens stored arrays.

  Args:
    folder: of `store`.
    keys: which arrays.

  Returns:
    The arrays, memory-mapped and read-only.

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
