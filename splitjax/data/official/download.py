"""Downloads and verifies official files.

A file gets its name only after its md5 was verified, so that a file of that
name is complete and need not be downloaded again.
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

_TIMEOUT = 15
"""Seconds without a byte before the next address is tried."""


def md5(path: Path) -> str:
  """The md5 of a file, in hexadecimal."""
  digest = hashlib.md5(usedforsecurity=False)
  with opened(path, "verifying") as file:
    while chunk := file.read(1 << 18):
      digest.update(chunk)
  return digest.hexdigest()


def fetch(name: str, file: File, folder: Path) -> Path:
  """Downloads an official file, unless the folder has it already.

  Raises:
    UserError: all addresses failed; gives the reason of each.
    OSError: the folder cannot be made.
  """
  path, part = folder / name, folder / f"{name}.part"
  if path.is_file() and md5(path) == file.md5:
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
  """Writes the answer of an address; raises OSError unless it is the file."""
  request = urllib.request.Request(url, headers={"User-Agent": "splitjax"})
  with (
    urllib.request.urlopen(request, timeout=_TIMEOUT) as answer,
    part.open("wb") as out,
    tqdm.wrapattr(
      out, "write", total=file.size, desc=f"downloading {url}", disable=None
    ) as shown,
  ):
    shutil.copyfileobj(answer, shown)
  size, found = part.stat().st_size, md5(part)
  if found != file.md5:
    raise OSError(
      f"expected {file.size} bytes with md5 {file.md5}, found {size} bytes with"
      f" md5 {found}"
    )
