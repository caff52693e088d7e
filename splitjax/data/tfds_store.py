"""Prepared data sets on disk, read with tensorflow-datasets (TFDS).

TFDS itself or official/prepare.py has written them as array_record files. The
stock builder of TFDS reads these without TensorFlow. A copy as plain arrays is
kept, which is memory-mapped and read without TFDS:

  data_dir/fashion_mnist/3.0.1/                    in the format of TFDS
  data_dir/splitjax_arrays/fashion_mnist/<stamp>/  train_image.npy, ...
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from splitjax.data import array_cache
from splitjax.data.array_cache import Arrays
from splitjax.files import locked, printable, reason
from splitjax.types import UserError

Place = str | os.PathLike | None
"""A folder given by the user; None: TFDS_DATA_DIR or TFDS's default."""

SPLITS = ("train", "test")
COPIES = "splitjax_arrays"
"""Folder in data_dir that holds the plain arrays."""

ORIGIN = "prepared_from"
"""Key in TFDS's metadata.json that lists the files the data were made from."""

_BATCH = 1000  # records per read; reading one by one takes four times as long


def root(data_dir: Place) -> Path:
  """Returns the folder of all prepared data."""
  chosen = data_dir or os.environ.get("TFDS_DATA_DIR")
  return Path(chosen or "~/tensorflow_datasets").expanduser()


def find(name: str, data_dir: Place) -> Path | None:
  """Returns the newest prepared version's folder, or None; does not use TFDS.

  Raises:
    UserError: the data are stored as tfrecord, which only TensorFlow reads.
  """
  versions = [
    info.parent
    for info in (root(data_dir) / name).glob("*/dataset_info.json")
    if re.fullmatch(r"\d+\.\d+\.\d+", info.parent.name)
  ]
  if not versions:
    return None
  folder = max(versions, key=lambda p: tuple(map(int, p.name.split("."))))
  if not any(folder.glob("*.array_record*")):
    raise UserError(
      f"data_dir = '{root(data_dir)}': {name} is prepared there, but not as "
      "array_record; choose another data_dir and prepare it there"
    )
  return folder


def commands(name: str, data_dir: Place) -> tuple[str, str]:
  """Returns commands to prepare a data set: by download, and from a folder."""
  prepare = f"python -m splitjax.data prepare {name}"
  place = f" --data_dir {shlex.quote(str(data_dir))}" if data_dir else ""
  return f"`{prepare}{place}`", f"`{prepare} --from DIR{place}`"


def note(folder: Path) -> str:
  """Returns a sentence for reports if data were prepared from modified files.

  Returns "" if all files were official, or if they were not recorded because
  another program prepared the data. Raises UserError if the record is damaged.
  """
  path = folder / "metadata.json"
  if not path.is_file():
    return ""
  try:
    files = json.loads(path.read_text()).get(ORIGIN, ())
    modified = ", ".join(f["file"] for f in files if not f["official"])
  except (ValueError, AttributeError, KeyError, TypeError) as error:
    raise _unreadable(folder, error) from error
  if not modified:
    return ""
  return (
    f"{folder.parent.name} was prepared from files that are not the official "
    f"ones: {printable(modified)}"
  )


def load(
  name: str, data_dir: Place, fields: Sequence[str] = ("label",)
) -> tuple[Arrays, str]:
  """Reads a prepared data set through its plain-array copy, made if need be.

  Returns:
    The arrays by name, and the `note`. The arrays are train_image [Z, ...],
    test_image, and two for each field; for "label" these are train_label [Z]
    int32 and test_label. Samples are in the order of TFDS. The arrays are
    memory-mapped and read-only, unless there is no copy and none can be made.

  Raises:
    UserError: the data are not prepared, stored as tfrecord, or damaged.
  """
  folder = find(name, data_dir)
  if folder is None:
    download, local = commands(name, data_dir)
    raise UserError(
      f"data.name = '{name}': not prepared in {root(data_dir)}; run {download} "
      f"(downloads) or {local} (official files in a folder)"
    )
  text, copies = note(folder), root(data_dir) / COPIES / name
  keys = [f"{split}_{key}" for split in SPLITS for key in ("image", *fields)]
  arrays = _arrays(name, folder, copies, keys)
  if missing := sorted(set(keys) - arrays.keys()):
    raise _unreadable(folder, KeyError(f"no {missing[0]}"))
  return {key: arrays[key] for key in keys}, text


