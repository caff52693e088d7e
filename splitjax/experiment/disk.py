"""What a run's folder holds: read whole before it is judged, or one error line.

What cannot be read now is an error; only what is not there counts as nothing.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.types import UserError

REMEDIES = {
  errno.ENOSPC: "make room on the disk",
  errno.EDQUOT: "make room in your quota",
  errno.EMFILE: "raise the limit of open files (ulimit -n)",
  errno.EACCES: "check the permissions",
  errno.EROFS: "choose a folder that can be written",
  errno.ELOOP: "it is a link: choose another folder",
}
"""Error number -> what helps before the same command is started again."""

Json = dict[str, Any]
"""What a JSON object holds."""

SEAL = "sha256"
"""The entry of a JSON file that has the digest of all others."""


class Damaged(UserError):
  """Raised for what is not what had been written."""


def write(path: Path, content: bytes) -> None:
  """Writes a file whole or not at all; a link at its name is replaced."""
  with explained("written", path):
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(path, lambda file: file.write(content))


def append(path: Path, content: bytes) -> None:
  """Adds to the end of a file; a killed process may have added a part."""
  with explained("written", path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", opener=_unfollowed) as file:
      file.write(content)


def read(path: Path) -> bytes | None:
  """Reads a file; None only if it is not there."""
  with explained("read", path):
    try:
      with open(path, "rb", opener=_unfollowed) as file:
        return file.read()
    except FileNotFoundError:
      return None


def names(folder: Path) -> list[str]:
  """Lists a folder, sorted; [] only if it is not there."""
  with explained("listed", folder):
    try:
      return sorted(os.listdir(folder))
    except FileNotFoundError:
      return []


def refuse_links(folder: Path) -> None:
  """Raises UserError for a link in a folder: what is written stays in it."""

  def fail(error: OSError) -> None:
    raise error  # without this, os.walk takes an error for "empty"

  try:
    for parent, folders, inside in os.walk(folder, onerror=fail):
      for name in (*folders, *inside):
        if (Path(parent) / name).is_symlink():
          path = Path(parent) / name
          raise UserError(f"{path} is a link: choose another folder")
  except OSError as error:
    raise unusable("listed", Path(error.filename), error) from error


def digest(content: bytes) -> str:
  """Returns the SHA-256 of bytes, in hex digits."""
  return hashlib.sha256(content).hexdigest()


def sealed(body: Mapping[str, Any]) -> Json:
  """Adds the digest of a JSON object's entries to it."""
  text = json.dumps(body, sort_keys=True, allow_nan=False)
  return {**body, SEAL: digest(text.encode())}


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
  """Writes a JSON object with its digest."""
  text = json.dumps(sealed(body), indent=1, ensure_ascii=False)
  write(path, f"{text}\n".encode())


def read_sealed(path: Path, remedy: str) -> Json | None:
  """Reads what `write_sealed` wrote; None if it is not there.

  Raises Damaged, with a remedy, if it is something else.
  """
  content = read(path)
  if content is None:
    return None
  try:
    seal = json.loads(content)
    body = {k: v for k, v in seal.items() if k != SEAL}
    if seal == sealed(body):
      return body
  except (ValueError, RecursionError, AttributeError):
    pass
  raise Damaged(f"{path} is not what was written: {remedy}")


@contextlib.contextmanager
def explained(action: str, path: Path) -> Iterator[None]:
  """Turns an error of the disk into one line that says what helps."""
  try:
    yield
  except OSError as error:
    raise unusable(action, path, error) from error


def system_code(error: BaseException) -> int | None:
  """Returns the system's number of an error; None if it is none of its own."""
  # tensorstore's errors have the reason in their text alone.
  texts = (code for code in REMEDIES if os.strerror(code) in str(error))
  return getattr(error, "errno", None) or next(texts, None)


def unusable(action: str, path: Path, error: BaseException) -> UserError:
  """Makes the error for a path that cannot be read, written or listed."""
  code = system_code(error)
  reason = os.strerror(code) if code else files.reason(error)
  remedy = f"{REMEDIES[code]}, then " if code in REMEDIES else ""
  return UserError(
    f"{path} cannot be {action} ({reason}): {remedy}start the same command"
    " again"
  )


def _unfollowed(path: str, flags: int) -> int:
  # O_NONBLOCK: a pipe at a file's name is read as empty and not waited for.
  return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
