"""Official files of known data sets: where they are, and their readers.

  python -m splitjax.data prepare cifar10

downloads them into DATA_DIR/downloads/cifar10, unless they lie there already,
checks them and writes the arrays into DATA_DIR/cifar10. A file with another
checksum needs --allow-modified, and reports then say so.
"""

import functools
import gzip
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from tqdm import tqdm

from splitjax import files
from splitjax.data import store
from splitjax.data.dataset import SPLITS, UNSTATED, Dataset, require
from splitjax.data.store import Folder
from splitjax.types import UserError

_Read = tuple[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[str]]
"""What a reader makes of `Official.files`: inputs and labels, each of the
training and the test split, in official order, and the classes' names or ()."""


def idx(*paths: Path) -> _Read:
  """Reads MNIST's format: a header of 16 or 8 bytes, then bytes."""
  unpacked = [gzip.decompress(path.read_bytes()) for path in paths]
  raw = [np.frombuffer(x, np.uint8) for x in unpacked]
  images = [x[16:].reshape(-1, 28, 28, 1) for x in raw[::2]]
  return images, [x[8:] for x in raw[1::2]], ()


def cifar(path: Path, *, names: str, column: int = 0) -> _Read:
  """Reads a binary archive: records of one or two labels and 3,072 pixels.

  `names` is the file of the classes' names, `column` is that of their numbers.
  """
  members = _members(path, r"\.(bin|txt)$")
  raw = {name.split("/")[-1]: content for name, content in members.items()}
  width = 3073 + ("train.bin" in raw)  # CIFAR-100: a coarse and a fine label
  splits = []
  for pattern in (r"(train|data).*bin", r"test.*bin"):
    batches = [raw[name] for name in sorted(raw) if re.match(pattern, name)]
    splits.append(np.frombuffer(b"".join(batches), np.uint8).reshape(-1, width))
  planes = [x[:, -3072:].reshape(-1, 3, 32, 32) for x in splits]
  images = [x.transpose(0, 2, 3, 1) for x in planes]
  return images, [x[:, column] for x in splits], raw[names].decode().split()


def svhn(*paths: Path) -> _Read:
  """Reads MATLAB files; the digit 0 is written as 10."""
  from scipy.io import loadmat

  splits = [loadmat(path) for path in paths]
  images = [np.moveaxis(x["X"], -1, 0) for x in splits]
  return images, [x["y"].ravel() % 10 for x in splits], ()


def tiny_imagenet(path: Path) -> _Read:
  """Reads Tiny-ImageNet, of which the validation split is the test split.

  Labels are lines of wnids.txt. Training images are ordered by class and name,
  test images as in val_annotations.txt.
  """
  top = "tiny-imagenet-200"
  raw = _members(path, r"(train/.*JPEG|val/.*|wnids\.txt)$")
  wnids = raw[f"{top}/wnids.txt"].decode().split()
  train = sorted(
    (wnids.index(name.split("/")[2]), name)
    for name in raw
    if name.startswith(f"{top}/train/")
  )
  lines = raw[f"{top}/val/val_annotations.txt"].decode().splitlines()
  rows = [line.split("\t") for line in lines]
  test = [(wnids.index(x[1]), f"{top}/val/images/{x[0]}") for x in rows]
  return _pictures(raw, (train, test), 64, wnids)


def cinic10(path: Path) -> _Read:
  """Reads the splits train and test of CINIC-10, ordered by class and name."""
  raw = _members(path, r"(train|test)/\w+/[^./]+\.png$")
  label = {name: name.split("/")[-2] for name in sorted(raw)}
  classes = sorted({*label.values()})
  splits = [
    [(classes.index(label[x]), x) for x in label if f"/{split}/" in f"/{x}"]
    for split in SPLITS
  ]
  return _pictures(raw, splits, 32, classes)


