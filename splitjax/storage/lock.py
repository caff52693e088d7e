"""One process at a time, whatever becomes of that process."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from absl import logging


class Held(Exception):
  """Another process, still running, has the lock; the text says which."""


@contextlib.contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
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
        raise Held(file.read() or "a process that has just begun") from error
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
