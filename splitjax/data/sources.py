"""SOURCES: where data sets come from; `load` reads a data set or part of one.

`digits` is bundled with scikit-learn; `npz:PATH` is an npz file or a folder of
a user's own arrays (store.py); `tfds:NAME` was prepared by TensorFlow Datasets;
the others are prepared once with `python -m splitjax.data prepare NAME`.

To add a data set, add a function `(data_dir) -> Dataset` to SOURCES, or, if it
has official files, an entry and a reader to official.py.
"""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from splitjax import files
from splitjax.data import store
from splitjax.data.dataset import SPLITS, Dataset, checked
from splitjax.data.official import OFFICIAL
from splitjax.data.store import Arrays, Facts, Place
from splitjax.fields import nearest, written
from splitjax.types import UserError, naming


class Form(NamedTuple):
  """What is known of a data set without reading it."""

  shape: tuple[int, ...]
  classes: int
  vocabulary: int = 0


FORMS = {
  "digits": Form((28, 28, 1), 10),
  **{k: Form(x.shape, x.classes, x.vocabulary) for k, x in OFFICIAL.items()},
  "cifar100_coarse": Form((32, 32, 3), 20),
  "femnist": Form((28, 28, 1), 62),
}

NPZ, TFDS = "npz:", "tfds:"
_SPLIT_SEED = 0
"""Seed of the digits' split and of subsets, the same in all runs."""


