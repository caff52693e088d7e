"""SOURCES: where data sets come from; `load` reads a data set or part of one.

`digits` comes with scikit-learn; `npz:PATH` is a file or a folder of a user's
arrays (store.py); `tfds:NAME` was prepared by TensorFlow Datasets; the others
are prepared once with `python -m splitjax.data prepare NAME`.
"""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.data import store
from splitjax.data.dataset import (
  SPLITS,
  UNSTATED,
  Dataset,
  checked,
  keys,
  require,
)
from splitjax.data.official import OFFICIAL
from splitjax.data.partitions import turns
from splitjax.data.store import Folder
from splitjax.fields import naming, unknown
from splitjax.types import UserError

_NPZ = "npz:"
_TFDS = "tfds:"

_SPLIT_SEED = 0  # of the digits' split and of subsets, the same in all runs


@functools.cache
def digits() -> Dataset:
  """Loads scikit-learn's UCI digits, 8x8 resized bilinearly to 28x28x1.

  All runs have the same stratified split: 1,437 samples to train on, 360 to
  test. The grey levels 0 to 16 become 0 to 255.
  """
  from PIL import Image
  from sklearn.datasets import load_digits
  from sklearn.model_selection import train_test_split

  levels, label = load_digits(return_X_y=True)
  small = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
  bilinear = Image.Resampling.BILINEAR
  large = [Image.fromarray(image).resize((28, 28), bilinear) for image in small]
  pieces = train_test_split(
    np.stack([np.asarray(image) for image in large])[..., None],
    label.astype(np.int32),
    test_size=0.2,
    random_state=_SPLIT_SEED,
    stratify=label,
  )
  names = "train_image", "test_image", "train_label", "test_label"
  arrays = dict(zip(names, pieces, strict=True))
  return Dataset(name="digits", classes=10, **arrays)


def prepared(data_dir: Folder = None, *, name: str) -> Dataset:
  """Loads a data set prepared from its official files, in their order."""
  folder = store.root(data_dir) / name
  option = f" --data_dir={shlex.quote(str(data_dir))}" if data_dir else ""
  require(
    folder.exists(),
    f"not prepared in {folder.parent}: run"
    f" `python -m splitjax.data prepare {name}{option}`",
  )
  return store.read(name, folder)


def tensorflow_datasets(data_dir: Folder, *, name: str) -> Dataset:
  """Reads what TensorFlow Datasets prepared as array_record.

  Inputs and labels are the data set's `supervised_keys`, or else "image" and
  "label". A version may follow the name, as in "tfds:mnist:3.0.1". `data_dir`
  is where that library prepared it; None: in its default folder, not in ours.
  TensorFlow is not needed.
  """
  import tensorflow_datasets as tfds

  try:
    train, test = tfds.data_source(
      name.removeprefix(_TFDS),
      split=[*SPLITS],
      data_dir=store.root(data_dir) if data_dir else None,
      download=False,
      builder_kwargs={"file_format": "array_record"},
    )
  except Exception as error:  # the library's errors share no base class
    raise UserError(
      "TensorFlow Datasets has not prepared its splits train and test as"
      f" array_record ({files.reason(error)})"
    ) from error
  image, label = train.dataset_info.supervised_keys or ("image", "label")
  names = getattr(train.dataset_info.features[label], "names", None)
  arrays: dict[str, Any] = {}
  for split, source in (("train", train), ("test", test)):
    # Reading all records at once is faster than one by one.
    records = source.__getitems__(range(len(source)))
    arrays[f"{split}_image"] = np.stack([record[image] for record in records])
    arrays[f"{split}_label"] = np.array([record[label] for record in records])
  class_names = tuple(names or ())
  return Dataset(name=name, classes=UNSTATED, class_names=class_names, **arrays)


SOURCES: dict[str, Callable[[Folder], Dataset]] = {
  "digits": lambda data_dir: digits(),
  **{name: functools.partial(prepared, name=name) for name in OFFICIAL},
}


def reader(name: str) -> Callable[[Folder], Dataset]:
  """Returns what reads a data set; UserError if none has this name."""
  if name.startswith(_NPZ) and name != _NPZ:
    path = Path(name.removeprefix(_NPZ)).expanduser()
    return lambda data_dir: store.read(name, path)
  if name.startswith(_TFDS) and name != _TFDS:
    return functools.partial(tensorflow_datasets, name=name)
  names = [*SOURCES, f"{_NPZ}PATH", f"{_TFDS}NAME"]
  require(name in SOURCES, unknown("data.name", name, names, "data set"))
  return SOURCES[name]


def load(
  name: str,
  *,
  data_dir: Folder = None,
  train_samples: int | None = None,
  test_samples: int | None = None,
) -> Dataset:
  """Loads a data set, or a stratified part of it.

  A part is the same in every run and contains every smaller part. A class has
  its share of the samples, to within one, and at least one. `name` is in
  SOURCES, or npz:PATH or tfds:NAME. UserError if data are missing, damaged or
  wrong, or a part is larger than its split or smaller than its classes.
  """
  read = reader(name)
  with naming(f"data.name = {name!r}"):
    data = checked(read(data_dir))
  for split, samples in zip(SPLITS, (train_samples, test_samples), strict=True):
    if samples is None:
      continue
    label = getattr(data, f"{split}_label")
    classes = len(np.unique(label))
    require(
      classes <= samples <= len(label),
      f"data.{split}_samples = {samples}: must be between the {classes} classes"
      f" and the {len(label)} {split} samples of {name}",
    )
    rows = _stratified(label, samples)
    for key in keys(split):
      if getattr(data, key) is not None:
        data = data._replace(**{key: getattr(data, key)[rows]})
  return _with_note_on_repeats(data)


def _with_note_on_repeats(data: Dataset) -> Dataset:
  """Notes how many test samples have the inputs of a training sample."""
  digests = {hash(image.tobytes()) for image in data.train_image}
  repeats = sum(hash(image.tobytes()) in digests for image in data.test_image)
  total = len(data.test_image)
  text = f"{repeats} of {total} test samples are also training samples."
  return data._replace(note=f"{data.note} {text}".strip()) if repeats else data


def _stratified(label: np.ndarray, samples: int) -> np.ndarray:
  """Picks rows [samples] int64, ascending, in proportion to class sizes."""
  rows = np.random.default_rng(_SPLIT_SEED).permutation(len(label))
  classes = label[rows]
  # A row's rank is the share of its class that stands before it. Those of rank
  # 0, one of each class, are taken before all others.
  earlier = turns(classes)
  rank = earlier / np.bincount(label)[classes]
  return np.sort(rows[np.argsort(rank, kind="stable")[:samples]])
