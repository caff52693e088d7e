"""Prepares a data set from official files, completely or not at all.

data_dir/.cifar10.lock       lock, exists while preparing
data_dir/downloads/cifar10/  downloaded official files
data_dir/cifar10/.half/      unfinished data, renamed at the end to
data_dir/cifar10/3.0.2/      the data that TFDS and tfds_store.py read
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.data.official import builder, download
from splitjax.data.official.catalog import STORES, Form, Store
from splitjax.data.official.formats import Parsed, Paths, reading
from splitjax.data.official.formats import members as contents
from splitjax.data.tfds_store import ORIGIN, Place, commands, find, note, root
from splitjax.types import UserError


def prepare(
  name: str,
  data_dir: Place,
  source_dir: Place = None,
  *,
  allow_modified: bool = False,
) -> Path:
  """Prepares a data set, unless it is prepared already.

  Args:
    name: a name in STORES.
    data_dir: folder of all prepared data.
    source_dir: a folder with the official files; None downloads them.
    allow_modified: accept files that differ from the official ones; this is
      recorded with the data (tfds_store.note).

  Returns:
    The folder of the prepared data set.

  Raises:
    UserError: a file is missing, damaged or not the official one, the download
      failed, another process prepares the same data, or the data are already
      prepared as tfrecord or from modified files.
    OSError: data_dir cannot be written.
  """
  if allow_modified and source_dir is None:
    raise UserError(
      "--allow-modified is for the files of --from DIR; what is downloaded is "
      "official: leave it out, or add --from DIR"
    )
  if folder := _prepared(name, data_dir, allow_modified):
    return folder
  store, target = STORES[name], root(data_dir) / name
  downloads = root(data_dir) / "downloads" / name
  with _tidied(downloads), _locked(root(data_dir) / f".{name}.lock"):
    if folder := _prepared(name, data_dir, allow_modified):
      return folder  # another process has just prepared it
    if source_dir is None:
      form, source = store.forms[0], downloads
      _download(name, form, data_dir, downloads)
    else:
      source = Path(source_dir).expanduser()
      form = _complete(store, source)
    paths = {file: source / file for file in form.files}
    origin = _verified(form, paths, allow_modified)
    return _write(name, store, form.parse(paths), origin, target)


def _prepared(name: str, data_dir: Place, allow_modified: bool) -> Path | None:
  """Finds the prepared data; refuses modified ones unless they are allowed."""
  folder = find(name, data_dir)
  modified = note(folder) if folder else ""
  if modified and not allow_modified:
    raise UserError(f"{modified}; delete {folder} to prepare it from others")
  return folder


def _complete(store: Store, folder: Path) -> Form:
  """Returns the first form whose files are all in the folder."""
  missing = []
  for form in store.forms:
    absent = [file for file in form.files if not (folder / file).is_file()]
    if not absent:
      return form
    missing.append(", ".join(absent))
  raise UserError(
    f"--from {folder}: {' (or else '.join(missing)}{')' * (len(missing) - 1)} "
    "not found there; it must hold the official files under their official "
    "names"
  )


def _verified(
  form: Form, paths: Paths, allow_modified: bool
) -> list[dict[str, Any]]:
  """Compares all files with the official ones; returns a record of each."""
  origin = []
  for file, official in form.files.items():
    kind = official.algorithm
    found = download.checksum(paths[file], kind)
    same = found == official.checksum or _holds(paths[file], form.members)
    if not (same or allow_modified):
      raise UserError(
        f"--from {paths[file].parent}: {file} is not the official file, "
        f"expected {kind} {official.checksum}, found {found}; fetch it again, "
        "or add --allow-modified and every report will say so"
      )
    origin.append({"file": file, kind: found, "official": same})
  return origin


def _holds(path: Path, members: Mapping[str, str]) -> bool:
  """Checks if an archive holds the official members, however packed."""
  if not members:
    return False
  try:
    with reading(path):
      found = {
        str(name): hashlib.md5(content, usedforsecurity=False).hexdigest()
        for name, content in contents(path)
      }
  except UserError:  # a damaged archive
    return False
  return members.items() <= found.items()


@contextlib.contextmanager
def _tidied(folder: Path) -> Iterator[None]:
  """Removes `folder` and its parents at the end, if they are new and empty."""
  new = [path for path in (folder, *folder.parents) if not path.exists()]
  try:
    yield
  finally:
    for path in new:
      with contextlib.suppress(OSError):  # not empty, or never created
        path.rmdir()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
  """Prevents other processes from preparing the same data."""
  try:
    with files.locked(path, wait=False):
      yield
  except files.Locked as error:
    raise UserError(
      f"another process is preparing it ({error} holds {path}): wait until it"
      " is done"
    ) from error


def _download(name: str, form: Form, data_dir: Place, downloads: Path) -> None:
  try:
    for file, known in form.files.items():
      download.fetch(file, known, downloads)
  except UserError as error:
    raise UserError(
      f"{name}: download failed ({error}); fetch {', '.join(form.files)} by "
      f"other means and run {commands(name, data_dir)[1]}"
    ) from error


def _write(
  name: str,
  store: Store,
  parsed: Parsed,
  origin: list[dict[str, Any]],
  folder: Path,
) -> Path:
  """Writes a data set into the folder .half, then renames it to its version."""
  half = folder / ".half"
  shutil.rmtree(half, ignore_errors=True)  # left by a killed process
  try:
    target = folder / builder.version(name, store.about, half)
    if target.exists():
      raise UserError(f"{target} holds no whole data set; delete it")
    made = builder.write(name, store.about, parsed, {ORIGIN: origin}, half)
    return made.rename(target)
  finally:
    shutil.rmtree(half, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty, once something is prepared
      folder.rmdir()
