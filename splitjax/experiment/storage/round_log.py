"""The log lines of a method, kept on disk and not in memory.

metrics.jsonl repeats the lines of all methods of a workdir.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from splitjax import files
from splitjax.experiment.storage import workdirs
from splitjax.types import UserError


class RoundLog:
  """The log of one method; iterating reads its lines from the file in turn.

  With several processes only the first process writes.
  """

  def __init__(self, workdir: Path, key: str):
    """Changes nothing on the disk."""
    self._path = workdirs.folder(workdir, key) / workdirs.ROUNDS
    self._shared = workdir / workdirs.METRICS

  def cut(self, rounds: int) -> None:
    """Removes the lines after round `rounds`.

    A run that was killed may have written them, and trains those rounds again.
    Raises UserError if lines of earlier rounds are lost.
    """
    content = self._path.read_bytes() if self._path.exists() else b""
    lines = content.splitlines(keepends=True)[:rounds]
    try:
      numbers = [json.loads(line)["round"] for line in lines]
    except (ValueError, KeyError, TypeError):
      numbers = []
    if numbers != [*range(1, rounds + 1)]:
      raise UserError(
        f"{self._path} has lost lines of the first {rounds} rounds: restore it,"
        f" or delete {self._path.parent} to train the method again"
      )
    kept = b"".join(lines)
    if kept != content:
      files.write_bytes(self._path, lambda file: file.write(kept))

  def append(self, line: dict[str, Any]) -> None:
    """Adds a round's line to this log and to metrics.jsonl."""
    text = as_bytes(line)
    self._path.parent.mkdir(parents=True, exist_ok=True)
    for path in (self._path, self._shared):
      with path.open("ab") as file:
        file.write(text)

  def sync(self) -> None:
    """Waits until all lines are on the disk."""
    if self._path.exists():
      with self._path.open("rb") as file:
        os.fsync(file.fileno())  # survives a power failure

  def copy(self, file: IO[bytes]) -> None:
    """Copies all whole lines into an open file."""
    if self._path.exists():
      content = self._path.read_bytes()
      file.write(content[: content.rfind(b"\n") + 1])

  def __iter__(self) -> Iterator[dict[str, Any]]:
    if self._path.exists():
      with self._path.open("rb") as file:
        yield from map(json.loads, file)


def as_bytes(line: dict[str, Any]) -> bytes:
  """Encodes a line for rounds.jsonl and metrics.jsonl."""
  text = json.dumps(line, allow_nan=False, separators=(",", ":"))
  return text.encode() + b"\n"


def rewrite_metrics(
  workdir: Path, methods: Iterable[str], last: str | None = None
) -> None:
  """Writes metrics.jsonl from the logs of all methods.

  `methods` are the keys of all methods in the workdir, and `last` is the method
  that trains next and whose lines are the last ones.
  """

  def write(file):
    for key in sorted(methods, key=lambda key: key == last):
      RoundLog(workdir, key).copy(file)

  files.write_bytes(workdir / workdirs.METRICS, write)
