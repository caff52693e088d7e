"""What TensorBoard shows of a run: the lines of metrics.jsonl as event files.

An event file is a row of records (length, checksum, Event, checksum), and an
Event a protocol buffer of five fields: both are written here. The packages that
write them import PyTorch or TensorFlow where they find it, which takes seconds,
and write in a thread that a full disk ends unnoticed.
"""

import math
import os
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files

FOLDER = "tensorboard"
"""Folder of a workdir for `tensorboard --logdir`; a run of it per method."""

NAME = "events.out.tfevents."
"""How the name of an event file begins."""

Line = dict[str, Any]
"""One line of metrics.jsonl."""


def rewrite(workdir: Path, key: str, lines: Sequence[Line]) -> Path:
  """Begins a method's event file with what is known of it, and nothing else.

  Args:
    workdir: the run's.
    key: of the method.
    lines: of the rounds that are done.

  Returns:
    The file, to append to. Its name is new, as whoever looks meanwhile reads
    no file a second time.
  """
  folder = workdir / FOLDER / key
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob(f"{NAME}*"):
    if old.stat().st_size:
      os.truncate(old, 0)  # gone, it would leave whoever reads it stuck
    else:
      old.unlink()
  path = folder / f"{NAME}{time.time_ns()}"
  now = time.time()
  # A reader that knew an earlier file forgets its rounds, from the first on.
  head = [_text(3, "brain.Event:2"), _number(2, 1) + _bytes(7, _number(1, 1))]
  records = [_record(_double(1, now) + event) for event in head]
  left = sum(line["seconds"] for line in lines)
  for line in lines:  # as if they had come one after another until now
    left -= line["seconds"]
    records.append(_record(_event(line, now - left)))
  files.write_bytes(path, lambda file: file.writelines(records))
  return path


def append(path: Path, line: Line) -> None:
  """Adds a round to a method's event file."""
  with path.open("ab") as file:
    file.write(_record(_event(line, time.time())))


def scalars(line: Line) -> dict[str, float]:
  """Tag -> value of one round; null, which no number was, becomes NaN.

  Accuracies of a method's second row (+FT) stand under its suffix, so that
  methods of any label share their tags.
  """
  sent = line["wire"]
  found = {f"loss/{name}": value for name, value in line["loss"].items()}
  found["bytes/all"] = sum(sent.values())
  found |= {f"bytes/{name}": size for name, size in sent.items()}
  found["clients/participants"] = line["participants"]
  found["clients/masked"] = len(line["masked"])
  found |= {f"faults/{k}": count for k, count in line.get("faults", {}).items()}
  found["seconds/round"] = line["seconds"]
  rows = line.get("accuracy", {})
  first = next(iter(rows), "")
  for label, accuracy in rows.items():
    group = f"accuracy{label.removeprefix(first)}"
    found |= {f"{group}/{name}": value for name, value in accuracy.items()}
  return {k: math.nan if v is None else float(v) for k, v in found.items()}


def _event(line: Line, wall: float) -> bytes:
  """An Event: wall_time 1, step 2, summary 5 with its values 1."""
  values = b"".join(
    _bytes(1, _text(1, tag) + _float(2, value))
    for tag, value in scalars(line).items()
  )
  return _double(1, wall) + _number(2, line["round"]) + _bytes(5, values)


def _record(data: bytes) -> bytes:
  """Frames an Event as TFRecord does."""
  length = struct.pack("<Q", len(data))
  return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
  """CRC-32C, rotated and moved as TFRecord does."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
  crc ^= 0xFFFFFFFF
  turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
  return struct.pack("<I", (turned + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> Iterable[int]:
  """CRC-32C of every single byte."""
  for crc in range(256):
    for _ in range(8):
      crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    yield crc


_TABLE = tuple(_table())


# Fields of a protocol buffer: number and kind, then the value.


def _varint(value: int) -> bytes:
  out = bytearray()
  while value > 0x7F:
    out.append(value & 0x7F | 0x80)
    value >>= 7
  return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
  return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
  return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
  return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
  return _bytes(field, value.encode())


def _float(field: int, value: float) -> bytes:
  return _varint(field << 3 | 5) + struct.pack("<f", value)
