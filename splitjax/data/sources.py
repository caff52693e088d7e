"""Data sets as uint8 arrays on the host, and where they come from.

`digits` is bundled with scikit-learn; `npz:PATH` is a file of a user's own
arrays (npz.py); the others are prepared once with `python -m splitjax.data
prepare NAME` and read from disk (tfds_store.py).

To add a data set, add it to FACTS. If it is prepared from official files, it
also needs an entry in official.catalog.STORES, perhaps with a new parser;
otherwise it needs a function `(data_dir) -> Dataset` in SOURCES.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from splitjax.data import npz, tfds_store
from splitjax.data.tfds_store import SPLITS, Place
from splitjax.registry import nearest
from splitjax.types import UserError

_SPLIT_SEED = 0
"""Seed of the digits' split and of subsets, the same in all runs."""


class Dataset(NamedTuple):
  """A data set as arrays on the host; they may be memory-mapped, read-only.

  Attributes:
    name: its name in SOURCES, or npz:PATH.
    classes: C; some may have no samples.
    train_image: [Z, H, W, c] uint8.
    train_label: [Z] int32, 0 to C - 1.
    test_image: [M, H, W, c] uint8.
    test_label: [M] int32.
    note: a sentence for reports on modified files or a user's arrays; else "".
    train_client: [Z] int32, the client of each sample, from 0; None: not known.
    test_client: [M] int32, the same for test samples, with the same numbers.
    client_names: the name of each client number; (): the number is the name.
  """

  name: str
  classes: int
  train_image: np.ndarray
  train_label: np.ndarray
  test_image: np.ndarray
  test_label: np.ndarray
  note: str = ""
  train_client: np.ndarray | None = None
  test_client: np.ndarray | None = None
  client_names: tuple[str, ...] = ()

  def names(self, owners: np.ndarray) -> list[str]:
    """Returns the names [..] of owners [..] int."""
    each = owners.tolist()
    return [self.client_names[i] if self.client_names else str(i) for i in each]


class Facts(NamedTuple):
  """Facts about a data set that are known without reading it.

  Attributes:
    classes: C.
    shape: (H, W, c).
    train, test: Z and M; None: not known.
    counts: samples of each class, [C] of both splits; None: not documented.
    store: the name under which it is prepared; None if it needs no preparation.
    label: the field of the prepared data with the label.
    client: the field that names a sample's client; None if there is none.
  """

  classes: int
  shape: tuple[int, int, int]
  train: int | None
  test: int | None
  counts: tuple[tuple[int, ...], tuple[int, ...]] | None = None
  store: str | None = None
  label: str = "label"
  client: str | None = None


def _even(classes: int, side: int, channels: int, *each: int, **more) -> Facts:
  """Returns facts of a data set with equally many samples in each class."""
  train, test = each
  counts = (train,) * classes, (test,) * classes
  total = train * classes, test * classes
  return Facts(classes, (side, side, channels), *total, counts, **more)


def digits(data_dir: Place = None) -> Dataset:
  """Loads scikit-learn's 1,797 UCI digits, 8x8 resized bilinearly to 28x28x1.

  They have no official split; this is a stratified 80/20 split with a fixed
  seed, so that runs with any seed are tested on the same samples: 1,437 for
  training and 360 for test. The 17 grey levels 0 to 16 become 0 to 255.
  """
  del data_dir  # the data set is bundled
  from sklearn.model_selection import train_test_split

  image, label = _digits()
  rows, seed = np.arange(len(label)), _SPLIT_SEED
  train, test = train_test_split(
    rows, test_size=0.2, random_state=seed, stratify=label
  )
  pixels = image[train], label[train], image[test], label[test]
  return Dataset("digits", 10, *pixels)


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
  train, test = (
    (arrays[f"{s}_image"], arrays[f"{s}_{facts.label}"]) for s in SPLITS
  )
  owner, tester = (arrays.get(f"{s}_{facts.client}") for s in SPLITS)
  return Dataset(name, facts.classes, *train, *test, note, owner, tester)


