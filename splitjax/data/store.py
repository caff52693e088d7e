"""Data on disk: a folder of .npy files, or an npz file, with the same names.

  DATA_DIR/cifar10/train_image.npy, train_label.npy, test_image.npy, ...
  DATA_DIR/cifar10/facts.json   what the arrays do not say

Arrays are memory-mapped, so that runs share them. Nothing is unpickled.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from splitjax import files
from splitjax.data.dataset import OBJECTS, UNSTATED, Dataset, keys, require
from splitjax.types import UserError

Folder = str | os.PathLike | None
"""A folder given by the user; None: SPLITJAX_DATA or ~/splitjax_data."""

ARRAYS = (*keys("train"), *keys("test"))
_FACTS = ("classes", "vocabulary", "note")
"""Fields of Dataset that are in facts.json, or are arrays of an npz file. There
`classes` may be a list of the classes' names."""


def root(data_dir: Folder) -> Path:
  """Returns the folder of all prepared data, DATA_DIR."""
  path = data_dir or os.environ.get("SPLITJAX_DATA") or "~/splitjax_data"
  return Path(path).expanduser()


def write(folder: Path, make: Callable[[], Dataset]) -> None:
  """Writes the data set that `make` returns, all of it or nothing.

  It waits for a process that writes the same. If `folder` exists after that,
  `make` is not called. UserError if it cannot be written.
  """
  partial = folder.with_name(f".{folder.name}.partial")
  lock = folder.with_name(f".{folder.name}.lock")
  lock.parent.mkdir(parents=True, exist_ok=True)
  # Without flock, an error is better than a lock that outlives its process.
  with filelock.FileLock(lock, fallback_to_soft=False):
    try:
      if folder.exists():
        return
      shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
      data = make()
      partial.mkdir()
      for key in ARRAYS:
        if (array := getattr(data, key)) is not None:
          save = functools.partial(np.save, arr=array, allow_pickle=False)
          files.write(partial / f"{key}.npy", save)
      facts = {
        "classes": data.class_names or data.classes,
        "vocabulary": data.vocabulary,
        "note": data.note,
      }
      files.write(partial / "facts.json", json.dumps(facts))
      partial.rename(folder)
    finally:
      shutil.rmtree(partial, ignore_errors=True)
      # Before it is released: processes that wait for it then see that their
      # file has no name, and filelock makes them open a new one.
      lock.unlink(missing_ok=True)


def read(name: str, path: Path) -> Dataset:
  """Reads a folder of .npy files, memory-mapped, or an npz file.

  Arrays of other names are left out. Without a test split there is an empty
  one. The result is not validated: pass it to `dataset.checked`. UserError if
  `path` is missing or damaged, or holds Python objects.
  """
  arrays = dict[str, np.ndarray]()
  facts = dict[str, Any]()
  if path.is_dir():
    for file in sorted(path.glob("*.npy")):
      if file.stem in ARRAYS:
        with _reading(file):
          arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
    file = path / "facts.json"
    if file.exists():
      with _reading(file):
        facts |= json.loads(file.read_text("utf-8"))
  else:
    with _reading(path), path.open("rb") as raw:
      archive = np.load(raw, allow_pickle=False)
      for key in {*archive.files} & {*ARRAYS, *_FACTS}:
        with _reading(key):
          arrays[key] = archive[key]
    facts = {key: arrays.pop(key).tolist() for key in _FACTS if key in arrays}
  foreign = ", ".join(map(files.printable, facts.keys() - {*_FACTS}))
  require(not foreign, f"{foreign} is no fact: give {', '.join(_FACTS)}")
  require(
    {"train_image", "train_label"} <= arrays.keys(),
    f"{files.printable(path)} has {', '.join(arrays) or 'none'} of the arrays"
    " that are read: write train_image, train_label, test_image and test_label"
    " with np.savez, or a file of each with np.save",
  )
  missing = {"test_image", "test_label"} - arrays.keys()
  require(len(missing) != 1, f"{''.join(missing)} is missing: add it")
  if missing:
    for train_key, test_key in zip(keys("train"), keys("test"), strict=True):
      if train_key in arrays:
        arrays[test_key] = arrays[train_key][:0]
  if isinstance(facts.get("classes"), list):
    facts["class_names"] = tuple(facts.pop("classes"))
  fields: dict[str, Any] = {"classes": UNSTATED, **facts, **arrays}
  return Dataset(name=name, **fields)


@contextmanager
def _reading(source: object) -> Iterator[None]:
  """Turns an error in reading a file into a UserError of one line."""
  name = files.printable(source)
  try:
    yield
  except FileNotFoundError as error:
    raise UserError(f"{name}: no such file or folder: look at it") from error
  except (MemoryError, UserError):
    raise
  except Exception as error:  # the libraries' errors share no base class
    remedy = f"cannot be read ({files.reason(error)}): write it again"
    if "object" in str(error).lower():
      remedy = f"holds Python objects, which are not read: {OBJECTS}"
    raise UserError(f"{name} {remedy}") from error