def _arrays(name: str, folder: Path, copies: Path, keys: list[str]) -> Arrays:
  """Opens the plain-array copy; makes it first if it is missing or damaged."""
  current, decoded = copies / _stamp(folder), None
  # The copy may be missing or damaged; numpy raises many kinds of errors.
  with contextlib.suppress(Exception):
    return array_cache.read_arrays(current, keys)
  try:
    with locked(copies.with_name(f".{name}.lock"), wait=True):
      with contextlib.suppress(Exception):
        return array_cache.read_arrays(current, keys)  # another process made it
      decoded = _decoded(name, folder)
      array_cache.store(decoded, current)
      return array_cache.read_arrays(current, keys)
  except OSError as error:  # a read-only data_dir is slow, but works
    logging.warning("no plain arrays kept of %s: %s", name, error)
    return _decoded(name, folder) if decoded is None else decoded


def _decoded(name: str, folder: Path) -> Arrays:
  """Decodes all images and labels, about 15,000 records per second."""
  try:
    return {k: a for split in SPLITS for k, a in _split(name, folder, split)}
  except (MemoryError, ImportError):
    raise
  except Exception as error:  # three libraries without a common base class
    raise _unreadable(folder, error) from error


def _split(
  name: str, folder: Path, split: str
) -> Iterator[tuple[str, np.ndarray]]:
  """Decodes a split; yields (name, array) for images and each label field."""
  import tensorflow_datasets as tfds

  features = tfds.builder_from_directory(folder).info.features
  given = "image" if "image" in features else "input"
  pictures = {"image": tfds.decode.SkipDecoding()}
  source = tfds.data_source(
    f"{name}:{folder.name}",
    split=split,
    data_dir=folder.parent.parent,
    download=False,
    decoders=pictures if given == "image" else None,
    # With data_dir, TFDS assumes tfrecord unless told otherwise.
    builder_kwargs={"file_format": "array_record"},
  )
  total = len(source)
  if (count := _records(name, folder, split)) != total:
    raise ValueError(f"{total} {split} samples announced, {count} there")
  shape, kind = features[given].shape, tfds.features.ClassLabel
  dtype = np.uint8 if given == "image" else features[given].np_dtype
  image = np.empty((total, *shape), dtype)
  fields = [key for key in features if isinstance(features[key], kind)]
  labels = {key: np.empty(total, np.int32) for key in fields}
  for start in tqdm(
    range(0, total, _BATCH),
    f"reading {name} {split}",
    unit=" samples",
    unit_scale=_BATCH,
    disable=None,
  ):
    rows = range(start, min(start + _BATCH, total))
    for row, example in zip(rows, source.__getitems__(rows), strict=True):
      x = example[given]
      x = _pixels(x) if given == "image" else np.asarray(x)
      if x.shape != shape:
        raise ValueError(f"samples {x.shape}, announced as {shape}")
      image[row] = x
      for key in fields:
        labels[key][row] = example[key]
  yield f"{split}_image", image
  for key in fields:
    yield f"{split}_{key}", labels[key]


def _records(name: str, folder: Path, split: str) -> int:
  """Counts the records in the files of a split."""
  from array_record.python import array_record_module

  count = 0
  for path in folder.glob(f"{name}-{split}.array_record*"):
    reader = array_record_module.ArrayRecordReader(str(path))
    count += reader.num_records()
    reader.close()
  return count


def _pixels(file: bytes) -> np.ndarray:
  """Decodes a JPEG or PNG file to [H, W, c] uint8."""
  from PIL import Image

  image = np.asarray(Image.open(io.BytesIO(file)))
  return image[..., None] if image.ndim == 2 else image


def _unreadable(folder: Path, error: Exception) -> UserError:
  return UserError(
    f"{folder} cannot be read ({reason(error)}); delete it and prepare the data"
    " again"
  )


def _stamp(folder: Path) -> str:
  """Hashes the names, sizes and dates of all prepared files."""
  files = sorted((p.name, p.stat()) for p in folder.iterdir())
  facts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
  return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
