"""Prepared data sets on disk, read with tensorflow-datasets (TFDS).

What prepare.py wrote, or anybody else's TFDS as array_record, is read through
the stock builder; none of it needs TensorFlow. Beside the prepared data lies a
copy as plain arrays, read in no time, memory-mapped and without TFDS:

  data_dir/fashion_mnist/3.0.1/                    as TFDS keeps it
  data_dir/splitjax_arrays/fashion_mnist/<stamp>/  train_image.npy, ...
"""

import hashlib
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
from absl import logging
from tqdm import tqdm

from splitjax.types import UserError

Place = str | os.PathLike | None
"""A folder as the user gives it; None: TFDS_DATA_DIR or TFDS's own."""

Arrays = dict[str, np.ndarray]
"""train_image, train_label, test_image, test_label, as in sources.Dataset."""

SPLITS = ("train", "test")
_BATCH = 1000  # records read at once: one by one takes four times as long


def root(data_dir: Place) -> Path:
  """Returns the folder of all prepared data."""
  chosen = data_dir or os.environ.get("TFDS_DATA_DIR")
  return Path(chosen or "~/tensorflow_datasets").expanduser()


def find(name: str, data_dir: Place) -> Path | None:
  """Finds the newest prepared version of a data set, without TFDS.

  Args:
    name: the stock name.
    data_dir: folder of all prepared data.

  Returns:
    The version's folder, or None where nothing is prepared.

  Raises:
    UserError: it is prepared, but as tfrecord, which only TensorFlow reads.
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
  """Returns the two commands that prepare a data set: download, from a folder.

  Args:
    name: the stock name.
    data_dir: folder of all prepared data.
  """
  prepare = f"python -m splitjax.data prepare {name}"
  place = f" --data_dir {data_dir}" if data_dir else ""
  return f"`{prepare}{place}`", f"`{prepare} --from DIR{place}`"


def load(name: str, data_dir: Place) -> Arrays:
  """Reads a prepared data set, from its plain arrays where these are current.

  Args:
    name: the stock name.
    data_dir: folder of all prepared data.

  Returns:
    The four arrays in the order of TFDS; memory-mapped and read-only unless
    data_dir cannot be written.

  Raises:
    UserError: not prepared, or prepared as tfrecord.
  """
  folder = find(name, data_dir)
  if folder is None:
    download, local = commands(name, data_dir)
    raise UserError(
      f"data.name = '{name}': not prepared in {root(data_dir)}; run {download} "
      f"(downloads) or {local} (official files in a folder)"
    )
  cache = root(data_dir) / "splitjax_arrays" / name / _stamp(folder)
  try:
    return _open_arrays(cache)
  except (OSError, ValueError):  # absent, or cut short by a full disk
    arrays = _read(name, folder)
  try:
    _save_arrays(arrays, cache)
    return _open_arrays(cache)
  except (
    OSError
  ) as error:  # a read-only data_dir is a slow one, not a wrong one
    logging.warning("no plain arrays kept of %s: %s", name, error)
    return arrays


def _read(name: str, folder: Path) -> Arrays:
  """Decodes every record of a prepared data set, some 15,000 in a second."""
  import tensorflow_datasets as tfds
  from PIL import Image

  arrays: Arrays = {}
  for split in SPLITS:
    source = tfds.data_source(
      f"{name}:{folder.name}",
      split=split,
      data_dir=folder.parent.parent,
      download=False,
      decoders={"image": tfds.decode.SkipDecoding()},
      # Unasked it takes tfrecord for granted as soon as data_dir is given.
      builder_kwargs={"file_format": "array_record"},
    )
    shape = source.dataset_info.features["image"].shape
    image = np.empty((len(source), *shape), np.uint8)
    label = np.empty(len(source), np.int32)
    starts = range(0, len(source), _BATCH)
    for start in tqdm(starts, f"reading {name} {split}", disable=None):
      rows = range(start, min(start + _BATCH, len(source)))
      for row, example in zip(rows, source.__getitems__(rows), strict=True):
        picture = Image.open(io.BytesIO(example["image"]))
        image[row] = np.asarray(picture).reshape(shape)
        label[row] = example["label"]
    arrays |= {f"{split}_image": image, f"{split}_label": label}
  return arrays


def _stamp(folder: Path) -> str:
  """Changes with the name, size or date of any prepared file."""
  files = sorted((p.name, p.stat()) for p in folder.iterdir())
  facts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
  return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _open_arrays(cache: Path) -> Arrays:
  keys = [f"{split}_{kind}" for split in SPLITS for kind in ("image", "label")]
  return {key: np.load(cache / f"{key}.npy", mmap_mode="r") for key in keys}


def _save_arrays(arrays: Arrays, cache: Path) -> None:
  """Writes under another name, then renames: half a copy is never seen.

  Whatever else lies there is stale, or the half of another process, which will
  do without.
  """
  shutil.rmtree(cache.parent, ignore_errors=True)
  half = cache.with_name(f"half-{os.getpid()}")
  half.mkdir(parents=True)
  for key, array in arrays.items():
    np.save(half / f"{key}.npy", array)
  half.rename(cache)
