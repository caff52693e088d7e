"""CIFAR-10 and CIFAR-100 from either of their two official archives.

The binary archive is downloaded, since it needs no pickle. The Python archive
holds the same samples in the same order; torchvision leaves it on disk, so
clusters without a network often have it.
"""

import codecs
import io
import pickle
from typing import Any, NamedTuple

import numpy as np

from splitjax.data.official.formats import (
  OfficialSplit,
  Parsed,
  Paths,
  checked,
  members,
  pixels,
  reading,
)

_PIXELS = 3 * 32 * 32


class Field(NamedTuple):
  """One kind of labels in an archive.

  Attributes:
    classes: C.
    labels: key in a pickled batch, or byte position in a record.
    names: the file with the class names; if it is pickled, also the names' key.
  """

  classes: int
  labels: Any
  names: tuple[str, ...]


class ArchiveLayout(NamedTuple):
  """The layout of an archive.

  Attributes:
    folder: the folder of all files in the archive.
    batches: split -> its files in order.
    fields: name of a label field -> its Field.
  """

  folder: str
  batches: dict[str, tuple[str, ...]]
  fields: dict[str, Field]


_FIVE = tuple(f"data_batch_{i}" for i in range(1, 6))

LAYOUTS = {
  "cifar-10-python.tar.gz": ArchiveLayout(
    "cifar-10-batches-py",
    {"train": _FIVE, "test": ("test_batch",)},
    {"label": Field(10, "labels", ("batches.meta", "label_names"))},
  ),
  "cifar-10-binary.tar.gz": ArchiveLayout(
    "cifar-10-batches-bin",
    {"train": tuple(f"{b}.bin" for b in _FIVE), "test": ("test_batch.bin",)},
    {"label": Field(10, 0, ("batches.meta.txt",))},
  ),
  "cifar-100-python.tar.gz": ArchiveLayout(
    "cifar-100-python",
    {"train": ("train",), "test": ("test",)},
    {
      "label": Field(100, "fine_labels", ("meta", "fine_label_names")),
      "coarse_label": Field(
        20, "coarse_labels", ("meta", "coarse_label_names")
      ),
    },
  ),
  "cifar-100-binary.tar.gz": ArchiveLayout(
    "cifar-100-binary",
    {"train": ("train.bin",), "test": ("test.bin",)},
    {
      "label": Field(100, 1, ("fine_label_names.txt",)),
      "coarse_label": Field(20, 0, ("coarse_label_names.txt",)),
    },
  ),
}
"""Official name of an archive -> its layout."""


def cifar(paths: Paths) -> Parsed:
  """Reads an archive of CIFAR: images [32, 32, 3], ids as in TFDS.

  Raises:
    UserError: the archive is damaged (all parsers raise this error).
  """
  ((name, path),) = paths.items()
  layout = LAYOUTS[name]
  read = _pickled if "python" in name else _records
  with reading(path):
    contents = {
      name.name: content
      for name, content in members(path)
      if str(name.parent) == layout.folder
    }
    splits = {
      split: _split(split, [read(contents[f], layout) for f in files], layout)
      for split, files in layout.batches.items()
    }
    names = {
      key: _names(contents, field) for key, field in layout.fields.items()
    }
  return Parsed(splits, names)


def _split(
  split: str, batches: list[dict[str, Any]], layout: ArchiveLayout
) -> OfficialSplit:
  """Joins the batches of a split; a batch has "data" and its label fields."""
  image = np.concatenate([pixels(b["data"], (_PIXELS,)) for b in batches])
  labels = {
    key: checked(
      np.concatenate([np.atleast_1d(b[key]) for b in batches]),
      len(image),
      field.classes,
    )
    for key, field in layout.fields.items()
  }
  ids = [f"{split}_{row:05d}" for row in range(len(image))]
  image = image.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
  return OfficialSplit(image, labels, ids)


def _records(raw: bytes, layout: ArchiveLayout) -> dict[str, Any]:
  """Reads a batch of records: one byte per label field, then the pixels."""
  size = len(layout.fields) + _PIXELS
  record = np.frombuffer(raw, np.uint8).reshape(-1, size)
  labels = {k: record[:, field.labels] for k, field in layout.fields.items()}
  return {"data": record[:, -_PIXELS:], **labels}


def _pickled(raw: bytes, layout: ArchiveLayout) -> dict[str, Any]:
  """Reads a batch pickled by Python 2, a dict of an array and lists."""
  batch = _unpickle(raw)
  labels = {k: batch[field.labels] for k, field in layout.fields.items()}
  return {"data": np.asarray(batch["data"]), **labels}


def _names(contents: dict[str, bytes], field: Field) -> list[str]:
  file, *keys = field.names
  if keys:
    found = [_text(name) for name in _unpickle(contents[file])[keys[0]]]
  else:
    found = [name for name in contents[file].decode().splitlines() if name]
  # TFDS stores one name per line.
  valid = {name for name in found if name.isprintable() and name.strip()}
  if not len(valid) == len(found) == field.classes:
    raise ValueError(f"{file} does not name {field.classes} classes")
  return found


_ALLOWED = {
  "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
  "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
  "numpy.ndarray": np.ndarray,
  "numpy.dtype": np.dtype,
  "_codecs.encode": codecs.encode,
}
"""Names that a pickle of arrays, lists and text needs, in Python 2 and 3."""


class _Unpickler(pickle._Unpickler):
  """Unpickler that accepts only byte arrays, numbers, text, lists and dicts.

  It derives from the unpickler that is written in Python, since the one written
  in C allocates gigabytes if a number in the file is damaged.
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
