"""Data on disk: a folder of .npy files, or an npz file, with the same names.

  DATA_DIR/cifar10/train_image.npy, train_label.npy, test_image.npy, ...
  DATA_DIR/cifar10/facts.json   what the arrays do not say (`Facts`)

`prepare` writes such folders, users write them with numpy.save. Their arrays
are memory-mapped, so that runs share them. Nothing is unpickled.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, cast, get_args

import numpy as np

from splitjax import files
from splitjax.data.dataset import OBJECTS, SPLITS, Dataset, Standardise
from splitjax.types import UserError

Place = str | os.PathLike | None
"""A folder given by the user; None: SPLITJAX_DATA or ~/splitjax_data."""

Arrays = dict[str, np.ndarray]
"""Name -> array: {train,test}_{image,label[,client,domain]}."""

FIELDS = ("image", "label", "client", "domain")


class Facts(TypedDict, total=False):
  """What a data set says beside its arrays; in an npz file, arrays.

  Names are in the order of their numbers. CIFAR-100 alone has `coarse_classes`,
  the names of its superclasses, whose numbers are in the arrays `coarse`.
  """

  classes: int | list[str]
  coarse_classes: list[str]
  clients: list[str]
  domains: list[str]
  standardise: Standardise
  vocabulary: int
  note: str


_FIELDS = *FIELDS, "coarse"
_ARRAYS = {*map("train_{}".format, _FIELDS), *map("test_{}".format, _FIELDS)}


def root(data_dir: Place) -> Path:
  """Returns the folder of all prepared data, DATA_DIR."""
  chosen = data_dir or os.environ.get("SPLITJAX_DATA") or "~/splitjax_data"
  return Path(chosen).expanduser()


def write(
  folder: Path, make: Callable[[], tuple[Mapping[str, np.ndarray], Facts]]
) -> None:
  """Writes the arrays and facts that `make` returns, all of them or none.

  If another process does the same, this one waits for it. If `folder` exists
  then, `make` is not called.

  Raises:
    OSError: the folder cannot be written, or the disk is full.
  """
  partial = folder.with_name(f".{folder.name}.partial")
  with files.locked(folder.with_name(f".{folder.name}.lock"), wait=True):
    if folder.exists():
      return
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    try:
      arrays, facts = make()
      partial.mkdir()
      for key, array in arrays.items():
        save = functools.partial(np.save, arr=array, allow_pickle=False)
        files.write_bytes(partial / f"{key}.npy", save)
      files.write_json(partial / "facts.json", facts)
      partial.rename(folder)
    finally:
      shutil.rmtree(partial, ignore_errors=True)


def read(path: Path) -> tuple[Arrays, Facts]:
  """Reads a folder of .npy files, memory-mapped, or an npz file.

  Arrays of other names are left out.

  Raises:
    UserError: it is missing or damaged, holds Python objects, or a fact is
      invalid.
  """
  held = _read_folder(path) if path.is_dir() else _read_npz(path)
  arrays = {key: held.pop(key) for key in _ARRAYS & held.keys()}
  if not {"train_image", "train_label"} <= arrays.keys():
    found = ", ".join(sorted(arrays)) or "none"
    raise UserError(
      f"{files.printable(path)} has {found} of the arrays that are read: write"
      " train_image, train_label, test_image and test_label with np.savez, or a"
      " file of each with np.save"
    )
  for key, fact in held.items():
    _check_fact(key, fact)
  return arrays, cast(Facts, held)


def _read_folder(path: Path) -> dict[str, Any]:
  held = dict[str, Any]()
  for file in sorted(path.glob("*.npy")):
    if file.stem in _ARRAYS:
      with _reading(file):
        held[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
  if (file := path / "facts.json").exists():
    with _reading(file):
      held |= json.loads(file.read_text("utf-8"))
  return held


def _read_npz(path: Path) -> dict[str, Any]:
  """Reads an npz file; facts become what facts.json would hold."""
  held = dict[str, Any]()
  with _reading(path), path.open("rb") as raw:
    file = np.load(raw, allow_pickle=False)
    for key in sorted({*file.files} & (_ARRAYS | Facts.__annotations__.keys())):
      with _reading(key):
        held[key] = file[key] if key in _ARRAYS else _plain(file[key])
  return held


@contextmanager
def _reading(what: object) -> Iterator[None]:
  """Turns an error in reading a file into a UserError of one line."""
  named = files.printable(what)
  try:
    yield
  except FileNotFoundError as error:
    raise UserError(f"{named}: no such file or folder: look at it") from error
  except (MemoryError, UserError):
    raise
  except Exception as error:  # the libraries' errors share no base class
    told = f"cannot be read ({files.reason(error)}): write it again"
    if "object" in str(error).lower():
      field = "image" if "_image" in named else "label"
      told = f"holds Python objects, which are not read: {OBJECTS[field]}"
    raise UserError(f"{named} {told}") from error


def _plain(array: np.ndarray) -> Any:
  """Converts a fact in an npz file to what facts.json would hold."""
  texts = _texts(array)
  return texts.item() if texts.size == 1 else texts.tolist()


def _texts(array: np.ndarray) -> np.ndarray:
  """Decodes bytes; returns arrays of other kinds as they are."""
  if array.dtype.kind == "S":
    return np.char.decode(array, "utf-8", "backslashreplace")
  return array.astype(str) if array.dtype.kind == "T" else array


def _check_fact(key: str, fact: object) -> None:
  """Raises UserError if a fact has no valid value."""
  count = isinstance(fact, int) and not isinstance(fact, bool) and fact >= 2
  names = isinstance(fact, list) and all(isinstance(x, str) for x in fact)
  standards = get_args(Standardise)
  listed = names, "a list of names"
  fits, wanted = {
    "classes": (count or names, "their number, 2 or more, or their names"),
    **dict.fromkeys(("coarse_classes", "clients", "domains"), listed),
    "vocabulary": (count, "the number of token ids, an integer of 2 or more"),
    "standardise": (fact in standards, f"one of {', '.join(standards)}"),
    "note": (isinstance(fact, str), "a text"),
  }.get(key, (False, f"facts are {', '.join(Facts.__annotations__)}: no other"))
  if not fits:
    told = files.printable(f"{fact!r:.60}")
    raise UserError(f"{files.printable(key)} is {told}: give {wanted}")


def dataset(
  name: str, arrays: Arrays, facts: Facts, classes: int | None = None
) -> Dataset:
  """Makes a Dataset of arrays as they lie on disk; `checked` checks the rest.

  Labels, clients and domains may be texts. Those of both splits are numbered in
  the order of the names in `facts`, or else in ascending order of the names
  that occur. Clients and domains that are integers are numbered in ascending
  order, unless `facts` has their names. All arrays of the test split may be
  missing. C is `classes`, or else as `facts` say, or one more than the highest
  label.

  Raises:
    UserError: an array is missing, a name is not in `facts`, or C is not known.

  Example:
    >>> data = dataset(
    ...   "mine",
    ...   {
    ...     "train_image": np.zeros((3, 2)),
    ...     "train_label": np.array(["dog", "cat", "dog"]),
    ...     "train_client": np.array(["Oslo", "Bern", "Bern"]),
    ...   },
    ...   {},
    ... )
    >>> data.train_label.tolist(), data.class_names, data.client_names
    ([1, 0, 1], ('cat', 'dog'), ('Bern', 'Oslo'))
  """
  arrays = _both_splits(arrays)
  numbers, names = dict[str, np.ndarray](), dict[str, tuple[str, ...]]()
  stated = facts.get("classes")
  listed = {
    "label": stated if isinstance(stated, list) else [],
    "client": facts.get("clients", []),
    "domain": facts.get("domains", []),
  }
  for field, known in listed.items():
    found, names[field] = _numbered(arrays, field, known)
    numbers |= found
  count = len(names["label"]) or classes
  if count is None and isinstance(stated, int):
    count = stated
  return Dataset(
    name=name,
    classes=count or _count(numbers),
    train_image=arrays["train_image"],
    test_image=arrays["test_image"],
    **numbers,
    client_names=names["client"],
    class_names=names["label"],
    domain_names=names["domain"],
    standardise=facts.get("standardise", "channel"),
    vocabulary=facts.get("vocabulary", 0),
    note=facts.get("note", ""),
  )


def _both_splits(arrays: Arrays) -> Arrays:
  """Adds an empty test split if there is none."""
  arrays = dict(arrays)
  pair = {"test_image", "test_label"} - arrays.keys()
  if len(pair) == 1:
    raise UserError(f"{pair.pop()} is missing: add it")
  for field in FIELDS:
    train, test = f"train_{field}", f"test_{field}"
    if test in arrays and train not in arrays:
      raise UserError(f"there is {test} and no {train}: add it")
    if pair and train in arrays:
      arrays[test] = arrays[train][:0]
  return arrays


def _numbered(
  arrays: Arrays, field: str, known: Sequence[str]
) -> tuple[Arrays, tuple[str, ...]]:
  """Numbers labels, clients or domains; returns {SPLIT_FIELD: [Z]} and names.

  Without names, labels that are integers stay as they are.
  """
  keys = [key for s in SPLITS if (key := f"{s}_{field}") in arrays]
  found = {key: _texts(arrays[key]) for key in keys}
  texts = [key for key in keys if found[key].dtype.kind == "U"]
  whole = all(x.dtype.kind in "iu" for x in found.values())
  if not keys or (not texts and (known or field == "label" or not whole)):
    return found, tuple(map(files.printable, known))
  if len(texts) not in (0, len(keys)):
    raise UserError(
      f"{texts[0]} has texts, and that of the other split numbers:"
      " write both alike"
    )
  every = np.unique(np.concatenate([x.ravel() for x in found.values()]))
  names = [files.printable(x) for x in every.tolist()]
  order = list(known) if known else names
  if missing := [name for name in names if name not in order]:
    raise UserError(
      f"{keys[0]} or the test split has {missing[0]!r}, which is not"
      f" among the {len(known)} names: add it to them"
    )
  number = np.array([order.index(name) for name in names], np.int32)
  numbers = {k: number[np.searchsorted(every, x)] for k, x in found.items()}
  return numbers, tuple(order)


def _count(labels: Arrays) -> int:
  """Returns one more than the highest label, if that is a number of classes."""
  label = np.concatenate([labels[f"{s}_label"].ravel() for s in SPLITS])
  if label.dtype.kind not in "iu":
    return 2  # `checked` refuses the labels
  found, high = len(np.unique(label)), int(label.max(initial=0))
  if found < 2:
    raise UserError(f"all labels are {high}: give two classes or more")
  if high + 1 > 2 * found:
    raise UserError(
      f"labels up to {high}, of which {found} occur: if they are"
      " classes, number them with np.unique(label, return_inverse=True)[1] or"
      " state their number, `classes`; there is no regression"
    )
  return high + 1
