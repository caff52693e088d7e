"""A user's own arrays: `npz:PATH`, written by np.savez(_compressed)."""

import struct
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from splitjax.data.array_cache import Arrays
from splitjax.files import (
  ObjectArray,
  one_line,
  printable,
  read_array,
  read_arrays,
)
from splitjax.types import UserError

PREFIX = "npz:"
_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load(name: str, *, mapped: bool = False) -> tuple[int, Arrays, str]:
  """Reads and checks a file of arrays.

  Args:
    name: npz:PATH. x_train and x_test are uint8 [Z, H, W, c], or [Z, H, W] for
      one channel; y_train and y_test are integers 0 to C - 1, [Z] or [Z, 1].
      client_train, and client_test if it is known, say whose sample each is:
      integers or texts [Z].
    mapped: memory-map x_train if the file is not compressed.

  Returns:
    C; train_image [Z, H, W, c] uint8, train_label [Z] int32, test_image,
    test_label, and train_client and test_client [Z] int32, numbers from 0,
    where the file has them; a sentence on images without a channel axis, or "".

  Raises:
    UserError: the file is missing or an array is invalid; names the array, its
      value and the remedy.
  """
  where = f"data.name = {name!r}"
  given = _read(Path(name.removeprefix(PREFIX)).expanduser(), where, mapped)
  arrays: Arrays = {}
  for split in ("train", "test"):
    image = _images(given[f"x_{split}"], f"{where}: x_{split}")
    label = _labels(given[f"y_{split}"], f"{where}: y_{split}")
    if len(image) != len(label):
      raise UserError(
        f"{where}: x_{split} has {len(image)} images and y_{split} "
        f"{len(label)} labels: give every image one label"
      )
    arrays |= {f"{split}_image": image, f"{split}_label": label}
  grey = [f"x_{s}" for s in ("train", "test") if given[f"x_{s}"].ndim == 3]
  note = ""
  if grey:
    note = f"{' and '.join(grey)} without a channel axis: read as grey images."
  classes = _classes(arrays, where, note)
  for key in ("train_label", "test_label"):
    arrays[key] = arrays[key].astype(np.int32)
  return classes, arrays | _clients(given, arrays, where), note


def _clients(given: Arrays, arrays: Arrays, where: str) -> Arrays:
  """Numbers of clients, in the order of their names."""
  found: Arrays = {}
  names = np.empty(0)
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
        f" or a text for each of the {count} images"
      )
    if split == "train":
      names = np.unique(owner)
    elif strange := sorted(set(owner.tolist()) - set(names.tolist())):
      raise UserError(
        f"{where}: client_test has {strange[0]!r}, who has no sample in"
        " client_train: leave such test samples out"
      )
    found[f"{split}_client"] = np.searchsorted(names, owner).astype(np.int32)
  return found


def _map_images(file: Any, key: str) -> Any:
  """An array of an NpzFile; x_train as a memory map if it is stored plainly."""
  member = file.zip.getinfo(f"{key}.npy") if key == "x_train" else None
  if member is None or member.compress_type != zipfile.ZIP_STORED:
    return read_array(file, key)
  with file.zip.open(member) as data:
    version = np.lib.format.read_magic(data)
    read_header = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
      return read_array(file, key)
    shape, fortran, dtype = read_header(data)
    start = data.tell()
    while data.read(1 << 20):  # the end of the file compares the checksum
      pass
  if dtype.hasobject or 0 in shape:
    return read_array(file, key)
  # Its local header has the lengths of its name and of further fields.
  raw = file.zip.fp
  raw.seek(member.header_offset + 26)
  start += member.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
  order: Literal["F", "C"] = "F" if fortran else "C"
  return np.memmap(raw.name, dtype, "r", start, shape, order)


