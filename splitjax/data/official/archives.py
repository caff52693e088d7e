"""Members of tar.gz archives, read as a stream without touching the disk."""

import functools
import gzip
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from splitjax.data.official.formats import opened, reading, refuse

_LARGEST = 1 << 28
"""Largest member in bytes; the largest official one has 155,249,918."""


def members(path: Path) -> Iterator[tuple[PurePosixPath, Callable[[], bytes]]]:
  """Iterates over the files of an archive, in its order.

  Args:
    path: of the archive.

  Yields:
    A member's name and a function that reads it, valid until the next member.

  Raises:
    UserError: the archive is damaged.
  """
  with reading(path), opened(path, "unpacking") as raw:
    whole = gzip.open(raw)
    with tarfile.open(fileobj=whole, mode="r|", bufsize=1 << 20) as archive:
      while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # memory
        if member.isreg():
          read = functools.partial(_read, path, archive, member)
          yield PurePosixPath(member.name), read
    while whole.read(1 << 20):  # the checksum comes at the end
      pass


def _read(
  path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo
) -> bytes:
  where = f"{path}: {member.name}"
  if member.size > _LARGEST:
    raise refuse(where, f"has {member.size} bytes")
  with reading(where):
    file = archive.extractfile(member)
    assert file is not None  # members yields regular files only
    return file.read()
