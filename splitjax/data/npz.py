"""A user's own arrays: `npz:PATH`, written by np.savez(_compressed)."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from splitjax import files
from splitjax.data import inputs
from splitjax.data.array_cache import Arrays
from splitjax.types import UserError

PREFIX = "npz:"
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = (
  "client_train", "client_test", "client_domain", "classes", "standardise",
  "vocabulary",
)  # fmt: skip

ONLY_CLASSES = (
  "splitjax trains classifiers, one class number a sample, and no regression"
  " or several labels"
)
NUMBERED = (
  "np.unique(np.concatenate([y_train, y_test]), return_inverse=True)[1]"
)
_FEW = 20
"""Labels that are all below this number are accepted as classes, even if some
occur rarely."""


def load_npz(
  name: str, *, classes: int | None = None
) -> tuple[int, dict[str, Any], str]:
  """Reads and checks a file of arrays.

  Args:
    name: npz:PATH. x_train and x_test are inputs as in `data.inputs`; grey
      images may also be uint8 [Z, H, W]. y_train and y_test are integers 0 to
      C - 1, [Z] or [Z, 1]. Both arrays of the test split may be missing.
      client_train, and optionally client_test, name the client of each sample,
      integers or texts [Z]. client_domain [Z] is the domain (`data.domains`) of
      each training sample's client, such as "rotation:3". `classes` is C,
      `vocabulary` is V, and `standardise` is a text (`inputs.Standardise`). No
      other array is read.
    classes: C; None: as the file states, or else one more than the highest
      label.

  Returns:
    C, the fields of `Dataset` by name, and a note for reports. Without a test
    split, the test arrays are empty. client_names are in ascending order. The
    note says if images have no channel axis or if labels begin at 1; else it is
    "".

  Raises:
    UserError: the file is missing or an array is invalid; the message names the
      array, its value and the remedy.
  """
  where = f"data.name = {name!r}"
  given = _read(Path(name.removeprefix(PREFIX)).expanduser(), where)
  if "x_test" not in given:
    given |= {"x_test": given["x_train"][:0], "y_test": given["y_train"][:0]}
    if "client_train" in given:
      given.setdefault("client_test", given["client_train"][:0])
  count, arrays, note = checked(given, where, classes)
  return count, {**arrays, **_clients(given, arrays, where)}, note


def checked(
  given: Arrays,
  where: str,
  classes: int | None = None,
  *,
  named: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, dict[str, Any], str]:
  """Checks the inputs and labels of both splits, but not the clients.

  `given` has the arrays under the names that they have in a file, see
  `load_npz`.
  Error messages begin with `where`; if `named` maps the name of an array, they
  use the mapped name. Returns and raises what `load_npz` does, except that the
  fields about clients are missing.
  """
  said = {key: named.get(key, key) for key in _KEYS}
  arrays: Arrays = {}
  how = inputs.read_how(given, where)
  for split in ("train", "test"):
    x, y = f"x_{split}", f"y_{split}"
    what, image = f"{where}: {said[x]}", given[x]
    if image.ndim == 3 and image.dtype == np.uint8:
      image = image[..., None]
    image = inputs.checked(image, what, how["vocabulary"], train=not arrays)
    label = _labels(given[y], f"{where}: {said[y]}")
    if len(image) != len(label):
      raise UserError(
        f"{where}: {said[x]} has {len(image)} samples and {said[y]} "
        f"{len(label)} labels: give every sample one label"
      )
    arrays |= {f"{split}_image": image, f"{split}_label": label}
  three = {
    key
    for key, x in given.items()
    if x.ndim == 3 and len(x) and x.dtype == np.uint8
  }
  grey = " and ".join(key for key in ("x_train", "x_test") if key in three)
  note = grey and f"{grey} without a channel axis: read as grey images."
  shapes = [list(arrays[f"{s}_image"].shape[1:]) for s in ("train", "test")]
  dtypes = [arrays[f"{s}_image"].dtype.name for s in ("train", "test")]
  if shapes[0] != shapes[1] or dtypes[0] != dtypes[1]:
    told = note and f" ({note.removesuffix('.')})"
    kinds = dtypes if shapes[0] == shapes[1] else shapes
    raise UserError(
      f"{where}: {said['x_test']} has samples {kinds[1]} and"
      f" {said['x_train']} {kinds[0]}{told}: make them alike"
    )
  if classes is None:
    classes = _stated(given, where)
  classes = _count_classes(arrays, where, classes)
  occur = np.union1d(arrays["train_label"], arrays["test_label"])
  if occur[0] == 1 and len(occur) == occur[-1]:
    note = f"{note} No label is 0: subtract 1 if they count from 1.".strip()
  for key in ("train_label", "test_label"):
    arrays[key] = arrays[key].astype(np.int32)
  return classes, {**arrays, **how}, note


def _read(path: Path, where: str) -> Arrays:
  """Reads the arrays that are used and skips all others."""
  form = f"write it with np.savez as {', '.join(_KEYS)}"
  used = {*_KEYS, *_OPTIONAL}
  try:
    arrays = files.read_arrays(path, used)
  except FileNotFoundError as error:
    raise UserError(f"{where}: no such file; give its path") from error
  except (OSError, ValueError) as error:
    told = f"cannot be read ({files.one_line(error)})"
    raise UserError(f"{where} {told}; {form}") from error
  missing = [key for key in _KEYS if key not in arrays]
  if missing and missing != list(_KEYS[2:]):
    names = files.printable(", ".join(arrays)) or "nothing"
    told = f"lacks {', '.join(missing)}, found {names}"
    raise UserError(f"{where} {told}; {form}")
  return arrays


def _labels(label: np.ndarray, what: str) -> np.ndarray:
  """Checks labels: non-negative integers [Z]; keeps their dtype."""
  kind, told = label.dtype.kind, f"{what} is {label.dtype}"
  if label.ndim == 2 and label.shape[1] == 1:
    label = label[:, 0]
  if label.ndim != 1:
    hot = label.ndim == 2 and kind in "biuf" and _one_hot(label)
    remedy = "take the argmax of its one-hot rows" if hot else ONLY_CLASSES
    raise UserError(f"{what} is of shape {list(label.shape)}: {remedy}")
  if kind in "US":
    remedy = "number the names of classes, those of both splits at once"
    raise UserError(f"{told}: {remedy}: {NUMBERED}")
  if kind not in "iu":
    whole = kind == "b" or (kind == "f" and (label == np.rint(label)).all())
    remedy = "cast numbers of classes to int32; " if whole else ""
    raise UserError(f"{told}: {remedy}{ONLY_CLASSES}")
  if (label < 0).any():
    raise UserError(
      f"{what} has a negative label, {label.min()}: leave samples without a"
      f" label out, and number classes from 0; {ONLY_CLASSES}"
    )
  return label


def _one_hot(rows: np.ndarray) -> bool:
  return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())


def _stated(given: Arrays, where: str) -> int | None:
  """Returns the file's number of classes; None if it states none."""
  if "classes" not in given:
    return None
  stated = given["classes"]
  whole = stated.dtype.kind in "iuf" and stated.size == 1
  if not whole or stated.item() < 2 or stated.item() % 1:
    raise UserError(
      f"{where}: classes is {stated.dtype}{list(stated.shape)}: give their"
      " number, one integer of 2 or more"
    )
  return int(stated.item())