def _members(path: Path, pattern: str) -> dict[str, bytes]:
  """Reads the files of an archive whose names match, in one pass."""
  if zipfile.is_zipfile(path):
    with zipfile.ZipFile(path) as zipped:
      names = [x for x in zipped.namelist() if re.search(pattern, x)]
      return {x: zipped.read(x) for x in names if not x.endswith("/")}
  raw = dict[str, bytes]()
  with tarfile.open(path) as archive:
    for member in archive:
      if member.isfile() and re.search(pattern, member.name):
        raw[member.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
  return raw


def _pictures(
  raw: Mapping[str, bytes],
  splits: Sequence[Sequence[tuple[int, str]]],
  side: int,
  classes: Sequence[str],
) -> _Read:
  """Decodes JPEG or PNG files, each given as a label and a name in `raw`."""
  from PIL import Image

  images = []
  for split in splits:
    image = np.empty((len(split), side, side, 3), np.uint8)
    for i, (_, name) in enumerate(tqdm(split, "decoding", disable=None)):
      image[i] = np.asarray(Image.open(io.BytesIO(raw[name])).convert("RGB"))
    images.append(image)
  labels = [np.array([label for label, _ in split]) for split in splits]
  return images, labels, classes


class Official(NamedTuple):
  """A data set with official files."""

  files: dict[str, str]  #: name of each file -> "md5:..."
  address: str  #: that of the folder of the files
  read: Callable[..., _Read]
  names: tuple[str, ...] = ()  #: of the classes, where the files lack them
  downloads: str = ""  #: folder in DATA_DIR/downloads, unless it is NAME


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_CIFAR100 = Official(
  files={"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"},
  address=_TORONTO,
  read=functools.partial(cifar, names="fine_label_names.txt", column=1),
  downloads="cifar100",
)

OFFICIAL = {
  "mnist": Official(
    files={
      "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
      "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
      "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
      "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    },
    address="https://storage.googleapis.com/cvdf-datasets/mnist",
    read=idx,
  ),
  "fashion_mnist": Official(
    files={
      "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
      "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
      "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
      "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    read=idx,
    names=(
      *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal"),
      *("Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
  ),
  "cifar10": Official(
    files={"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
    address=_TORONTO,
    read=functools.partial(cifar, names="batches.meta.txt"),
  ),
  "cifar100": _CIFAR100,
  "cifar100_coarse": _CIFAR100._replace(
    read=functools.partial(cifar, names="coarse_label_names.txt")
  ),
  "svhn_cropped": Official(
    files={
      "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
      "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
    },
    address="http://ufldl.stanford.edu/housenumbers",
    read=svhn,
  ),
  "cinic10": Official(
    files={"CINIC-10.tar.gz": "md5:6ee4d0c996905fe93221de577967a372"},
    address="https://datashare.ed.ac.uk/bitstream/handle/10283/3192",
    read=cinic10,
  ),
  "tiny_imagenet": Official(
    files={"tiny-imagenet-200.zip": "md5:90528d7ca1a48142e341f4ef8d21d0de"},
    address="http://cs231n.stanford.edu",
    read=tiny_imagenet,
  ),
}
"""Name -> the data set; its folder in DATA_DIR has this name."""


def prepare(
  name: str, data_dir: Folder = None, *, allow_modified: bool = False
) -> Path:
  """Downloads, checks and converts a data set, unless it is there already.

  With `allow_modified` files may differ from the official ones, which the note
  of the data set says. Returns its folder. UserError if a file is another one,
  or cannot be downloaded or written.
  """
  official = OFFICIAL[name]
  folder = store.root(data_dir) / name
  downloads = folder.with_name("downloads") / (official.downloads or name)

  def make() -> Dataset:
    paths = [downloads / file for file in official.files]
    modified = [
      path.name
      for path in paths
      if not _is_official(path, official, allow_modified)
    ]
    try:
      images, labels, names = official.read(*paths)
    except Exception as error:  # the readers' errors share no base class
      raise UserError(
        f"{name}: the files in {downloads} are damaged or not what their names"
        f" say ({files.reason(error)}): fetch them again"
      ) from error
    note = f"{name} was prepared from files that are not the official ones:"
    return Dataset(
      name=name,
      classes=UNSTATED,
      train_image=images[0],
      train_label=labels[0],
      test_image=images[1],
      test_label=labels[1],
      class_names=tuple(names) or official.names,
      note=f"{note} {', '.join(modified)}." if modified else "",
    )

  store.write(folder, make)
  return folder


def _is_official(path: Path, official: Official, allow_modified: bool) -> bool:
  """Downloads a file if it is not there; tells if it is the official one."""
  import pooch

  checksum = official.files[path.name]
  if path.exists():
    matches = pooch.hashes.hash_matches(path, checksum)
    require(
      matches or allow_modified,
      f"{path} is not the official file ({checksum}): delete it to download it"
      " again, or add --allow-modified, and every report will say so",
    )
    return matches
  url = f"{official.address}/{quote(path.name)}"
  pooch.get_logger().setLevel("WARNING")
  try:
    pooch.retrieve(url, checksum, path.name, path.parent, progressbar=True)
  except Exception as error:  # of requests, the disk, or a wrong checksum
    raise UserError(
      f"{url} could not be downloaded ({files.reason(error)}): lay the file"
      f" into {path.parent} by other means and run the same command again"
    ) from error
  return True
