"""What TensorBoard shows of a run: the lines of metrics.jsonl as event files.

Events and checksums are tensorboardX's. Its writer is not used: it writes in a
thread, which a full disk would end unnoticed. The package is imported when the
first file is begun, for it imports PyTorch where it finds it.
"""

import functools
import math
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.evaluation import forgetting
from splitjax.types import UserError

FOLDER = "tensorboard"
"""Folder of a workdir for `tensorboard --logdir`; a run of it per method."""

NAME = "events.out.tfevents."
"""How the name of an event file begins."""

Line = dict[str, Any]
"""One line of metrics.jsonl."""


def ready() -> None:
  """Raises UserError where event files could not be written."""
  _tensorboardx()


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
  records = [
    _record(wall_time=now, file_version="brain.Event:2"),
    # A reader that knew an earlier file forgets its rounds, from the first on.
    _record(wall_time=now, step=1, session_log={"status": "START"}),
  ]
  left = sum(line["seconds"] for line in lines)
  for line in lines:  # as if they had come one after another until now
    left -= line["seconds"]
    records.append(_round(line, now - left))
  files.write_bytes(path, lambda file: file.writelines(records))
  return path


def append(path: Path, line: Line) -> None:
  """Adds a round to a method's event file."""
  with path.open("ab") as file:
    file.write(_round(line, time.time()))


def scalars(line: Line) -> dict[str, float]:
  """Tag -> value of one round; null, which no number was, becomes NaN.

  Accuracies of a method's second row (+FT) stand under its suffix, so that
  methods of any label share their tags; the gap between classes likewise, on
  the global test set alone.
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
    if "global" in accuracy and "per_class" in line:
      shares = np.array(line["per_class"][label], float)
      gap = forgetting.performance_gap(shares)
      found[f"gap{label.removeprefix(first)}/global"] = float(gap)
  return {k: math.nan if v is None else float(v) for k, v in found.items()}


def _round(line: Line, wall: float) -> bytes:
  """The record of one round, at a time in seconds."""
  values = [{"tag": k, "simple_value": v} for k, v in scalars(line).items()]
  return _record(wall_time=wall, step=line["round"], summary={"value": values})


def _record(**event: Any) -> bytes:
  """An Event, framed as TFRecord does."""
  make, checksum = _tensorboardx()
  data = make(**event).SerializeToString()
  length = struct.pack("<Q", len(data))
  parts = [length, _number(checksum(length)), data, _number(checksum(data))]
  return b"".join(parts)


def _number(value: int) -> bytes:
  return struct.pack("<I", value)


@functools.cache
def _tensorboardx() -> tuple[Any, Any]:
  """The Event message, and TFRecord's checksum.

  Raises:
    UserError: the package is not there.
  """
  try:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c
  except ImportError as error:
    raise UserError(
      f"event files for TensorBoard need tensorboardX ({error}): pip install"
      " 'tensorboardX>=2.6.4', or --config.tensorboard=False"
    ) from None
  return Event, masked_crc32c
