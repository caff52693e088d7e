"""One process at a time, whatever becomes of that process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from absl import logging


class Held(Exception):
  """Another process, still running, has the lock."""


@contextlib.contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
  """Holds a lock file, there only meanwhile.

  The lock is the kernel's: that of a killed process is gone with it, so that
  what lies half-written where this lock is for belongs to nobody.

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
    path.unlink()  # before it is let go: then it may be another's
    file.close()


def _lock(path: Path, wait: bool) -> IO | None:
  """Tries once; None where the file was removed between opening and locking."""
  import fcntl  # not on Windows, where everything but this works

  with contextlib.ExitStack() as stack:
    file = stack.enter_context(path.open("wb"))
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      if not wait:
        raise Held from error
      logging.warning("waiting for another process, which holds %s", path)
      fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
      said = f"{error.strerror} (no lock; choose another data_dir)"
      raise OSError(error.errno, said, str(path)) from error
    try:
      if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
        return None
    except FileNotFoundError:
      return None
    stack.pop_all()
  return file
