"""Event files for TensorBoard, written from the lines of rounds.jsonl.

The writer is tensorboardX's, without the thread of its SummaryWriter: after a
full disk that thread is gone, and the training would wait for it forever.
"""

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"  # in a workdir, for `tensorboard --logdir`
Line = dict[str, Any]  # of rounds.jsonl


class EventFile:
  """The event file of a method's training; a resumed one has several."""

  def __init__(self, workdir: Path, key: str, log: Iterable[Line]):
    """Opens a file after the rounds of `log`, which a first file has, too.

    A reader forgets later rounds of earlier files, which a kill may have left.
    """
    # Imported where it is used: it imports PyTorch if that is installed.
    from tensorboardX.event_file_writer import EventsWriter

    folder = workdir / FOLDER / key
    finished = list(log)
    resumed = any(folder.glob("events.*"))
    folder.mkdir(parents=True, exist_ok=True)
    # Readers take files by name, so by time; two may begin in one second.
    self._writer = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
    if resumed:
      step = 1 + (finished[-1]["round"] if finished else 0)
      self._write(step, session_log={"status": "START"})
    for line in () if resumed else finished:
      self.append(line)

  def append(self, line: Line) -> None:
    """Adds a round."""
    values = [{"tag": k, "simple_value": v} for k, v in scalars(line).items()]
    self._write(line["round"], summary={"value": values})

  def _write(self, step: int, **content: Any) -> None:
    from tensorboardX.proto.event_pb2 import Event

    event = Event(wall_time=time.time(), step=step, **content)
    self._writer.write_event(event)
    self._writer.flush()  # for who looks on

  def close(self) -> None:
    """Closes the file."""
    self._writer.close()


def scalars(line: Line) -> dict[str, float]:
  """Maps the tags of one round to values; null becomes NaN.

  Tags have the suffix of a row (+FT) instead of its label, so that all methods
  have the same tags.
  """
  values = {f"loss/{name}": value for name, value in line["loss"].items()}
  values["bytes/all"] = sum(line["wire"].values())
  values |= {f"bytes/{name}": size for name, size in line["wire"].items()}
  values["clients/participants"] = line["participants"]
  values["clients/masked"] = len(line["masked"])
  values |= {f"faults/{k}": n for k, n in line.get("faults", {}).items()}
  values["seconds/round"] = line["seconds"]
  rows = line.get("accuracy", {})
  for row in rows:
    suffix = row.removeprefix(next(iter(rows)))
    measured = {"accuracy": rows[row], **line.get("metrics", {}).get(row, {})}
    for name in {"std", "worst_tenth"} & line.keys():
      measured[f"accuracy_{name}"] = line[name][row]
    for key, numbers in measured.items():
      values |= {f"{key}{suffix}/{name}": x for name, x in numbers.items()}
  return {k: math.nan if v is None else float(v) for k, v in values.items()}
