"""Downloads and verifies official files.

A file gets its name only after its size and md5 were verified, so that a file
of that name is complete and need not be downloaded again.
"""

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from splitjax.data.official.catalog import File
from splitjax.data.official.formats import opened
from splitjax.files import reason
from splitjax.types import UserError

_CHUNK = 1 << 18
_TIMEOUT = 15
"""Seconds without a byte before the next address is tried."""


class _Failed(Exception):
  """The error at one address, in one line."""


def md5(path: Path) -> str:
  """The md5 of a file, in hexadecimal."""
  digest = hashlib.md5(usedforsecurity=False)
  with opened(path, "verifying") as file:
    while chunk := file.read(_CHUNK):
      digest.update(chunk)
  return digest.hexdigest()


def fetch(name: str, file: File, folder: Path) -> Path:
  """Downloads an official file, unless the folder has it already.

  Args:
    name: its official name.
    file: its md5, size and addresses.
    folder: of the download; created if missing.

  Returns:
    The file.

  Raises:
    UserError: all addresses failed; gives the reason of each.
    OSError: the folder cannot be written.
  """
  path = folder / name
  if path.is_file() and md5(path) == file.md5:
    return path
  part = folder / f"{name}.part"
  reasons = []
  for url in file.urls:
    try:
      _save(url, file, part, name)
      return part.rename(path)
    except _Failed as error:
      reasons.append(f"{url}: {error}")
    finally:
      part.unlink(missing_ok=True)
  raise UserError("; ".join(reasons))


def _save(url: str, file: File, part: Path, name: str) -> None:
  """Writes the answer of an address; raises _Failed unless it is the file."""
  digest, size = hashlib.md5(usedforsecurity=False), 0
  chunks = _chunks(url)
  first = next(chunks, b"")  # raises before anything is written
  part.parent.mkdir(parents=True, exist_ok=True)
  with (
    part.open("wb") as out,
    tqdm(
      desc=f"downloading {name}",
      total=file.size,
      unit="B",
      unit_scale=True,
      disable=None,
    ) as bar,
  ):
    chunk = first
    while chunk and size <= file.size:  # no use in reading more
      out.write(chunk)
      digest.update(chunk)
      size += len(chunk)
      bar.update(len(chunk))
      chunk = next(chunks, b"")
  expected = f"{file.size} bytes with md5 {file.md5}"
  actual = f"{size} bytes with md5 {digest.hexdigest()}"
  if size > file.size:
    actual = f"more than {file.size} bytes"
  if actual != expected:
    raise _Failed(f"expected {expected}, found {actual}")


def _chunks(url: str) -> Iterator[bytes]:
  """The answer of an address; raises _Failed for any network error."""
  request = urllib.request.Request(url, headers={"User-Agent": "splitjax"})
  try:
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
      while chunk := answer.read(_CHUNK):
        yield chunk
  except (OSError, http.client.HTTPException) as error:
    raise _Failed(reason(error)) from error
