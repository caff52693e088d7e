"""Arrays kept as .npy files, memory-mapped: read quickly, shared by runs.

Each has a checksum, compared whenever it is opened: a damaged disk must not
change what is learned. They are written row by row in the order in which they
are decoded, so that a data set of any size is held in memory once or not at
all.
"""

import contextlib
import io
import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

_SUMS = "crc32.txt"

Arrays = dict[str, np.ndarray]
"""train_image, train_label, ..., test_image, test_label, ..."""


class Rows(NamedTuple):
  """Some rows of one array, the next ones in order.

  Attributes:
    key: name of the array.
    start: number of its first row here.
    total: Z, rows that the whole array has.
    rows: [B, ...].
  """

  key: str
  start: int
  total: int
  rows: np.ndarray


def collect(parts: Iterable[Rows]) -> Arrays:
  """Puts arrays together in memory.

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


def keep(parts: Iterable[Rows], folder: Path) -> None:
  """Writes arrays into files, all of them or none.

  Under another name first, then, once they are on the disk, renamed: half a
  copy is never seen, not even after a power cut. Whatever
  else lies beside is stale, or what a killed process left: it is removed. The
  caller holds a lock for the parent folder (lock.py).

  Args:
    parts: all rows of all arrays.
    folder: to be made; KEY.npy in it.

  Raises:
    OSError: it cannot be written. A plain write says so; a memory map, on a
      full disk, would kill the process instead.
  """
  shutil.rmtree(folder.parent, ignore_errors=True)
  half = folder.with_name("half")
  half.mkdir(parents=True)
  try:
    _write(parts, half)
    _sync(half)
    half.rename(folder)
  except BaseException:
    shutil.rmtree(half, ignore_errors=True)
    raise


def _write(parts: Iterable[Rows], folder: Path) -> None:
  """Writes KEY.npy of every array, row by row, and their checksums."""
  with contextlib.ExitStack() as stack:
    files: dict[str, IO] = {}
    sums: dict[str, int] = {}
    for key, _, total, rows in parts:
      if key not in files:
        files[key] = stack.enter_context((folder / f"{key}.npy").open("wb"))
        head = {
          "descr": np.lib.format.dtype_to_descr(rows.dtype),
          "fortran_order": False,
          "shape": (total, *rows.shape[1:]),
        }
        start = io.BytesIO()
        np.lib.format.write_array_header_1_0(start, head)
        files[key].write(start.getvalue())
        sums[key] = zlib.crc32(start.getvalue())
      raw = rows.tobytes()
      files[key].write(raw)
      sums[key] = zlib.crc32(raw, sums[key])
    text = "".join(_line(key, total) for key, total in sums.items())
    files[_SUMS] = stack.enter_context((folder / _SUMS).open("wb"))
    files[_SUMS].write(text.encode())
    for file in files.values():
      file.flush()
      os.fsync(file.fileno())


def _line(key: str, checksum: int) -> str:
  """A line of the file of checksums."""
  return f"{checksum:08x} {key}.npy\n"


def _check(folder: Path, keys: Iterable[str]) -> None:
  """Raises ValueError unless the files have the checksums they were given."""
  known = (folder / _SUMS).read_text().splitlines(keepends=True)
  for key in keys:
    checksum = 0
    with (folder / f"{key}.npy").open("rb") as file:
      while piece := file.read(1 << 22):
        checksum = zlib.crc32(piece, checksum)
    if _line(key, checksum) not in known:
      raise ValueError(f"{key}.npy is not as it was written")


def _sync(folder: Path) -> None:
  """Puts the names in a folder on the disk, where the file system can."""
  with contextlib.suppress(OSError):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)


def read(folder: Path, keys: Iterable[str]) -> Arrays:
  """Opens kept arrays.

  Args:
    folder: where they are.
    keys: which.

  Returns:
    The arrays, memory-mapped and read-only.

  Raises:
    OSError: there is no such array.
    ValueError: one is not as it was written.
  """
  keys = list(keys)
  _check(folder, keys)
  return {key: np.load(folder / f"{key}.npy", mmap_mode="r") for key in keys}
