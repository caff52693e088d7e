"""The log lines of a method, kept on disk and not in memory.

Checkpoints and finished methods store a mark: the log's length and digest.
metrics.jsonl repeats the lines of all methods of a workdir. Lines lost from a
method's log are restored from metrics.jsonl, and the other way round.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from splitjax import files
from splitjax.engine import distributed
from splitjax.experiment.storage import fingerprint, workdirs
from splitjax.experiment.storage.fingerprint import Damaged

START = {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
"""The mark of an empty log, before the first round."""


class RoundLog:
  """The log of one method; iterating reads its lines from the file in turn.

  With several processes only the first process writes.
  """

  def __init__(self, workdir: Path, key: str):
    """Opens the log, which is unverified before `restore`."""
    self._path = workdirs.folder(workdir, key) / workdirs.ROUNDS
    self._shared, self.key = workdir / workdirs.METRICS, key
    self._size, self._digest = 0, hashlib.sha256()

  def restore(self, mark: dict[str, Any]) -> None:
    """Restores the log's lines up to a mark; raises Damaged if any are lost."""
    for content in (self._own(), self.in_metrics()):
      whole = content[: mark["bytes"]]
      digest = hashlib.sha256(whole)
      if digest.hexdigest() == mark["sha256"]:
        self._size, self._digest = len(whole), digest
        break
    else:
      raise Damaged(f"{workdirs.ROUNDS} is not what was written")
    if whole != self._own() and distributed.is_first_process():
      files.write_bytes(self._path, lambda file: file.write(whole))

  def _own(self) -> bytes:
    return self._path.read_bytes() if self._path.exists() else b""

  def in_metrics(self) -> bytes:
    """Returns this method's lines in metrics.jsonl without verifying them."""
    if not self._shared.exists():
      return b""
    begins, end = as_bytes({"method": self.key}).split(b"}")
    with self._shared.open("rb") as file:
      mine = (x for x in file if x.startswith(begins + b",") and x[-1:] == end)
      return b"".join(mine)

  def append(self, line: dict[str, Any]) -> None:
    """Adds a round's line to this log and to metrics.jsonl."""
    text = as_bytes(line)
    self._path.parent.mkdir(parents=True, exist_ok=True)
    for path in (self._path, self._shared):
      with path.open("ab") as file:
        file.write(text)
    self._size += len(text)
    self._digest.update(text)

  def mark(self) -> dict[str, Any]:
    """Returns the log's length and digest once all lines are on the disk."""
    if self._path.exists():
      with self._path.open("rb") as file:
        os.fsync(file.fileno())  # survives a power failure
    return {"bytes": self._size, "sha256": self._digest.hexdigest()}

  def copy(self, file: IO[bytes]) -> None:
    """Copies all lines into an open file."""
    if self._path.exists():
      with self._path.open("rb") as own:
        shutil.copyfileobj(own, file)

  def __iter__(self) -> Iterator[dict[str, Any]]:
    if self._path.exists():
      with self._path.open("rb") as file:
        yield from map(json.loads, file)


def as_bytes(line: dict[str, Any]) -> bytes:
  """Encodes a line for rounds.jsonl and metrics.jsonl."""
  text = json.dumps(line, allow_nan=False, separators=(",", ":"))
  return text.encode() + b"\n"


def of_finished(workdir: Path, key: str, about: dict[str, Any]) -> RoundLog:
  """Opens a finished method's log; raises UserError if it is lost."""
  log, place = RoundLog(workdir, key), workdirs.folder(workdir, key)
  fingerprint.check_format(place, about)
  with workdirs.undamaged(place):
    log.restore(about["log"])
  return log


def rewrite_metrics(
  workdir: Path, methods: Iterable[str], opened: Sequence[RoundLog] = ()
) -> None:
  """Writes metrics.jsonl from the logs of finished methods and `opened`.

  `methods` are the keys of all methods in the workdir. The old metrics.jsonl
  may be cut off or missing, or may repeat rounds. The lines of an unfinished
  method whose log is not in `opened` are copied from the old file, because the
  log may be lost.
  """
  named = {log.key for log in opened}
  done, other = list[RoundLog](), list[RoundLog]()
  for key in (k for k in methods if k not in named):
    about = workdirs.read_about(workdir, key)
    if about is None:
      other.append(RoundLog(workdir, key))
    else:
      done.append(of_finished(workdir, key, about))

  def write(file):
    for log in done:
      log.copy(file)
    for log in other:
      file.write(log.in_metrics())
    for log in opened:
      log.copy(file)

  files.write_bytes(workdir / workdirs.METRICS, write)
