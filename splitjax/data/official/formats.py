"""What the parsers of official files share, and the two plain formats.

A parser takes {official file name -> its path} and gives a Parsed. It reads
archives as streams: nothing is ever extracted to disk. cifar.py has the two
archives of CIFAR, pictures.py those that hold JPEG and PNG files.
"""

import contextlib
import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from tqdm import tqdm

from splitjax.data.official import matlab
from splitjax.files import printable, reason
from splitjax.types import UserError

Paths = dict[str, Path]
"""Official file name -> where that file is."""


class Split(NamedTuple):
  """One split of a data set, in its official order.

  Attributes:
    images: Z of [H, W, c] uint8, or of whole JPEG or PNG files; may be read as
      they are asked for, once.
    labels: field -> [Z] int64.
    ids: Z names of samples; empty where the data set has none.
  """

  images: Iterable[np.ndarray | bytes]
  labels: dict[str, np.ndarray]
  ids: Sequence[str] = ()


class Parsed(NamedTuple):
  """What official files hold.

  Attributes:
    splits: "train" and "test".
    names: label field -> C names, where the files have names for the classes.
  """

  splits: dict[str, Split]
  names: dict[str, list[str]]


@contextlib.contextmanager
def reading(what: object) -> Iterator[None]:
  """Turns whatever a library says of a damaged file into one line.

  Args:
    what: names the file, and the member if it is an archive.

  Yields:
    While it is read.

  Raises:
    UserError: it could not be.
  """
  try:
    yield
  except UserError:
    raise
  except MemoryError as error:  # what a damaged size asks for
    raise UserError(
      f"{printable(what)} is damaged, or larger than memory has room for"
      f" ({reason(error)}); fetch it again"
    ) from error
  except Exception as error:  # of six libraries, without a common class
    raise UserError(
      f"{printable(what)} is damaged or not what its name says"
      f" ({reason(error)}); fetch it again"
    ) from error


def refuse(what: object, found: str) -> UserError:
  """The error of a file that can be read, but does not hold what it must."""
  return UserError(f"{printable(what)} {found}; fetch it again")


@contextlib.contextmanager
def opened(path: Path, doing: str) -> Iterator[IO]:
  """Opens a file whose reading is shown, against the size of the whole.

  Args:
    path: the file.
    doing: what the bar says of it.

  Yields:
    The file, for reading bytes.
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
  """Labels that fit their images and classes.

  Args:
    what: names the file, and the member if it is an archive.
    label: [Z], any integers.
    images: Z.
    allowed: the labels that may occur.

  Returns:
    [Z] int64.

  Raises:
    UserError: no images, another number of labels, or one that is not allowed.
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
  """Reads a gzipped IDX file of bytes: 0 0 8 rank, the sizes, the values.

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
    # One too many: reads on to the checksum. Piece by piece, since a damaged
    # size may be of more bytes than memory has.
    held, left = [], expected + 1
    while left and (piece := file.read(min(left, 1 << 24))):
      held.append(piece)
      left -= len(piece)
    body = b"".join(held)
  if len(body) != expected:
    longer = "more" if len(body) > expected else len(body)
    raise refuse(path, f"announces {expected} bytes and holds {longer}")
  return np.frombuffer(body, np.uint8).reshape(sizes)


def idx(paths: Paths) -> Parsed:
  """Reads the four files of the MNIST family: 28x28, ten classes.

  Args:
    paths: train-images-idx3-ubyte.gz and so on.

  Returns:
    Images [28, 28, 1]; names and ids are not in the files.

  Raises:
    UserError: a file is damaged, or they do not fit each other.
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
    UserError: a file is damaged or holds other arrays.
  """
  splits = {}
  both = tqdm(("train", "test"), "reading SVHN", disable=None)
  for split in both:
    path = paths[f"{split}_32x32.mat"]
    with reading(path):
      held = matlab.read(path)
      image, digit = held["X"], held["y"]
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
