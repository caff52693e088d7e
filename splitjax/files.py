"""Files that are whole or not there at all."""

import contextlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from absl import logging

_LONGEST = 300


def printable(said: object) -> str:
  """Text with an escape for each line break and whatever is not printed."""
  text = str(said)
  return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def words(error: object) -> str:
  """What an error says, in one line; what is long is cut."""
  text = printable(" ".join(str(error).split()))
  return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def reason(error: BaseException) -> str:
  """Kind and words of an error, in one line."""
  return words(f"{type(error).__name__}: {error}")


class Locked(Exception):
  """Another process, still running, has the lock; the text says which."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
  """Holds a lock file, there only meanwhile.

  The lock is the kernel's: that of a killed process is gone with it, so that
  what lies half-written where this lock is for belongs to nobody. The file
  says who has it.

  Args:
    path: the file; its folder is made if need be.
    wait: until another process has left, rather than raise Held.

  Yields:
    While it is held.

  Raises:
    Held: another process holds it.
    OSError: it cannot be written, or its file system has no locks.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  file = _lock(path, wait)
  while file is None:
    file = _lock(path, wait)
  try:
    yield
  finally:
    # Before it is let go: then it may be another's.
    path.unlink(missing_ok=True)
    file.close()


def _lock(path: Path, wait: bool) -> IO | None:
  """Tries once; None where the file was removed between opening and locking."""
  import fcntl  # not on Windows, where everything but this works

  with contextlib.ExitStack() as stack:
    # Not emptied: until the lock is held its text is another's.
    file = stack.enter_context(path.open("a+"))
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      if not wait:
        file.seek(0)
        raise Locked(file.read() or "a process that has just begun") from error
      logging.warning("waiting for another process, which holds %s", path)
      fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
      said = f"{error.strerror} (no lock there; another folder may have them)"
      raise OSError(error.errno, said, str(path)) from error
    try:
      if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
        return None
    except FileNotFoundError:
      return None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}")
    file.flush()
    stack.pop_all()
  return file


def write_text(path: Path, text: str) -> None:
  """Writes beside, then renames: a reader never sees half a file."""
  write_bytes(path, lambda file: file.write(text.encode()))


def write_bytes(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
  """As `write_text`, of whatever `write` puts into the file it is given."""
  beside = path.with_name(path.name + ".partial")
  with beside.open("wb") as file:
    write(file)
    file.flush()
    os.fsync(file.fileno())  # a machine that loses power has the old or the new
  beside.replace(path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes name -> array (npz), whole or not at all; of none no file stays."""
  if not arrays:
    path.unlink(missing_ok=True)
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  write_bytes(
    path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays)
  )


def write_json(path: Path, tree: Any) -> None:
  """Writes strict JSON (no NaN), whole or not at all."""
  text = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
  write_text(path, text + "\n")


def plain(tree: Any) -> Any:
  """A tree as strict JSON has it: no arrays, tuples, NaN or infinity."""
  if isinstance(tree, dict):
    return {str(key): plain(value) for key, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [plain(value) for value in tree]
  if hasattr(tree, "tolist"):  # numpy's and jax's arrays and scalars
    return plain(tree.tolist())
  if isinstance(tree, float) and not math.isfinite(tree):
    return None
  return tree