def digits(data_dir: Place = None) -> Dataset:
  """Loads scikit-learn's 1,797 UCI digits, 8x8 resized bilinearly to 28x28x1.

  They have no official split. A stratified 80/20 split with a fixed seed gives
  all runs, whatever their seed, the same 1,437 samples for training and 360 for
  test. The 17 grey levels 0 to 16 become 0 to 255.
  """
  del data_dir  # the data set is bundled
  from sklearn.model_selection import train_test_split

  image, label = _digits()
  rows, seed = np.arange(len(label)), _SPLIT_SEED
  train, test = train_test_split(
    rows, test_size=0.2, random_state=seed, stratify=label
  )
  return Dataset(
    name="digits",
    classes=10,
    train_image=image[train],
    train_label=label[train],
    test_image=image[test],
    test_label=label[test],
  )


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
  """Returns all digits in scikit-learn's order: uint8 images, int32 labels."""
  from PIL import Image
  from sklearn.datasets import load_digits

  small, label = load_digits(return_X_y=True)
  grey = np.rint(small.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
  size, how = (28, 28), Image.Resampling.BILINEAR
  image = [np.asarray(Image.fromarray(g).resize(size, how)) for g in grey]
  return np.stack(image)[..., None], label.astype(np.int32)


def prepared(data_dir: Place = None, *, name: str) -> Dataset:
  """Loads a data set prepared from its official files, in their order."""
  return store.dataset(name, *_read(name, data_dir))


def _read(name: str, data_dir: Place) -> tuple[Arrays, Facts]:
  folder = store.root(data_dir) / name
  if not folder.exists():
    place = data_dir and f" --data_dir={shlex.quote(str(data_dir))}"
    raise UserError(
      f"not prepared in {folder.parent}: run"
      f" `python -m splitjax.data prepare {name}{place or ''}`"
    )
  return store.read(folder)


def cifar100_coarse(data_dir: Place = None) -> Dataset:
  """Loads CIFAR-100 with its 20 superclasses as labels."""
  arrays, facts = _read("cifar100", data_dir)
  arrays |= {f"{split}_label": arrays[f"{split}_coarse"] for split in SPLITS}
  facts["classes"] = facts["coarse_classes"]
  return store.dataset("cifar100_coarse", arrays, facts)


def femnist(data_dir: Place = None) -> Dataset:
  """Loads EMNIST ByClass, with a tenth of each writer's samples for test.

  LEAF (Caldas et al., 2018) divides in the same proportion, but it draws other
  samples and scales the original images differently. A writer with fewer than
  ten samples has none for test. The data take 640 MB of memory.
  """
  arrays, facts = _read("emnist_byclass", data_dir)
  clients = np.concatenate([arrays[f"{split}_client"] for split in SPLITS])
  in_test = _rank(clients) >= 0.9 - 1e-9
  for field in ("image", "label", "client"):
    both = np.concatenate([arrays[f"{split}_{field}"] for split in SPLITS])
    arrays |= {f"train_{field}": both[~in_test], f"test_{field}": both[in_test]}
  return store.dataset("femnist", arrays, facts)


def tensorflow_datasets(name: str, data_dir: Place) -> tuple[Arrays, Facts]:
  """Reads what TensorFlow Datasets prepared as array_record.

  Inputs and labels are the data set's `supervised_keys`, or else "image" and
  "label". A version may follow the name, as in "mnist:3.0.1". `data_dir` is the
  library's; None: its default. TensorFlow is not needed.
  """
  import tensorflow_datasets as tfds

  arrays, facts = Arrays(), Facts()
  for split in SPLITS:
    try:
      source = tfds.data_source(
        name,
        split=split,
        data_dir=data_dir and store.root(data_dir),
        download=False,
        builder_kwargs={"file_format": "array_record"},
      )
    except Exception as error:  # the library's errors share no base class
      raise UserError(
        f"TensorFlow Datasets has no {split} split of {name}"
        f" prepared as array_record ({files.reason(error)})"
      ) from error
    info = source.dataset_info
    image, label = info.supervised_keys or ("image", "label")
    rows = _records(source, f"reading {name} {split}")
    arrays[f"{split}_image"] = np.stack([row[image] for row in rows])
    arrays[f"{split}_label"] = np.array([row[label] for row in rows])
    if names := getattr(info.features[label], "names", None):
      facts["classes"] = list(names)
  return arrays, facts


def _records(source: Any, title: str) -> list[dict[str, Any]]:
  """Reads all records, 1,000 at a time: four times as fast as one by one."""
  rows, step = list[dict[str, Any]](), 1000
  for start in tqdm(
    range(0, len(source), step), title, unit_scale=step, disable=None
  ):
    chosen = range(start, min(start + step, len(source)))
    rows.extend(source.__getitems__(chosen))
  return rows


SOURCES: dict[str, Callable[[Place], Dataset]] = {
  "digits": digits,
  **{name: functools.partial(prepared, name=name) for name in OFFICIAL},
  "cifar100_coarse": cifar100_coarse,
  "femnist": femnist,
}


def known(name: str) -> str:
  """Returns `name` as it is; raises UserError if no data set has this name."""
  prefix = next((x for x in (NPZ, TFDS) if name.startswith(x)), "")
  if name == prefix or not (prefix or name in SOURCES):
    raise UserError(
      f"data.name = {written(name)}: no such data set; the nearest of"
      f" {len(SOURCES)} are {', '.join(nearest(name, SOURCES))}; your"
      f" own arrays are {NPZ}PATH"
    )
  return name


def load(
  name: str,
  *,
  data_dir: Place = None,
  train_samples: int | None = None,
  test_samples: int | None = None,
  classes: int | None = None,
) -> Dataset:
  """Loads a data set, or a stratified part of it.

  A part is the same in every run and contains every smaller part. The number of
  its samples of each class is proportional to the size of the class, to within
  one sample. A class that has samples keeps at least one.

  Args:
    name: a name in SOURCES, npz:PATH or tfds:NAME.
    data_dir: folder of the prepared data, see `store.root`.
    train_samples: training samples to keep; None: all.
    test_samples: likewise.
    classes: C, if some classes have no samples; None: as many as the data have.

  Raises:
    UserError: the name is unknown, the data are not prepared, damaged or
      invalid, a part is larger than its split or too small to have each of its
      classes, or there are more classes than `classes`.
  """
  where = f"data.name = {known(name)!r}"
  with naming(where):
    data = _unchecked(name, data_dir, classes)
  data = _with_classes(data, classes)
  with naming(where):
    data = checked(data)
  for split, samples in zip(SPLITS, (train_samples, test_samples), strict=True):
    if samples is None:
      continue
    label = getattr(data, f"{split}_label")
    occur = len(np.unique(label))
    if not occur <= samples <= len(label):
      raise UserError(
        f"data.{split}_samples = {samples}: must be between the {occur} "
        f"classes and the {len(label)} {split} samples of {name}"
      )
    data = data.keep(split, _stratified(label, samples))
  return data


def _unchecked(name: str, data_dir: Place, classes: int | None) -> Dataset:
  """Reads a whole data set; see `load`."""
  if name.startswith(NPZ):
    path = Path(name.removeprefix(NPZ)).expanduser()
    return store.dataset(name, *store.read(path), classes)
  if name.startswith(TFDS):
    found = tensorflow_datasets(name.removeprefix(TFDS), data_dir)
    return store.dataset(name, *found, classes)
  return SOURCES[name](data_dir)


def _with_classes(data: Dataset, classes: int | None) -> Dataset:
  """Sets the number of classes; those without a name get their number."""
  if classes is None:
    return data
  if classes < data.classes:
    raise UserError(
      f"data.classes = {classes}: {data.name} has {data.classes}; set it to"
      " None, or to more"
    )
  names = data.class_names
  if names:
    names = (*names, *map(str, range(len(names), classes)))
  return data._replace(classes=classes, class_names=names)


def _stratified(label: np.ndarray, samples: int) -> np.ndarray:
  """Picks rows [samples] int64, ascending, in proportion to class sizes.

  In random order, the i-th of the n samples of a class gets the rank i / n. The
  samples of the lowest ranks are picked.
  """
  rank, rows = _rank(label), _shuffled(label)
  return np.sort(rows[np.argsort(rank[rows], kind="stable")[:samples]])


def _rank(group: np.ndarray) -> np.ndarray:
  """Ranks samples [Z] at random: the i-th of the n in a group gets i / n."""
  rows = _shuffled(group)
  rows = rows[np.argsort(group[rows], kind="stable")]
  _, first, place, counts = np.unique(
    group[rows], return_index=True, return_inverse=True, return_counts=True
  )
  rank = np.empty(len(group))
  rank[rows] = (np.arange(len(rows)) - first[place]) / counts[place]
  return rank


def _shuffled(group: np.ndarray) -> np.ndarray:
  """Returns row numbers of `group` [Z] in a random order fixed for all runs."""
  return np.random.default_rng(_SPLIT_SEED).permutation(len(group))
