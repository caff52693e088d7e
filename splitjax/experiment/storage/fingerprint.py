"""Digests of files and JSON records, and the versions that wrote them.

orbax restores a file with a flipped byte without an error. The digest of each
file is therefore compared before orbax opens it.
"""

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitjax.types import UserError

FORMAT = 4
"""Version of the file format of checkpoints and finished methods."""

LIBRARIES = (
  "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "chex", "numpy",
)  # fmt: skip
"""Packages whose version can change the last bits of a run's results."""


class Damaged(Exception):
  """Raised for a file that is missing or differs from the one written."""


def of_files(folder: Path) -> dict[str, str]:
  """Maps the relative paths of a folder's files to their SHA-256, in hex."""
  paths = sorted(path for path in folder.rglob("*") if path.is_file())
  return {path.relative_to(folder).as_posix(): _of_file(path) for path in paths}


def verify_files(folder: Path, files: Mapping[str, str]) -> None:
  """Compares files below a folder with the digests that `of_files` returned.

  Files without a digest are ignored. Raises Damaged if a file is missing or
  differs, and OSError if it cannot be read now.
  """
  for name, digest in files.items():
    try:
      same = _of_file(folder / name) == digest
    except (FileNotFoundError, NotADirectoryError):
      raise Damaged(f"{name} is missing") from None
    if not same:
      raise Damaged(f"{name} is not what was written")


def _of_file(path: Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def of_json(tree: Any) -> str:
  """Returns the digest of a JSON tree in hex digits."""
  text = json.dumps(tree, sort_keys=True, allow_nan=False)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def sealed(record: dict[str, Any]) -> dict[str, Any]:
  """Returns a JSON record with its own digest added, as "seal"."""
  return {**record, "seal": of_json(record)}


def opened(record: Any) -> dict[str, Any]:
  """Verifies a sealed record and removes its digest, or raises Damaged."""
  if not isinstance(record, dict):
    raise Damaged("its record is empty")
  content = {k: v for k, v in record.items() if k != "seal"}
  if record.get("seal") != of_json(content):
    raise Damaged("its record is not what was written")
  return content


def check_format(place: Path, record: Mapping[str, Any]) -> None:
  """Raises UserError if files have a format that this version cannot read.

  `record` was written with the files; it may lack "format" and "versions".
  """
  found = record.get("format", "unknown")
  if found == FORMAT:
    return
  writer = record.get("versions", {}).get("splitjax", "of another version")
  raise UserError(
    f"{place} was written by splitjax {writer} (format {found}), this one reads"
    f" format {FORMAT}: use that version, or train again in another workdir"
  )


@functools.cache
def versions() -> dict[str, str]:
  """Returns the versions of all software that can change a run's results."""
  libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
  own = {"splitjax": f"of source {of_source()}"}
  return {"python": platform.python_version(), **libraries, **own}


@functools.cache
def of_source() -> str:
  """Returns the digest of this program's sources in hex digits."""
  digest, root = hashlib.blake2b(digest_size=4), Path(__file__).parents[2]
  for path in sorted(root.rglob("*.py")):
    digest.update(path.relative_to(root).as_posix().encode())
    digest.update(path.read_bytes())
  return digest.hexdigest()
