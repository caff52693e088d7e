"""Numeric arrays of a MATLAB 5 file.

scipy.io.loadmat reads outside its memory, and ends the process, where a file is
damaged in certain places; here every size is compared with what there is.

MathWorks, MAT-File Format, "Level 5 MAT-File Format".
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

_HEAD = 128
_MATRIX, _COMPRESSED, _INT32, _UINT32 = 14, 15, 5, 6
_STORED = {
  1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8",
  12: "i8", 13: "u8",
}  # fmt: skip
"""Type of an element -> its numbers."""

_MEANT = {
  6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4",
  14: "i8", 15: "u8",
}  # fmt: skip
"""Class of an array -> its numbers; they may be stored as smaller ones."""


class _Element(NamedTuple):
  """What a file is made of: a type and bytes."""

  kind: int
  body: memoryview


def read(path: Path) -> dict[str, np.ndarray]:
  """Reads all numeric arrays of a file; what else is in it is left alone.

  Args:
    path: of the file, little-endian as all are that this century wrote.

  Returns:
    Name -> array, in the order of columns as MATLAB has it.

  Raises:
    ValueError: it is no such file, or damaged.
    zlib.error: likewise.
  """
  raw = path.read_bytes()
  if raw[124:128] != b"\x00\x01IM":
    raise ValueError("no head of a MATLAB 5 file")
  found = {}
  for kind, body in _elements(memoryview(raw)[_HEAD:]):
    if kind == _COMPRESSED:
      ((kind, body),) = _elements(memoryview(zlib.decompress(body)))
    if kind == _MATRIX:
      name, array = _matrix(body)
      if array is not None:
        found[name] = array
  return found


def _elements(raw: memoryview) -> Iterator[_Element]:
  """Cuts bytes into elements, each with its size before it."""
  at = 0
  while at < len(raw):
    if at + 8 > len(raw):
      raise ValueError("cut short within a tag")
    kind, size = struct.unpack_from("<II", raw, at)
    start = at + 8
    if kind >> 16:  # up to four bytes lie within the tag
      kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
    body = raw[start : start + size]
    if len(body) < size or (start < at + 8 and size > 4):
      raise ValueError(f"announces {size} bytes and holds {len(body)}")
    yield _Element(kind, body)
    # Padded to a multiple of eight, except for what is compressed.
    at = max(start, at + 8) if start < at + 8 else start + size
    if kind != _COMPRESSED:
      at += -at % 8


def _matrix(body: memoryview) -> tuple[str, np.ndarray | None]:
  """Name and values of an array; None where it holds no plain numbers."""
  flags, dimensions, name, *values = _elements(body)
  if flags.kind != _UINT32 or dimensions.kind != _INT32:
    raise ValueError("an array without flags and dimensions")
  (flag, _) = struct.unpack("<II", flags.body)
  text = bytes(name.body).decode("ascii")
  if flag & 0xFF not in _MEANT or flag & 0x800 or len(values) != 1:
    return text, None  # text, cells, complex numbers
  shape = np.frombuffer(dimensions.body, "<i4").tolist()
  stored = np.frombuffer(values[0].body, f"<{_STORED[values[0].kind]}")
  if min(shape, default=0) < 0 or math.prod(shape) != stored.size:
    raise ValueError(f"{stored.size} numbers for an array of shape {shape}")
  meant = stored.astype(_MEANT[flag & 0xFF], copy=False)
  return text, meant.reshape(shape, order="F")