def _read(path: Path, where: str, mapped: bool) -> Arrays:
  """Reads the four arrays; the file may have others too."""
  form = f"write it with np.savez as {', '.join(_KEYS)}"
  try:
    arrays = read_arrays(path, _map_images if mapped else read_array)
  except FileNotFoundError as error:
    raise UserError(f"{where}: no such file; give its path") from error
  except ObjectArray as error:
    kind = {"x_": "np.uint8", "y_": "int"}.get(error.key[:2], "str")
    raise UserError(
      f"{where}: {error.key} holds Python objects, as a column of pandas does:"
      f" write {error.key}.astype({kind})"
    ) from error
  except (OSError, ValueError) as error:
    raise UserError(
      f"{where} cannot be read ({one_line(error)}); {form}"
    ) from error
  if missing := [key for key in _KEYS if key not in arrays]:
    names = printable(", ".join(arrays)) or "nothing"
    raise UserError(
      f"{where} lacks {', '.join(missing)}, found {names}; {form}"
    )
  return arrays


def _images(image: np.ndarray, what: str) -> np.ndarray:
  """Images as uint8 [Z, H, W, c]."""
  shape = list(image.shape)
  if image.ndim not in (3, 4) or not image.size:
    raise UserError(
      f"{what} is of shape {shape}: reshape it to [Z, H, W, c], or [Z, H, W] "
      "for one channel, without an empty axis"
    )
  if image.dtype != np.uint8:
    span = (
      f"from {image.min()} to {image.max()}" if _real(image) else "no numbers"
    )
    remedy = "bring it to 0 to 255 and cast"
    if _real(image) and image.min() >= 0 and image.max() <= 255:
      unit = image.dtype.kind == "f" and image.max() <= 1
      remedy = "multiply by 255 and cast" if unit else "cast"
    raise UserError(f"{what} is {image.dtype}, {span}: {remedy} it to uint8")
  if image.ndim == 3:
    image, shape = image[..., None], [*shape, 1]
  _, channels, high, wide = shape
  if channels in (1, 3) and min(high, wide) > 4:
    raise UserError(
      f"{what} is of shape {shape}, channels first: transpose it with "
      "(0, 2, 3, 1) to [Z, H, W, c]"
    )
  if what.endswith("x_train") and image.min() == image.max():
    raise UserError(
      f"{what} has the one value {image.min()} everywhere: multiply pixels of 0"
      " to 1 by 255 before you cast them to uint8"
    )
  return image


def _real(array: np.ndarray) -> bool:
  return array.dtype.kind in "biuf"


def _labels(label: np.ndarray, what: str) -> np.ndarray:
  """Labels as non-negative integers [Z] of their own type."""
  if label.dtype.kind not in "iu":
    raise UserError(
      f"{what} is {label.dtype}: number the classes 0 to C - 1, cast to int32"
      " (np.unique(names, return_inverse=True)[1] numbers names)"
    )
  if label.ndim == 2 and label.shape[1] == 1:
    label = label[:, 0]
  if label.ndim != 1:
    raise UserError(
      f"{what} is of shape {list(label.shape)}: reshape it to [Z], one class "
      "number for each image (of one-hot rows, the argmax)"
    )
  if (label < 0).any():
    raise UserError(
      f"{what} has a negative label, {label.min()}: number the classes 0 to "
      "C - 1"
    )
  return label


def _classes(arrays: Arrays, where: str, note: str) -> int:
  """Checks that both splits have the same shape and classes; C."""
  train, test = (
    list(arrays[f"{s}_image"].shape[1:]) for s in ("train", "test")
  )
  if train != test:
    told = note and f" ({note.removesuffix('.')})"
    raise UserError(
      f"{where}: x_test has images {test} and x_train {train}{told}: make them"
      " alike"
    )
  classes = np.unique(arrays["train_label"]).tolist()
  for expected, found in enumerate(classes):
    if found != expected:
      raise UserError(
        f"{where}: y_train has a label {found} and none of class {expected}: "
        "number the classes 0 to C - 1, each with a sample"
      )
  if (high := arrays["test_label"].max()) >= len(classes):
    raise UserError(
      f"{where}: y_test has a label {high}, the classes of y_train are 0 to "
      f"{len(classes) - 1}: number both alike"
    )
  return len(classes)
