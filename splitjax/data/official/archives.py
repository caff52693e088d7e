"""Members of tar.gz archives, read as a stream: nothing touches the disk."""

import functools
import gzip
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from splitjax.data.official.formats import opened, reading, refuse

_LARGEST = 1 << 28
"""Bytes in a member; the largest official one has 155,249,918."""


def members(path: Path) -> Iterator[tuple[PurePosixPath, Callable[[], bytes]]]:
  """Goes through the files of an archive, once, in its own order.

  Args:
    path: of the archive.

  Yields:
    A member's name and a function that reads it, of use until the next member.

  Raises:
    UserError: the archive is damaged.
  """
  with reading(path), opened(path, "unpacking") as raw:
    whole = gzip.open(raw)
    with tarfile.open(fileobj=whole, mode="r|", bufsize=1 << 20) as archive:
      while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # it keeps all
        if member.isreg():
          read = functools.partial(_read, path, archive, member)
          yield PurePosixPath(member.name), read
    while whole.read(1 << 20):  # on to the checksum at the end
      pass


def _read(
  path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo
) -> bytes:
  where = f"{path}: {member.name}"
  if member.size > _LARGEST:
    raise refuse(where, f"has {member.size} bytes")
  with reading(where):
    file = archive.extractfile(member)
    assert file is not None  # it is only for what is no file
    return file.read()