def _count_classes(arrays: Arrays, where: str, stated: int | None) -> int:
  """Returns C: the stated number, or one more than the highest label."""
  labels = [arrays["train_label"], arrays["test_label"]]
  high = max(int(label.max(initial=0)) for label in labels)
  if stated is not None:
    if high >= stated:
      raise UserError(
        f"{where} has a label {high} and {stated} classes (data.classes, or"
        " classes in the file): number labels from 0, or state more classes"
      )
    return stated
  # If most numbers occur rarely or never, they are measurements, not classes.
  found = len(np.union1d(*labels))
  if found < 2:
    remedy = "give samples of two classes or more"
    raise UserError(f"{where}: all labels are {high}: {remedy}")
  told = f"{where}: labels up to {high}, of which {found} occur"
  if high >= _FEW and high + 1 > 2 * found:
    raise UserError(
      f"{told}: {ONLY_CLASSES}; if these numbers name classes and measure"
      f" nothing, number those that occur: {NUMBERED}"
    )
  each = np.bincount(labels[0], minlength=high + 1)
  if high >= _FEW and each.min() < 2 and len(labels[0]) < 5 * (high + 1):
    raise UserError(
      f"{told}, in {len(labels[0])} training samples: {ONLY_CLASSES}; if these"
      f" are classes, set data.classes={high + 1}"
    )
  return high + 1


def _clients(given: Arrays, arrays: Arrays, where: str) -> dict[str, Any]:
  """Numbers the clients in ascending order of their names.

  Names are texts or integers. Returns the fields of `Dataset` that are about
  clients, by name. A client named only in client_test does not train.
  """
  found: dict[str, list[Any]] = {}
  for split in ("train", "test"):
    key = f"client_{split}"
    if key not in given:
      continue
    if split == "test" and "client_train" not in given:
      raise UserError(f"{where} has client_test and no client_train: add it")
    owner, count = given[key], len(arrays[f"{split}_label"])
    if owner.dtype.kind == "S":
      owner = np.char.decode(owner, "utf-8", "backslashreplace")
    if owner.dtype.kind not in "iuU" or owner.shape != (count,):
      raise UserError(
        f"{where}: {key} is {owner.dtype}{list(owner.shape)}: give an integer"
        f" or a text for each of the {count} samples"
      )
    found[f"{split}_client"] = owner.tolist()
  every = {name for owner in found.values() for name in owner}
  if len({type(name) for name in every}) > 1:
    raise UserError(
      f"{where}: one of client_train and client_test has numbers, the other"
      " texts: write both alike"
    )
  numbers = {name: i for i, name in enumerate(sorted(every))}
  owners = {
    key: np.array([numbers[name] for name in owner], np.int32)
    for key, owner in found.items()
  }
  names = tuple(map(files.printable, numbers))
  domains = _domains(given, owners, where)
  return {**owners, "client_names": names, **domains}


def _domains(given: Arrays, owners: Arrays, where: str) -> dict[str, Any]:
  """Numbers the training samples' domains in ascending order of their names.

  Returns the fields of `Dataset` that are about domains, by name; none without
  an array client_domain.
  """
  if "client_domain" not in given:
    return {}
  if "train_client" not in owners:
    raise UserError(f"{where} has client_domain and no client_train: add it")
  domain, owner = given["client_domain"], owners["train_client"]
  if domain.dtype.kind == "S":
    domain = np.char.decode(domain, "utf-8", "backslashreplace")
  if domain.dtype.kind != "U" or domain.shape != owner.shape:
    raise UserError(
      f"{where}: client_domain is {domain.dtype}{list(domain.shape)}: give a"
      f" text, such as 'rotation:3', for each of the {len(owner)} samples"
    )
  names, number = np.unique(domain, return_inverse=True)
  return {
    "train_domain": number.astype(np.int32),
    "domain_names": tuple(map(str, names)),
  }
