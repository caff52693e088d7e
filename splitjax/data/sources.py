"""Data sets as uint8 arrays on the host, and where they come from.

`digits` is bundled with scikit-learn; the others are prepared once with
`python -m splitjax.data prepare NAME` and read from disk (tfds_store.py).

To add a data set: a function `(data_dir) -> Dataset`, a line in SOURCES and one
in FACTS and, if it is prepared from official files, one in prepare.STORES.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from splitjax.data import tfds_store
from splitjax.data.tfds_store import Place
from splitjax.types import UserError

_SPLIT_SEED = 0
"""Fixes what is not the run's to choose: the digits' split, the subsets."""


class Dataset(NamedTuple):
  """A data set as arrays on the host; they may be memory-mapped, read-only.

  Attributes:
    name: its name in SOURCES.
    classes: C.
    train_image: [Z, H, W, c] uint8.
    train_label: [Z] int32, 0 to C - 1.
    test_image: [M, H, W, c] uint8.
    test_label: [M] int32.
  """

  name: str
  classes: int
  train_image: np.ndarray
  train_label: np.ndarray
  test_image: np.ndarray
  test_label: np.ndarray


class Facts(NamedTuple):
  """What is known of a data set before a byte of it is read.

  Attributes:
    classes: C.
    shape: (H, W, c).
    train: Z.
    test: M.
    balanced: all classes are equally large, in either split.
  """

  classes: int
  shape: tuple[int, int, int]
  train: int
  test: int
  balanced: bool


def digits(data_dir: Place = None) -> Dataset:
  """The 1,797 UCI digits of scikit-learn, 8x8 resized to 28x28x1 (bilinear).

  They have no official split: a stratified 80/20 split with a fixed seed, so
  that runs of all seeds are tested on the same samples. The 17 grey levels 0 to
  16 become 0 to 255.

  Args:
    data_dir: not needed: the data set is bundled.

  Returns:
    1,437 training and 360 test samples.
  """
  del data_dir
  from PIL import Image
  from sklearn.datasets import load_digits
  from sklearn.model_selection import train_test_split

  small, label = load_digits(return_X_y=True)
  grey = np.rint(small.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
  image = np.stack(
    [
      np.asarray(Image.fromarray(g).resize((28, 28), Image.Resampling.BILINEAR))
      for g in grey
    ]
  )[..., None]
  train, test = train_test_split(
    np.arange(len(label)),
    test_size=0.2,
    random_state=_SPLIT_SEED,
    stratify=label,
  )
  label = label.astype(np.int32)
  return Dataset(
    "digits", 10, image[train], label[train], image[test], label[test]
  )


def fashion_mnist(data_dir: Place = None) -> Dataset:
  """Fashion-MNIST, 28x28x1, ten classes (Xiao et al., 2017), once prepared.

  Args:
    data_dir: folder of the prepared data; None: TFDS_DATA_DIR or TFDS's own.

  Returns:
    60,000 training and 10,000 test samples, in the order of TFDS.

  Raises:
    UserError: it is not prepared there.
  """
  arrays = tfds_store.load("fashion_mnist", data_dir)
  return Dataset("fashion_mnist", 10, **arrays)


SOURCES: dict[str, Callable[[Place], Dataset]] = {
  "digits": digits,
  "fashion_mnist": fashion_mnist,
}

FACTS = {
  "digits": Facts(10, (28, 28, 1), 1437, 360, balanced=False),
  "fashion_mnist": Facts(10, (28, 28, 1), 60_000, 10_000, balanced=True),
}


def known(name: str) -> str:
  """Returns the name.

  Raises:
    UserError: no data set has it.
  """
  if name not in SOURCES:
    raise UserError(
      f"data.name = {name!r}: no such data set; choose from "
      f"{', '.join(SOURCES)}"
    )
  return name


def load(
  name: str,
  *,
  data_dir: Place = None,
  train_samples: int | None = None,
  test_samples: int | None = None,
) -> Dataset:
  """Loads a data set, or a stratified part of it.

  A part is the same for every run and contains every smaller part: each class
  keeps its share of the samples, to within one, and at least one sample.

  Args:
    name: a name in SOURCES.
    data_dir: folder of the prepared data; None: TFDS_DATA_DIR or TFDS's own.
    train_samples: training samples to keep; None: all.
    test_samples: test samples to keep; None: all.

  Returns:
    The data set.

  Raises:
    UserError: unknown name, not prepared, or a part larger than its split or
      smaller than the number of classes.
  """
  data = SOURCES[known(name)](data_dir)
  for split, samples in (("train", train_samples), ("test", test_samples)):
    if samples is None:
      continue
    label = getattr(data, f"{split}_label")
    if not data.classes <= samples <= len(label):
      raise UserError(
        f"data.{split}_samples = {samples}: must be between the {data.classes} "
        f"classes and the {len(label)} {split} samples of {name}"
      )
    rows = _stratified(label, samples)
    image = getattr(data, f"{split}_image")[rows]
    data = data._replace(
      **{
        f"{split}_image": image,
        f"{split}_label": label[rows],
      }
    )
  return data


def _stratified(label: np.ndarray, samples: int) -> np.ndarray:
  """Picks rows [samples] int64, ascending, class by class in proportion.

  The i-th sample of a class of n stands at i / n, a class's first at 0; those
  that stand lowest are taken.
  """
  rows = np.random.default_rng(_SPLIT_SEED).permutation(len(label))
  place = np.empty(len(label))
  for c in np.unique(label):
    mine = np.flatnonzero(label[rows] == c)
    place[mine] = np.arange(len(mine)) / len(mine)
  return np.sort(rows[np.argsort(place, kind="stable")[:samples]])
