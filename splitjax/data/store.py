"""Data on disk: a folder of .npy files, or an npz file, with the same names.

  DATA_DIR/cifar10/train_image.npy, train_label.npy, test_image.npy, ...
  DATA_DIR/cifar10/facts.json   what the arrays do not say (`Facts`)

Arrays are memory-mapped, so that runs share them. Nothing is unpickled.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, cast

import filelock
import numpy as np

from splitjax import files
from splitjax.data.dataset import OBJECTS, Dataset, keys, require
from splitjax.types import UserError

Folder = str | os.PathLike | None
"""A folder given by the user; None: SPLITJAX_DATA or ~/splitjax_data."""

Arrays = dict[str, np.ndarray]
"""Name -> array: {train,test}_{image,label[,client,domain]}."""


class Facts(TypedDict, total=False):
  """What a data set says beside its arrays; in an npz file, arrays."""

  #: their number, or their names in the order of their numbers
  classes: int | list[str]
  vocabulary: int
  note: str


_ARRAYS = {*keys("train"), *keys("test")}
_FACTS = Facts.__annotations__.keys()


def root(data_dir: Folder) -> Path:
  """Returns the folder of all prepared data, DATA_DIR."""
  path = data_dir or os.environ.get("SPLITJAX_DATA") or "~/splitjax_data"
  return Path(path).expanduser()


def write(folder: Path, make: Callable[[], tuple[Arrays, Facts]]) -> None:
  """Writes the arrays and facts that `make` returns, all of them or none.

  If another process does the same, this one waits for it. If `folder` exists
  then, `make` is not called.

  Raises:
    UserError: the folder cannot be written, or the disk is full.
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
      arrays, facts = make()
      partial.mkdir()
      for key, array in arrays.items():
        save = functools.partial(np.save, arr=array, allow_pickle=False)
        files.write(partial / f"{key}.npy", save)
      files.write(partial / "facts.json", json.dumps(facts, allow_nan=False))
      partial.rename(folder)
    finally:
      shutil.rmtree(partial, ignore_errors=True)
      lock.unlink(missing_ok=True)  # while it is ours


def read(path: Path) -> tuple[Arrays, Facts]:
  """Reads a folder of .npy files, memory-mapped, or an npz file.

  Arrays of other names are left out.

  Raises:
    UserError: it is missing or damaged, or holds Python objects.
  """
  arrays = Arrays()
  facts = dict[str, Any]()
  if path.is_dir():
    for file in sorted(path.glob("*.npy")):
      if file.stem in _ARRAYS:
        with _reading(file):
          arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
    file = path / "facts.json"
    if file.exists():
      with _reading(file):
        facts |= json.loads(file.read_text("utf-8"))
  else:
    with _reading(path), path.open("rb") as raw:
      archive = np.load(raw, allow_pickle=False)
      for key in sorted({*archive.files} & (_ARRAYS | _FACTS)):
        with _reading(key):
          array = archive[key]
        if key in _ARRAYS:
          arrays[key] = array
        else:
          facts[key] = array.tolist()
  unknown = ", ".join(map(files.printable, facts.keys() - _FACTS))
  require(not unknown, f"{unknown} is no fact: give {', '.join(_FACTS)}")
  require(
    {"train_image", "train_label"} <= arrays.keys(),
    f"{files.printable(path)} has {', '.join(arrays) or 'none'} of the arrays"
    " that are read: write train_image, train_label, test_image and test_label"
    " with np.savez, or a file of each with np.save",
  )
  return arrays, cast(Facts, facts)


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


def dataset(name: str, arrays: Arrays, facts: Facts) -> Dataset:
  """Makes a Dataset of arrays as they lie on disk, for `checked`.

  Without a test split there is an empty one.
  """
  missing = {"test_image", "test_label"} - arrays.keys()
  require(len(missing) != 1, f"{''.join(missing)} is missing: add it")
  if missing:
    empty = {key: arrays[key][:0] for key in keys("train") if key in arrays}
    arrays |= {key.replace("train", "test"): x for key, x in empty.items()}
  classes = facts.get("classes", 0)
  names = tuple(classes) if isinstance(classes, list) else ()
  return Dataset(
    name=name,
    classes=len(names) or cast(int, classes),
    class_names=names,
    vocabulary=facts.get("vocabulary", 0),
    note=str(facts.get("note", "")),
    **cast(dict[str, Any], arrays),
  )
