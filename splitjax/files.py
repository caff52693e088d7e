"""Atomic file writes, locks of folders, and errors in one line."""

import contextlib
import errno
import functools
import json
import logging
import math
import os
import platform
import sys
import sysconfig
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from splitjax.types import UserError

if TYPE_CHECKING:  # a mistake on the command line must not wait for numpy
  import numpy as np

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers that file systems without locks give."""

_LONGEST = 300


def printable(value: object) -> str:
  """Converts a value to text and escapes line breaks and control characters."""
  text = str(value)
  return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(error: object) -> str:
  """Returns an error's message in one line, cut after 300 characters."""
  text = printable(" ".join(str(error).split()))
  return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def print_anywhere() -> None:
  """Makes stdout write "?" for letters outside its encoding.

  Printing the first ρ would otherwise end the training, such as on a Windows
  pipe. stderr escapes such letters already.
  """
  stream: Any = sys.stdout
  if hasattr(stream, "reconfigure"):  # a notebook's stdout takes any letter
    stream.reconfigure(errors="replace")


def client(n: int, names: Sequence[str]) -> str:
  """Formats a client as its number, and its name if it has one."""
  return f"{n} ({names[n]})" if names else str(n)


def expanded(path: str | Path) -> Path:
  """Expands ~ in a user's path; UserError if the path is empty."""
  if not str(path).strip():  # such as an unset variable of a shell
    raise UserError("--workdir: is empty; name a folder")
  return Path(os.path.expanduser(path))


def reason(error: BaseException) -> str:
  """Returns an error's type and message in one line."""
  return one_line(f"{type(error).__name__}: {error}")


_LIBRARIES = (
  str(Path(__file__).parent),
  *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
  "<frozen",
)
"""Prefixes of the file names of code that is not the user's."""


def is_own(factory: Callable) -> bool:
  """Checks if a registered function is a user's, not one of splitjax."""
  while isinstance(factory, functools.partial):
    factory = factory.func
  module = getattr(factory, "__module__", None) or ""
  return not module.startswith("splitjax.")


def blame(error: BaseException) -> str:
  """Formats an error in one line, with a file name and a line number.

  File and line are taken from the last frame of user code in the traceback, or
  from its last frame if it has none of user code.
  """
  frames = traceback.extract_tb(error.__traceback__)
  users = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
  frame = (users or frames)[-1]
  line = f"{Path(frame.filename).name}, line {frame.lineno}"
  return f"{reason(error)} ({line}); --debug shows the whole traceback"


class Locked(Exception):
  """Raised if another running process, named in the message, has the lock."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
  """Holds a lock on a file, then releases it and removes the file.

  If the process is killed, the file stays, but it does not block anyone: the
  kernel has released the lock (flock). The file names the process that holds
  the lock.

  Args:
    path: the lock file; its folder is created.
    wait: wait for another process instead of raising Locked.

  Yields:
    Nothing, while the lock is held.

  Raises:
    Locked: another process holds the lock.
    OSError: the file cannot be written, or its file system has no locks.
  """
  import filelock  # most commands lock nothing

  path.parent.mkdir(parents=True, exist_ok=True)
  # Without flock, an error is better than a lock that outlives its process.
  lock = filelock.FileLock(path, fallback_to_soft=False)
  try:
    try:
      lock.acquire(timeout=0)
    except filelock.Timeout as error:
      if not wait:
        holder = path.read_text() if path.exists() else ""
        raise Locked(holder or "a process that has just begun") from error
      logging.warning("waiting for another process, which holds %s", path)
      lock.acquire(timeout=-1)
  except OSError as error:
    if error.errno not in NO_LOCKS:
      raise
    message = f"{error.strerror} (no lock there; another folder may have them)"
    raise OSError(error.errno, message, str(path)) from error
  try:
    path.write_text(f"process {os.getpid()} on {platform.node()}")
    yield
  finally:
    # Remove the file while it is ours: once unlocked, another may hold it.
    path.unlink(missing_ok=True)
    lock.release()


def write_text(path: Path, text: str) -> None:
  """Writes a text file atomically: readers see the old file or the new one."""
  write_bytes(path, lambda file: file.write(text.encode()))


def write_bytes(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
  """Calls `write(file)` atomically: readers see the old file or the new one.

  A link at the file's name is replaced, not followed.
  """
  partial = path.with_name(path.name + ".partial")
  partial.unlink(missing_ok=True)  # of a killed process, or somebody's link
  with partial.open("xb") as file:
    write(file)
    file.flush()
    os.fsync(file.fileno())  # atomic also if the power fails
  partial.replace(path)


def write_arrays(path: Path, arrays: "Mapping[str, np.ndarray]") -> None:
  """Writes an npz file atomically; removes the file if there are no arrays."""
  if not arrays:
    path.unlink(missing_ok=True)
    return
  import numpy as np

  path.parent.mkdir(parents=True, exist_ok=True)
  write_bytes(
    path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays)
  )


def read_arrays(
  path: Path, used: Container[str] | None = None
) -> "dict[str, np.ndarray]":
  """Reads the arrays of an npz file; nothing is unpickled.

  Arrays whose names are not in `used` are left empty; None: all are read.

  Raises:
    OSError: the file cannot be opened.
    ValueError: the file is damaged, or not a file of plain arrays.
  """
  import numpy as np

  arrays: dict[str, np.ndarray] = {}
  key = ""
  with path.open("rb") as raw:
    try:
      file = np.load(raw, allow_pickle=False)
      for key in file.files:
        skipped = used is not None and key not in used
        arrays[key] = np.empty(0) if skipped else file[key]
        if not isinstance(arrays[key], np.ndarray):
          raise TypeError
    except Exception as error:  # the libraries' errors share no base class
      array = f": look at {printable(key)}" if key else ""
      raise ValueError(f"no whole .npz file of plain arrays{array}") from error
  return arrays


def write_json(path: Path, tree: Any) -> None:
  """Writes strict JSON (no NaN) atomically."""
  text = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
  write_text(path, text + "\n")


def plain(tree: Any) -> Any:
  """Converts a tree to strict JSON.

  Arrays and tuples become lists; NaN and infinities become None.
  """
  if isinstance(tree, dict):
    return {str(key): plain(value) for key, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [plain(value) for value in tree]
  if hasattr(tree, "tolist"):  # numpy's and jax's arrays and scalars
    return plain(tree.tolist())
  if isinstance(tree, float) and not math.isfinite(tree):
    return None
  return tree
