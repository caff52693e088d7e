"""Downloads and verifies official files.

A file gets its final name only after its checksum is verified. If a file with
this name exists, it is verified again, and replaced if its checksum is wrong.
"""

import hashlib
import http.client
import shutil
import urllib.request
from pathlib import Path

from tqdm import tqdm

from splitjax.data.official.catalog import File
from splitjax.data.official.formats import opened
from splitjax.files import reason
from splitjax.types import UserError

TIMEOUT = 15
"""Seconds without a byte before the next address is tried."""


def checksum(path: Path, algorithm: str) -> str:
  """Computes a file's checksum in hexadecimal; algorithm: md5 or sha256."""
  digest = hashlib.new(algorithm, usedforsecurity=False)
  with opened(path, "verifying") as file:
    while chunk := file.read(1 << 18):
      digest.update(chunk)
  return digest.hexdigest()


def fetch(name: str, file: File, folder: Path) -> Path:
  """Downloads an official file, unless the folder has it already.

  Raises:
    UserError: all addresses failed; the message has the reason for each.
    OSError: the folder cannot be created.
  """
  path, part = folder / name, folder / f"{name}.part"
  if path.is_file() and _same(path, file):
    return path
  folder.mkdir(parents=True, exist_ok=True)
  reasons = []
  for url in file.urls:
    try:
      _save(url, file, part)
      return part.rename(path)
    except (OSError, http.client.HTTPException) as error:
      reasons.append(f"{url}: {reason(error)}")
    finally:
      part.unlink(missing_ok=True)
  raise UserError("; ".join(reasons))


def _save(url: str, file: File, part: Path) -> None:
  """Saves what an address returns; raises OSError if its checksum is wrong."""
  request = urllib.request.Request(url, headers={"User-Agent": "splitjax"})
  with (
    urllib.request.urlopen(request, timeout=TIMEOUT) as answer,
    part.open("wb") as out,
    tqdm.wrapattr(
      out, "write", total=file.size, desc=f"downloading {url}", disable=None
    ) as shown,
  ):
    shutil.copyfileobj(answer, shown)
  size, kind = part.stat().st_size, file.algorithm
  if (found := checksum(part, kind)) != file.checksum:
    raise OSError(
      f"expected {file.size or 'a file of'} bytes with {kind} {file.checksum},"
      f" found {size} bytes with {kind} {found}"
    )


def _same(path: Path, file: File) -> bool:
  return checksum(path, file.algorithm) == file.checksum
