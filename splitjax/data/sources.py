"""SOURCES: where data sets come from; `load` reads a data set or part of one.

`digits` is bundled with scikit-learn; `npz:PATH` is a file of a user's own
arrays (npz.py); the others are prepared once with `python -m splitjax.data
prepare NAME` and read from disk (tfds_store.py).

To add a data set, add it to FACTS (facts.py). If it is prepared from official
files, it also needs an entry in official.catalog.STORES, perhaps with a new
parser; otherwise it needs a function `(data_dir) -> Dataset` in SOURCES.
"""

import functools
from collections.abc import Callable

import numpy as np

from splitjax.data import npz, tfds_store
from splitjax.data.dataset import Dataset
from splitjax.data.facts import FACTS
from splitjax.data.tfds_store import SPLITS, Place
from splitjax.registry import nearest
from splitjax.types import UserError

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
  """Loads a data set prepared from its official files, in TFDS's order.

  Raises:
    UserError: it is not prepared in data_dir, or damaged.
  """
  facts = FACTS[name]
  fields = [field for field in (facts.label, facts.client) if field]
  arrays, note = tfds_store.load(facts.store or name, data_dir, fields)
  return Dataset(
    name=name,
    classes=facts.classes,
    train_image=arrays["train_image"],
    train_label=arrays[f"train_{facts.label}"],
    test_image=arrays["test_image"],
    test_label=arrays[f"test_{facts.label}"],
    train_client=arrays.get(f"train_{facts.client}"),
    test_client=arrays.get(f"test_{facts.client}"),
    client_names=facts.names,
    vocabulary=facts.vocabulary,
    note=note,
  )


def femnist(data_dir: Place = None) -> Dataset:
  """Loads EMNIST ByClass, with a tenth of each writer's samples for test.

  LEAF (Caldas et al., 2018) divides in the same proportion, but it draws other
  samples and scales the original images differently. A writer with fewer than
  ten samples has none for test. The data take 640 MB of memory.
  """
  whole = prepared(data_dir, name="emnist_byclass")
  assert whole.train_client is not None and whole.test_client is not None
  owner = np.concatenate([whole.train_client, whole.test_client])
  label = np.concatenate([whole.train_label, whole.test_label])
  test = np.sort(np.flatnonzero(_rank(owner) >= 0.9 - 1e-9))
  train = np.setdiff1d(np.arange(len(owner)), test)
  cut = len(whole.train_label)

  def images(rows: np.ndarray) -> np.ndarray:
    first, second = rows[rows < cut], rows[rows >= cut] - cut
    return np.concatenate([whole.train_image[first], whole.test_image[second]])

  return Dataset(
    name="femnist",
    classes=whole.classes,
    train_image=images(train),
    train_label=label[train],
    test_image=images(test),
    test_label=label[test],
    train_client=owner[train],
    test_client=owner[test],
    note=whole.note,
  )


SOURCES: dict[str, Callable[[Place], Dataset]] = {
  "digits": digits,
  **{
    name: functools.partial(prepared, name=name)
    for name, facts in FACTS.items()
    if facts.store
  },
  "femnist": femnist,
}


def known(name: str) -> str:
  """Returns `name` as it is; raises UserError if no data set has this name."""
  if name == npz.PREFIX or not (name in SOURCES or name.startswith(npz.PREFIX)):
    raise UserError(
      f"data.name = {name!r}: no such data set; the nearest of {len(SOURCES)}"
      f" are {', '.join(nearest(name, SOURCES))}; a file of your own arrays is"
      f" {npz.PREFIX}PATH"
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
    name: a name in SOURCES, or npz:PATH.
    data_dir: folder of the prepared data; None: TFDS_DATA_DIR or TFDS's own.
    train_samples: training samples to keep; None: all.
    test_samples: test samples to keep; None: all.
    classes: C, if some classes have no samples; None: as many as the data have.

  Raises:
    UserError: the name is unknown, the data are not prepared, damaged or
      invalid, a part is larger than its split or too small to have each of its
      classes, or there are more classes than `classes`.
  """
  if known(name).startswith(npz.PREFIX):
    count, arrays, note = npz.load_npz(name, classes=classes)
    data = Dataset(name, count, note=note, **arrays)
  else:
    data = SOURCES[name](data_dir)
    if name not in FACTS:
      data = _checked(data)
    if classes is not None and classes < data.classes:
      raise UserError(
        f"data.classes = {classes}: {name} has {data.classes}; set it to None,"
        " or to more"
      )
    data = data._replace(classes=classes or data.classes)
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


def _checked(data: Dataset) -> Dataset:
  """Checks a user's own source as `npz.checked` checks the arrays of a file.

  Raises:
    UserError: an array is invalid, or the arrays do not fit together.
  """
  where = f"data.name = {data.name!r}"
  keys = {"x": "image", "y": "label"}
  named = {f"{k}_{s}": f"{s}_{keys[k]}" for k in keys for s in SPLITS}
  owners = [f"{s}_client" for s in SPLITS]
  for name in (*named.values(), *owners):
    array = getattr(data, name)
    optional = name in owners and array is None
    if not (optional or isinstance(array, np.ndarray)):
      raise UserError(
        f"{where}: {name} is a {type(array).__name__}: give a NumPy array"
      )
  # Inputs and labels.
  field = "vocabulary" if data.vocabulary else "standardise"
  given = {key: getattr(data, name) for key, name in named.items()}
  given[field] = np.array(getattr(data, field))
  _, arrays, _ = npz.checked(given, where, data.classes, named=named)
  # Owners, numbered as client_names are.
  most = len(data.client_names) or np.inf
  for split, name in zip(SPLITS, owners, strict=True):
    owner, label = getattr(data, name), arrays[f"{split}_label"]
    if owner is None:
      continue
    whole = owner.dtype.kind in "iu" and owner.shape == label.shape
    if not (whole and (owner >= 0).all() and (owner < most).all()):
      raise UserError(
        f"{where}: {name} is {owner.dtype}{list(owner.shape)}: give each of the"
        f" {len(label)} samples the number of its client, from 0 on, below the"
        " number of client_names if there are any"
      )
  return data._replace(**arrays)


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
