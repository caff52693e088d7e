"""Event files for TensorBoard, written from the lines of metrics.jsonl.

tensorboardX writes messages, frames and checksums. Its SummaryWriter is not
used: it writes in a thread behind a bounded queue, so that after an error such
as a full disk the training would wait forever. The package is imported only if
it is used, because it imports PyTorch if that is installed.
"""

import functools
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from splitjax import files
from splitjax.evaluation import forgetting
from splitjax.types import UserError

FOLDER = "tensorboard"
"""Folder in a workdir for `tensorboard --logdir`, with one run per method."""

NAME = "events.out.tfevents."
"""Prefix of an event file's name."""

Line = dict[str, Any]
"""One line of metrics.jsonl."""


def rewrite(workdir: Path, key: str, lines: Iterable[Line]) -> Path:
  """Rewrites a method's event file with the finished rounds.

  `lines` is iterated twice. Returns the file, to append to. The file gets a new
  name, because a running TensorBoard would not reread a replaced file.
  """
  folder = workdir / FOLDER / key
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.glob(f"{NAME}*"):
    if old.stat().st_size:
      os.truncate(old, 0)  # a running TensorBoard would wait for a deleted file
    else:
      old.unlink()
  path, now = folder / f"{NAME}{time.time_ns()}", time.time()
  whole = sum(line["seconds"] for line in lines)

  def events():
    yield {"wall_time": now, "file_version": "brain.Event:2"}
    # Makes a running TensorBoard drop the rounds of an earlier file.
    yield {"wall_time": now, "step": 1, "session_log": {"status": "START"}}
    left = whole  # as if the rounds had run without a break until now
    for line in lines:
      left -= line["seconds"]
      yield _round(line, now - left)

  files.write_bytes(path, lambda file: _write(file, events()))
  return path


def append(path: Path, line: Line) -> None:
  """Adds a round to a method's event file."""
  with path.open("ab") as file:
    _write(file, [_round(line, time.time())])


def scalars(line: Line) -> dict[str, float]:
  """Maps the tags of one round to values; null becomes NaN.

  Tags contain the suffix of a row (+FT) instead of its label, so that all
  methods use the same tags. Only the global test set has a tag for the gap
  between classes.
  """
  sent = line["wire"]
  values = {f"loss/{name}": value for name, value in line["loss"].items()}
  values["bytes/all"] = sum(sent.values())
  values |= {f"bytes/{name}": size for name, size in sent.items()}
  values["clients/participants"] = line["participants"]
  values["clients/masked"] = len(line["masked"])
  values |= {f"faults/{k}": n for k, n in line.get("faults", {}).items()}
  values["seconds/round"] = line["seconds"]
  rows = line.get("accuracy", {})
  first = next(iter(rows), "")
  for label, accuracy in rows.items():
    suffix = label.removeprefix(first)
    own = {"accuracy": accuracy, **line.get("metrics", {}).get(label, {})}
    spread = (x for x in ("std", "worst_tenth") if x in line)
    own |= {f"accuracy_{name}": line[name][label] for name in spread}
    for key, each in own.items():
      values |= {f"{key}{suffix}/{name}": x for name, x in each.items()}
    if "global" in accuracy:
      shares = np.array(line["per_class"][label], float)
      values[f"gap{suffix}/global"] = float(forgetting.performance_gap(shares))
  return {k: math.nan if v is None else float(v) for k, v in values.items()}


def _round(line: Line, wall: float) -> dict[str, Any]:
  """Returns the fields of a round's event; `wall`: seconds since the epoch."""
  values = [{"tag": k, "simple_value": v} for k, v in scalars(line).items()]
  return {
    "wall_time": wall,
    "step": line["round"],
    "summary": {"value": values},
  }


def _write(file: IO[bytes], events: Iterable[dict[str, Any]]) -> None:
  """Writes events as TFRecord frames."""
  event, frames = event_library()
  writer = frames(file)
  for fields in events:
    writer.write(event(**fields).SerializeToString())


@functools.cache
def event_library() -> tuple[Any, Any]:
  """Imports the class of Event messages; returns it and the class Frames.

  Raises:
    UserError: the package is not installed.
  """
  try:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter
  except ImportError as error:
    raise UserError(
      f"event files for TensorBoard need tensorboardX ({error}): pip install"
      " 'tensorboardX>=2.6.4', or --config.tensorboard=False"
    ) from None

  class Frames(RecordWriter):
    """A RecordWriter for a file that is already open."""

    def __init__(self, file: IO[bytes]):
      self._writer = file

  return Event, Frames
