"""Files, written whole or not at all and read whole before they are judged.

What cannot be read now is an error of one line; only what is not there counts
as nothing.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from splitjax.types import UserError

if TYPE_CHECKING:  # a mistake on the command line must not wait for numpy
  import numpy as np

# Texts.


def printable(value: object) -> str:
  """Converts a value to text and escapes line breaks and control characters."""
  text = str(value)
  return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def reason(error: BaseException) -> str:
  """Returns an error's type and message in one line of 300 characters."""
  text = printable(" ".join(f"{type(error).__name__}: {error}".split()))
  return text if len(text) <= 300 else f"{text[:297]}..."


# Files.

_REMEDIES = {
  errno.ENOSPC: "make room on the disk",
  errno.EDQUOT: "make room in your quota",
  errno.EMFILE: "raise the limit of open files (ulimit -n)",
  errno.EACCES: "check the permissions",
  errno.EROFS: "choose a folder that can be written",
  errno.ELOOP: "it is a link: choose another folder",
}
"""Error number -> what helps before the same command is started again."""


def expanded(path: str | Path) -> Path:
  """Expands ~ in a user's path; UserError if the path is empty."""
  if not str(path).strip():  # such as an unset variable of a shell
    raise UserError("--workdir: is empty; name a folder")
  return Path(os.path.expanduser(path))


@contextlib.contextmanager
def explained(action: str, path: Path) -> Iterator[None]:
  """Turns an error of the disk into one line that says what helps."""
  try:
    yield
  except OSError as error:
    raise unusable(action, path, error) from error


def unusable(action: str, path: Path, error: BaseException) -> UserError:
  """Makes the error for a path that cannot be read, written or listed."""
  code = system_code(error)
  cause = os.strerror(code) if code else reason(error)
  remedy = f"{_REMEDIES[code]}, then " if code in _REMEDIES else ""
  return UserError(
    f"{path} cannot be {action} ({cause}): {remedy}start the same command again"
  )


def system_code(error: BaseException) -> int | None:
  """Returns the system's number of an error; None if it is none of its own."""
  # tensorstore's errors have the reason in their text alone.
  texts = (code for code in _REMEDIES if os.strerror(code) in str(error))
  return getattr(error, "errno", None) or next(texts, None)


def write(
  path: Path, content: bytes | str | Callable[[IO[bytes]], Any]
) -> None:
  """Writes a file whole or not at all; makes its folder.

  `content` may be a function that writes to an open file. A link at the file's
  name is replaced, not followed.
  """
  partial = path.with_name(path.name + ".partial")
  with explained("written", path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)  # of a killed process, or somebody's link
    with partial.open("xb") as file:
      if callable(content):
        content(file)
      else:
        file.write(content.encode() if isinstance(content, str) else content)
      file.flush()
      os.fsync(file.fileno())  # whole also if the power fails
    partial.replace(path)


def append(path: Path, content: bytes) -> None:
  """Adds to the end of a file; a killed process may have added a part."""
  with explained("written", path):
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


def _unfollowed(path: str, flags: int) -> int:
  # O_NONBLOCK: a pipe at a file's name is read as empty and not waited for.
  return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


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


# What they hold.

Json = dict[str, Any]
"""What a JSON object holds."""

SEAL = "sha256"
"""The entry of a JSON file that has the digest of all others."""


class Damaged(UserError):
  """Raised for what is not what had been written."""


def digest(content: bytes) -> str:
  """Returns the SHA-256 of bytes, in hex digits."""
  return hashlib.sha256(content).hexdigest()


def sealed(body: Mapping[str, Any]) -> Json:
  """Adds the digest of a JSON object's entries to it."""
  text = json.dumps(body, sort_keys=True, allow_nan=False)
  return {**body, SEAL: digest(text.encode())}


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
  """Writes a JSON object with its digest."""
  write(path, json.dumps(sealed(body), indent=1, ensure_ascii=False) + "\n")


def read_sealed(path: Path, remedy: str) -> Json | None:
  """Reads what `write_sealed` wrote; None if it is not there.

  Raises Damaged, with a remedy, if it is something else.
  """
  content = read(path)
  if content is None:
    return None
  with contextlib.suppress(ValueError, RecursionError, AttributeError):
    seal = json.loads(content)
    body = {name: value for name, value in seal.items() if name != SEAL}
    if seal == sealed(body):
      return body
  raise Damaged(f"{path} is not what was written: {remedy}")


def plain(tree: Any) -> Any:
  """Converts a tree to strict JSON.

  Arrays and tuples become lists; NaN and infinities become None. What has a
  method `to_dict` becomes its result.
  """
  if hasattr(tree, "to_dict"):
    return plain(tree.to_dict())
  if isinstance(tree, dict):
    return {str(key): plain(value) for key, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [plain(value) for value in tree]
  if hasattr(tree, "tolist"):  # numpy's and jax's arrays and scalars
    return plain(tree.tolist())
  if isinstance(tree, float) and not math.isfinite(tree):
    return None
  return tree


def read_arrays(path: Path) -> "dict[str, np.ndarray]":
  """Reads the arrays of an npz file; nothing is unpickled.

  Raises ValueError for any other file, and OSError if it cannot be opened.
  """
  import numpy as np

  with path.open("rb") as raw:
    try:
      arrays = dict(np.load(raw, allow_pickle=False))
      if all(isinstance(array, np.ndarray) for array in arrays.values()):
        return arrays
      cause = "not all of them"
    except Exception as error:  # the libraries' errors share no base class
      cause = reason(error)
  raise ValueError(f"no whole .npz file of plain arrays: {cause}")
