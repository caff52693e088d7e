"""CIFAR-10 and CIFAR-100 from either of their two archives, in one order."""

import io
import pickle
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from splitjax.data.official.archives import members
from splitjax.data.official.formats import (
  Parsed,
  Paths,
  Split,
  checked,
  reading,
  refuse,
)

_PIXELS = 3 * 32 * 32


class Layout(NamedTuple):
  """What an archive is made of.

  Attributes:
    folder: all of it lies in there.
    batches: split -> its files in order.
    labels: field -> where a batch has it: key in the pickle, byte in a record.
    names: field -> where its class names are: (file, key), or (file,).
    classes: field -> C.
  """

  folder: str
  batches: dict[str, tuple[str, ...]]
  labels: dict[str, Any]
  names: dict[str, tuple[str, ...]]
  classes: dict[str, int]


PYTHON10 = Layout(
  "cifar-10-batches-py",
  {
    "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test": ("test_batch",),
  },
  {"label": "labels"},
  {"label": ("batches.meta", "label_names")},
  {"label": 10},
)
BINARY10 = PYTHON10._replace(
  folder="cifar-10-batches-bin",
  batches={
    split: tuple(f"{batch}.bin" for batch in batches)
    for split, batches in PYTHON10.batches.items()
  },
  labels={"label": 0},
  names={"label": ("batches.meta.txt",)},
)
PYTHON100 = Layout(
  "cifar-100-python",
  {"train": ("train",), "test": ("test",)},
  {"label": "fine_labels", "coarse_label": "coarse_labels"},
  {
    "label": ("meta", "fine_label_names"),
    "coarse_label": ("meta", "coarse_label_names"),
  },
  {"label": 100, "coarse_label": 20},
)
BINARY100 = PYTHON100._replace(
  folder="cifar-100-binary",
  batches={"train": ("train.bin",), "test": ("test.bin",)},
  labels={"label": 1, "coarse_label": 0},
  names={
    "label": ("fine_label_names.txt",),
    "coarse_label": ("coarse_label_names.txt",),
  },
)


def cifar(paths: Paths, layout: Layout) -> Parsed:
  """Reads an archive of CIFAR.

  Args:
    paths: the archive.
    layout: what it is made of.

  Returns:
    Images [32, 32, 3] and class names; ids are those of TFDS, train_00000.

  Raises:
    UserError: the archive is damaged, or lacks or misplaces something.
  """
  (path,) = paths.values()
  held = _held(path, layout)
  batch = _pickled if path.name.endswith("-python.tar.gz") else _binary
  splits = {}
  for split, files in layout.batches.items():
    images, labels = [], []
    for file in files:
      where = f"{path}: {file}"
      image, label = batch(held.pop(file), layout, where)
      images.append(image.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
      labels.append(
        {
          field: checked(where, label[field], len(image), range(classes))
          for field, classes in layout.classes.items()
        }
      )
    splits[split] = Split(
      [picture for image in images for picture in image],
      {
        k: np.concatenate([label[k] for label in labels]) for k in layout.labels
      },
      [f"{split}_{row:05d}" for row in range(sum(map(len, images)))],
    )
  return Parsed(splits, _names(held, layout, path))


def _held(path: Path, layout: Layout) -> dict[str, bytes]:
  """Reads the files of the layout, whatever else is in the archive."""
  wanted = {file for batches in layout.batches.values() for file in batches}
  wanted |= {where[0] for where in layout.names.values()}
  held = {
    name.name: read()
    for name, read in members(path)
    if name.name in wanted and name.parent == PurePosixPath(layout.folder)
  }
  if lacking := sorted(wanted - held.keys()):
    raise refuse(path, f"lacks {layout.folder}/{lacking[0]}")
  return held


def _names(
  held: dict[str, bytes], layout: Layout, path: Path
) -> dict[str, list[str]]:
  """The class names of every label field."""
  names = {}
  for field, (file, *keys) in layout.names.items():
    where = f"{path}: {file}"
    with reading(where):
      if keys:
        found = _unpickle(held[file])[keys[0]]
        said = [_text(name) for name in found]
      else:
        said = [name for name in held[file].decode().splitlines() if name]
      # Of one line each: so TFDS keeps them.
      good = {name for name in said if name.isprintable() and name.strip()}
    if not len(good) == len(said) == layout.classes[field]:
      raise refuse(where, f"does not name {layout.classes[field]} classes")
    names[field] = said
  return names


def _binary(
  raw: bytes, layout: Layout, where: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """A batch of records: a byte for each label, then the pixels.

  Returns:
    [Z, 3072] uint8, field -> [Z].
  """
  size = len(layout.labels) + _PIXELS
  if len(raw) % size:
    raise refuse(where, f"has {len(raw)} bytes, no multiple of {size}")
  record = np.frombuffer(raw, np.uint8).reshape(-1, size)
  labels = {field: record[:, byte] for field, byte in layout.labels.items()}
  return record[:, -_PIXELS:], labels


def _pickled(
  raw: bytes, layout: Layout, where: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """A batch pickled by Python 2: a dict of an array and lists; likewise."""
  with reading(where):
    batch = _unpickle(raw)
    image = batch["data"].array()
    labels = {
      field: np.array(batch[key], ndmin=1)
      for field, key in layout.labels.items()
    }
  if image.ndim != 2 or image.shape[1] != _PIXELS:
    raise refuse(where, f"has data of shape {list(image.shape)}")
  return image, labels


class _Pickled:
  """What a pickle says of an array: its parts, as plain values.

  None of numpy's own code to rebuild arrays is run, which a pickle of unknown
  origin could feed anything.
  """

  def __init__(self, *said: Any):
    self.said = said

  def __setstate__(self, state: Any) -> None:
    self.state = state

  def array(self) -> np.ndarray:
    """The array of bytes that is meant."""
    _, shape, dtype, by_column, values = self.state
    if _text(dtype.said[0]) != "u1":
      raise ValueError(f"an array of {_text(dtype.said[0])}, not of bytes")
    flat = np.frombuffer(values, np.uint8)
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)


def _encoded(text: str, encoding: Any) -> bytes:
  """How Python 3 pickles bytes for Python 2."""
  del encoding
  return text.encode("latin1")


_ALLOWED = {
  "numpy.core.multiarray._reconstruct": _Pickled,
  "numpy._core.multiarray._reconstruct": _Pickled,  # since numpy 2
  "numpy.ndarray": _Pickled,
  "numpy.dtype": _Pickled,
  "_codecs.encode": _encoded,
}


class _Unpickler(pickle._Unpickler):
  """Builds numbers, text, lists, dicts and _Pickled, and calls nothing else.

  The one in Python: that in C takes gigabytes for a number that is damaged.
  """

  def find_class(self, module: str, name: str) -> Any:
    if f"{module}.{name}" not in _ALLOWED:
      raise pickle.UnpicklingError(f"it asks for {module}.{name}")
    return _ALLOWED[f"{module}.{name}"]


def _unpickle(raw: bytes) -> dict[str, Any]:
  """Reads a pickled dict whose keys are bytes, as in the official files."""
  held = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
  return {_text(key): value for key, value in held.items()}


def _text(said: str | bytes) -> str:
  return said.decode("ascii") if isinstance(said, bytes) else said