def femnist(data_dir: Place = None) -> Dataset:
  """Loads EMNIST ByClass, with a tenth of each writer's samples for test.

  The shares are those of LEAF (Caldas et al., 2018), which scales the originals
  differently and draws other samples. A writer with fewer than ten samples has
  none for test. The data take 640 MB of memory.
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

  pixels = images(train), label[train], images(test), label[test]
  owners = owner[train], owner[test]
  return Dataset("femnist", whole.classes, *pixels, whole.note, *owners)


_SVHN = (
  (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
  (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
)

_MNIST = (
  (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
  (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
_EMNIST = Facts(
  62, (28, 28, 1), 697_932, 116_323, store="emnist_byclass", client="writer"
)

FACTS = {
  "digits": Facts(10, (28, 28, 1), 1437, 360),
  "mnist": Facts(10, (28, 28, 1), 60_000, 10_000, counts=_MNIST, store="mnist"),
  "fashion_mnist": _even(10, 28, 1, 6000, 1000, store="fashion_mnist"),
  "cifar10": _even(10, 32, 3, 5000, 1000, store="cifar10"),
  "cifar100": _even(100, 32, 3, 500, 100, store="cifar100"),
  "cifar100_coarse": _even(
    20, 32, 3, 2500, 500, store="cifar100", label="coarse_label"
  ),
  "svhn_cropped": Facts(
    10, (32, 32, 3), 73_257, 26_032, counts=_SVHN, store="svhn_cropped"
  ),
  "cinic10": _even(10, 32, 3, 9000, 9000, store="cinic10"),
  "tiny_imagenet": _even(200, 64, 3, 500, 50, store="tiny_imagenet"),
  "emnist_byclass": _EMNIST,
  "femnist": _EMNIST._replace(train=None, test=None),
}
"""Facts of the official files; prepared data may differ (`check`)."""

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
  """Returns the name, or raises UserError if no data set has it."""
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
  mapped: bool = False,
) -> Dataset:
  """Loads a data set, or a stratified part of it.

  A part is the same in every run and contains every smaller part. Each class
  keeps its share of the samples, to within one, and at least one if it has any.

  Args:
    name: a name in SOURCES, or npz:PATH.
    data_dir: folder of the prepared data; None: TFDS_DATA_DIR or TFDS's own.
    train_samples: training samples to keep; None: all.
    test_samples: test samples to keep; None: all.
    classes: C, if it exceeds the number that the data show; None: that number.
    mapped: also memory-map the training images of npz:PATH (those of prepared
      data always are); the file must not change meanwhile.

  Raises:
    UserError: the name is unknown, the data are not prepared, damaged or
      invalid, a part is larger than its split or smaller than the number of
      its classes, or there are more classes than `classes`.
  """
  if known(name).startswith(npz.PREFIX):
    count, arrays, note = npz.load(name, mapped=mapped, classes=classes)
    data = Dataset(name, count, note=note, **arrays)
  else:
    data = SOURCES[name](data_dir)
    if classes is not None and classes < data.classes:
      raise UserError(
        f"data.classes = {classes}: {name} has {data.classes}; set it to None,"
        " or to more"
      )
    data = data._replace(classes=classes or data.classes)
  for split, samples in zip(SPLITS, (train_samples, test_samples), strict=True):
    if samples is None:
      continue
    keys = (f"{split}_{part}" for part in ("image", "label", "client"))
    whole: dict[str, Any] = {key: getattr(data, key) for key in keys}
    label = whole[f"{split}_label"]
    occur = len(np.unique(label))
    if not occur <= samples <= len(label):
      raise UserError(
        f"data.{split}_samples = {samples}: must be between the {occur} "
        f"classes and the {len(label)} {split} samples of {name}"
      )
    rows = _stratified(label, samples)
    part = {k: x[rows] for k, x in whole.items() if x is not None}
    data = data._replace(**part)
  return data


def _stratified(label: np.ndarray, samples: int) -> np.ndarray:
  """Picks rows [samples] int64, ascending, in proportion to class sizes.

  The i-th sample of a class of n (in random order) has rank i / n; the samples
  of the lowest ranks are picked.
  """
  rank, rows = _rank(label), _shuffled(label)
  return np.sort(rows[np.argsort(rank[rows], kind="stable")[:samples]])


def _rank(group: np.ndarray) -> np.ndarray:
  """Returns [Z] ranks i / n: each sample is the i-th of n in its group."""
  rows = _shuffled(group)
  rows = rows[np.argsort(group[rows], kind="stable")]
  _, first, place, counts = np.unique(
    group[rows], return_index=True, return_inverse=True, return_counts=True
  )
  rank = np.empty(len(group))
  rank[rows] = (np.arange(len(rows)) - first[place]) / counts[place]
  return rank


def _shuffled(group: np.ndarray) -> np.ndarray:
  return np.random.default_rng(_SPLIT_SEED).permutation(len(group))
