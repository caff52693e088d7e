"""CIFAR-10 and CIFAR-100 from either of their two official archives.

The binary archive is downloaded, since it needs no pickle. The Python archive
holds the same samples in the same order; it is the one that torchvision leaves
on disk, so that clusters without a network have it.
"""

import codecs
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
  """The layout of an archive.

  Attributes:
    folder: of all files.
    batches: split -> its files in order.
    labels: field -> key in the pickle, or position of its byte in a record.
    names: field -> place of its class names: (file, key), or (file,).
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
    layout: of the archive.

  Returns:
    Images [32, 32, 3] and class names; ids as in TFDS, train_00000.

  Raises:
    UserError: the archive is damaged, or lacks or misplaces something.
  """
  (path,) = paths.values()
  contents = _contents(path, layout)
  batch = _pickled if path.name.endswith("-python.tar.gz") else _binary
  splits = {}
  for split, files in layout.batches.items():
    images, labels = [], []
    for file in files:
      where = f"{path}: {file}"
      image, label = batch(contents.pop(file), layout, where)
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
  return Parsed(splits, _names(contents, layout, path))


def _contents(path: Path, layout: Layout) -> dict[str, bytes]:
  """Reads the files of the layout; the archive may have others too."""
  wanted = {file for batches in layout.batches.values() for file in batches}
  wanted |= {where[0] for where in layout.names.values()}
  contents = {
    name.name: read()
    for name, read in members(path)
    if name.name in wanted and name.parent == PurePosixPath(layout.folder)
  }
  if missing := sorted(wanted - contents.keys()):
    raise refuse(path, f"lacks {layout.folder}/{missing[0]}")
  return contents


def _names(
  contents: dict[str, bytes], layout: Layout, path: Path
) -> dict[str, list[str]]:
  """The class names of every label field."""
  names = {}
  for field, (file, *keys) in layout.names.items():
    where = f"{path}: {file}"
    with reading(where):
      if keys:
        found = [_text(n) for n in _unpickle(contents[file])[keys[0]]]
      else:
        found = [n for n in contents[file].decode().splitlines() if n]
      # TFDS stores one name per line.
      valid = {n for n in found if n.isprintable() and n.strip()}
    if not len(valid) == len(found) == layout.classes[field]:
      raise refuse(where, f"does not name {layout.classes[field]} classes")
    names[field] = found
  return names


def _binary(
  raw: bytes, layout: Layout, where: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """A batch of records: one byte per label, then the pixels.

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
  """A batch pickled by Python 2, a dict of an array and lists; likewise."""
  with reading(where):
    batch = _unpickle(raw)
    image = np.asarray(batch["data"])
    labels = {
      field: np.array(batch[key], ndmin=1)
      for field, key in layout.labels.items()
    }
  if image.dtype != np.uint8 or image.shape[1:] != (_PIXELS,):
    raise refuse(where, f"has data {image.dtype} {list(image.shape)}")
  return image, labels


_ALLOWED = {
  "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
  "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
  "numpy.ndarray": np.ndarray,
  "numpy.dtype": np.dtype,
  "_codecs.encode": codecs.encode,
}
"""What a pickle of arrays, lists and text needs, in Python 2 and 3."""


class _Unpickler(pickle._Unpickler):
  """Builds arrays of bytes, numbers, text, lists and dicts, and nothing else.

  In Python, since the one in C allocates gigabytes for a damaged number.
  """

  def find_class(self, module: str, name: str) -> Any:
    if f"{module}.{name}" not in _ALLOWED:
      raise pickle.UnpicklingError(f"it asks for {module}.{name}")
    return _ALLOWED[f"{module}.{name}"]


def _unpickle(raw: bytes) -> dict[str, Any]:
  """Reads a pickled dict whose keys are bytes, as in the official files."""
  content = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
  return {_text(key): value for key, value in content.items()}


def _text(value: str | bytes) -> str:
  return value.decode("ascii") if isinstance(value, bytes) else value
