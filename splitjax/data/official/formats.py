"""Parsers of IDX and MATLAB files, and what all parsers share.

A parser takes {official file name -> path} and returns Parsed; nothing is
extracted to disk. Other parsers are in cifar.py, image_archives.py (JPEG and
PNG files), uci_har.py (series) and ag_news.py (texts).

`prepare` first compares the files' checksums with the official ones, so parsers
meet damaged files only if the user allows modified ones.
"""

import contextlib
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from splitjax.files import printable, reason
from splitjax.types import UserError

Paths = dict[str, Path]
"""Official file name -> path."""


class OfficialSplit(NamedTuple):
  """One split of a data set, in its official order.

  Attributes:
    images: Z images (arrays [H, W, c] uint8, or contents of JPEG or PNG files)
      or other inputs (arrays of another dtype); may be iterable only once.
    labels: field -> [Z] int64.
    ids: Z sample names; empty if the data set has none.
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

  splits: dict[str, OfficialSplit]
  names: dict[str, list[str]]


@contextlib.contextmanager
def reading(what: object) -> Iterator[None]:
  """Turns an error in reading a file into a one-line UserError about `what`."""
  try:
    yield
  except UserError:
    raise
  except Exception as error:  # six libraries without a common base class
    raise UserError(
      f"{printable(what)} is damaged or not what its name says"
      f" ({reason(error)}); fetch it again"
    ) from error


@contextlib.contextmanager
def opened(path: Path, doing: str) -> Iterator[IO]:
  """Opens a file for reading bytes, with a progress bar that says `doing`."""
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


def members(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
  """Yields the name and content of each file of a tar.gz, as a stream."""
  with opened(path, "unpacking") as raw:
    whole = gzip.open(raw)
    with tarfile.open(fileobj=whole, mode="r|", bufsize=1 << 20) as archive:
      while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # memory
        if file := archive.extractfile(member):
          yield PurePosixPath(member.name), file.read()
    while whole.read(1 << 20):  # the checksum is at the end
      pass


def pixels(array: Any, shape: tuple[int, ...]) -> np.ndarray:
  """Returns images [Z, *shape] uint8; raises ValueError for any other array."""
  if array.dtype != np.uint8 or array.shape[1:] != shape:
    raise ValueError(f"has images {array.dtype} {list(array.shape)}")
  return array


def checked(
  label: Any, images: int, classes: int, *, first: int = 0
) -> np.ndarray:
  """Checks labels and returns them as [Z] int64.

  Raises:
    ValueError: there are no images, the number of labels is not `images`, or a
      label is not one of first, ..., first + classes - 1.
    TypeError: the labels are not integers.
  """
  label = np.asarray(label)
  if not images or label.shape != (images,):
    raise ValueError(f"has {label.size} labels for {images} images")
  label = label.astype(np.int64, casting="same_kind")
  low, high, last = label.min(), label.max(), first + classes - 1
  if low < first or high > last:
    raise ValueError(f"has labels {low} to {high}, expected {first} to {last}")
  return label


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
  """Reads an array [Z, *shape] uint8 from a gzipped IDX file.

  The file has the bytes 0, 0, 8 and the rank, then the sizes, then the values.
  """
  raw = gzip.decompress(path.read_bytes())
  start = 8 + 4 * len(shape)
  values = np.frombuffer(raw, np.uint8, offset=start).reshape(-1, *shape)
  sizes = np.array(values.shape, ">u4").tobytes()
  if raw[:start] != bytes([0, 0, 8, values.ndim]) + sizes:
    raise ValueError(f"its header is not that of {list(values.shape)} bytes")
  return values


def idx(paths: Paths) -> Parsed:
  """Reads the four IDX files of MNIST, or of a data set in the same format.

  Images (train-images-idx3-ubyte.gz, ...) are [28, 28, 1] in ten classes. The
  files have no class names or sample ids.
  """
  splits = {}
  for split, prefix in (("train", "train"), ("test", "t10k")):
    path = paths[f"{prefix}-images-idx3-ubyte.gz"]
    with reading(path):
      image = _read_idx(path, (28, 28))[..., None]
    path = paths[f"{prefix}-labels-idx1-ubyte.gz"]
    with reading(path):
      label = checked(_read_idx(path, ()), len(image), 10)
    splits[split] = OfficialSplit(image, {"label": label})
  return Parsed(splits, {})


def svhn(paths: Paths) -> Parsed:
  """Reads SVHN's train_32x32.mat and test_32x32.mat; the label is the digit.

  In a file, X is [32, 32, 3, Z] uint8, and y is [Z, 1] with 10 for the digit 0.
  """
  from scipy.io import loadmat

  splits = {}
  for split in tqdm(("train", "test"), "reading SVHN", disable=None):
    path = paths[f"{split}_32x32.mat"]
    # loadmat may crash on a damaged file; only modified files can be damaged.
    with reading(path):
      arrays = loadmat(path, variable_names=("X", "y"))
      image = pixels(np.moveaxis(arrays["X"], -1, 0), (32, 32, 3))
      label = checked(arrays["y"].ravel(), len(image), 10, first=1) % 10
    ids = [f"{split}_{row:06d}" for row in range(len(label))]
    splits[split] = OfficialSplit(image, {"label": label}, ids)
  return Parsed(splits, {})


def emnist(paths: Paths) -> Parsed:
  """Reads emnist-byclass.mat from EMNIST's archive of MATLAB files.

  MATLAB keeps an image [28, 28] as a row of 784 pixels, column by column. Each
  image has a class, named by its character, and a writer, named by a number.
  """
  from scipy.io import loadmat

  (path,) = paths.values()
  with reading(path), zipfile.ZipFile(path) as archive:
    (name,) = [
      n for n in archive.namelist() if n.endswith("emnist-byclass.mat")
    ]
    # loadmat may crash on a damaged file; only modified files can be damaged.
    file = io.BytesIO(archive.read(name))
    held = loadmat(file, simplify_cells=True)["dataset"]
    writers = sorted(
      {int(w) for s in ("train", "test") for w in held[s]["writers"]}
    )
    splits = {}
    for split in ("train", "test"):
      part = held[split]
      image = pixels(part["images"].reshape(-1, 28, 28), (28, 28))
      image = image.transpose(0, 2, 1)[..., None]
      label = checked(part["labels"], len(image), 62)
      writer = np.searchsorted(writers, part["writers"])
      writer = checked(writer, len(image), len(writers))
      ids = [f"{split}_{row:06d}" for row in range(len(label))]
      splits[split] = OfficialSplit(
        image, {"label": label, "writer": writer}, ids
      )
    names = [chr(code) for _, code in held["mapping"]]
  return Parsed(splits, {"label": names, "writer": [str(w) for w in writers]})
