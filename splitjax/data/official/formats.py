"""Parsers of official files: shared parts, IDX and MATLAB files.

A parser takes {official file name -> path} and returns Parsed. It reads
archives as streams; nothing is extracted to disk. cifar.py parses the archives
of CIFAR, image_archives.py those of JPEG and PNG files.
"""

import contextlib
import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from tqdm import tqdm

from splitjax.files import printable, reason
from splitjax.types import UserError

Paths = dict[str, Path]
"""Official file name -> path."""


class Split(NamedTuple):
  """One split of a data set, in its official order.

  Attributes:
    images: Z arrays [H, W, c] uint8, or contents of JPEG or PNG files; can be
      iterated once.
    labels: field -> [Z] int64.
    ids: Z names of samples; empty if the data set has none.
  """

  images: Iterable[np.ndarray | bytes]
  labels: dict[str, np.ndarray]
  ids: Sequence[str] = ()


class Parsed(NamedTuple):
  """The contents of official files.

  Attributes:
    splits: "train" and "test".
    names: label field -> C class names, if the files have them.
  """

  splits: dict[str, Split]
  names: dict[str, list[str]]


@contextlib.contextmanager
def reading(what: object) -> Iterator[None]:
  """Turns the errors of libraries on damaged files into one line.

  Args:
    what: names the file, and the member of an archive.

  Yields:
    While the file is read.

  Raises:
    UserError: reading failed.
  """
  try:
    yield
  except UserError:
    raise
  except MemoryError as error:  # a damaged size may ask for any number
    raise UserError(
      f"{printable(what)} is damaged, or larger than memory has room for"
      f" ({reason(error)}); fetch it again"
    ) from error
  except Exception as error:  # six libraries without a common base class
    raise UserError(
      f"{printable(what)} is damaged or not what its name says"
      f" ({reason(error)}); fetch it again"
    ) from error


def refuse(what: object, problem: str) -> UserError:
  """The error for a file that can be read but has wrong contents."""
  return UserError(f"{printable(what)} {problem}; fetch it again")


@contextlib.contextmanager
def opened(path: Path, doing: str) -> Iterator[IO]:
  """Opens a file for reading bytes, with a progress bar.

  Args:
    path: the file.
    doing: text of the bar.

  Yields:
    The file.
  """
  with path.open("rb") as raw:
    with tqdm.wrapattr(
      raw,
      "read",
      total=path.stat().st_size,
      desc=f"{doing} {path.name}",
      unit="B",
      unit_scale=True,
      disable=None,
      mininterval=1,
    ) as file:
      yield file


def checked(
  what: object, label: np.ndarray, images: int, allowed: range
) -> np.ndarray:
  """Checks labels against the number of images and the classes.

  Args:
    what: names the file, and the member of an archive.
    label: [Z], any integers.
    images: Z.
    allowed: the valid labels.

  Returns:
    [Z] int64.

  Raises:
    UserError: there are no images, or the labels do not match them.
  """
  if not images:
    raise refuse(what, "holds no images")
  if label.shape != (images,):
    raise refuse(what, f"has {label.size} labels for {images} images")
  if label.dtype.kind not in "iu":
    raise refuse(what, f"has labels of type {label.dtype}")
  wrong = label[(label < allowed[0]) | (label > allowed[-1])]
  if wrong.size:
    raise refuse(
      what, f"has a label {wrong[0]}, expected {allowed[0]} to {allowed[-1]}"
    )
  return label.astype(np.int64)


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
  """Reads a gzipped IDX file of bytes: 0 0 8 rank, sizes, values.

  Args:
    path: the file.
    shape: of one item.

  Returns:
    [Z, *shape] uint8.
  """
  rank = 1 + len(shape)
  with reading(path), opened(path, "reading") as raw:
    file = gzip.open(raw)
    head = file.read(4 + 4 * rank)
    sizes = np.frombuffer(head[4:], ">u4").tolist()
    if head[:4] != bytes([0, 0, 8, rank]) or tuple(sizes[1:]) != shape:
      form = "x".join(["Z", *map(str, shape)])
      raise refuse(path, f"is no IDX file of {form} bytes")
    expected = math.prod(sizes)
    # One byte more, so that the checksum at the end is read. In pieces, since a
    # damaged size may exceed memory.
    pieces, left = [], expected + 1
    while left and (piece := file.read(min(left, 1 << 24))):
      pieces.append(piece)
      left -= len(piece)
    body = b"".join(pieces)
  if len(body) != expected:
    longer = "more" if len(body) > expected else len(body)
    raise refuse(path, f"announces {expected} bytes and holds {longer}")
  return np.frombuffer(body, np.uint8).reshape(sizes)


def idx(paths: Paths) -> Parsed:
  """Reads the four files of the MNIST family: 28x28, ten classes.

  Args:
    paths: train-images-idx3-ubyte.gz and so on.

  Returns:
    Images [28, 28, 1]; the files have no names and ids.

  Raises:
    UserError: a file is damaged, or images and labels do not match.
  """
  splits = {}
  for split, prefix in (("train", "train"), ("test", "t10k")):
    image = _read_idx(paths[f"{prefix}-images-idx3-ubyte.gz"], (28, 28))
    where = paths[f"{prefix}-labels-idx1-ubyte.gz"]
    label = checked(where, _read_idx(where, ()), len(image), range(10))
    splits[split] = Split(image[..., None], {"label": label})
  return Parsed(splits, {})


def svhn(paths: Paths) -> Parsed:
  """Reads the two MATLAB files of SVHN's cropped digits.

  Args:
    paths: train_32x32.mat and test_32x32.mat: X [32, 32, 3, Z] uint8, y [Z, 1]
      with the digit 0 as 10.

  Returns:
    Images [32, 32, 3], the digit as label.

  Raises:
    UserError: a file is damaged or has other arrays.
  """
  from scipy.io import loadmat

  splits = {}
  for split in tqdm(("train", "test"), "reading SVHN", disable=None):
    path = paths[f"{split}_32x32.mat"]
    # loadmat may crash on a damaged file: prepare compares its md5 before,
    # unless the user allows modified files.
    with reading(path):
      arrays = loadmat(path, variable_names=("X", "y"))
      image, digit = arrays["X"], arrays["y"]
    pixels = image.shape[:3], image.dtype
    if pixels != ((32, 32, 3), np.uint8) or image.ndim != 4:
      raise refuse(path, f"has X {image.dtype} {list(image.shape)}")
    label = checked(path, digit.ravel(), image.shape[-1], range(1, 11))
    splits[split] = Split(
      np.moveaxis(image, -1, 0),
      {"label": label % 10},
      [f"{split}_{row:06d}" for row in range(len(label))],
    )
  return Parsed(splits, {})
