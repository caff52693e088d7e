"""Official files of known data sets: where they are, and their readers.

  python -m splitjax.data prepare cifar10

downloads them into DATA_DIR/downloads/cifar10, checks them and writes the
arrays into DATA_DIR/cifar10. A file that lies there already is not downloaded;
one with another checksum needs --allow-modified, and reports then say so.

A reader takes the paths of verified files, in the order of `Official.files`,
and returns the arrays of `store.Arrays` in official order, with facts.
"""

import csv
import gzip
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from tqdm import tqdm

from splitjax import files
from splitjax.data import store
from splitjax.data.dataset import SPLITS, checked
from splitjax.data.store import Arrays, Facts, Place
from splitjax.types import UserError

VOCABULARY = 2**14
"""The number of token ids of AG News."""

TOKENS = 64
"""The length of a text of AG News."""

Read = tuple[Arrays, Facts]


def idx(*paths: Path) -> Read:
  """Reads MNIST's format: a header of 16 or 8 bytes, then bytes."""
  unpacked = [gzip.decompress(path.read_bytes()) for path in paths]
  raw = [np.frombuffer(x, np.uint8) for x in unpacked]
  images = [x[16:].reshape(-1, 28, 28, 1) for x in raw[::2]]
  return _arrays(images, [x[8:] for x in raw[1::2]]), {}


def cifar(path: Path) -> Read:
  """Reads a binary archive: records of one or two labels and 3,072 pixels."""
  members = _members(path, r"\.(bin|txt)$")
  found = {name.split("/")[-1]: raw for name, raw in members}
  hundred = "train.bin" in found
  train = [name for name in sorted(found) if re.match(r"(train|data_)", name)]
  test = found["test.bin" if hundred else "test_batch.bin"]
  splits = [
    np.frombuffer(raw, np.uint8).reshape(-1, 3073 + hundred)
    for raw in (b"".join(found[name] for name in train), test)
  ]
  images = [
    x[:, -3072:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for x in splits
  ]
  arrays = _arrays(images, [x[:, -3073] for x in splits])
  if not hundred:
    return arrays, {"classes": found["batches.meta.txt"].decode().split()}
  for split, x in zip(SPLITS, splits, strict=True):
    arrays[f"{split}_coarse"] = x[:, 0].astype(np.int32)
  fine, coarse = (
    found[f"{kind}_label_names.txt"].decode().split()
    for kind in ("fine", "coarse")
  )
  return arrays, {"classes": fine, "coarse_classes": coarse}


def svhn(*paths: Path) -> Read:
  """Reads MATLAB files; the digit 0 is written as 10."""
  from scipy.io import loadmat

  held = [loadmat(path) for path in paths]
  images = [np.moveaxis(x["X"], -1, 0) for x in held]
  return _arrays(images, [x["y"].ravel() % 10 for x in held]), {}


def emnist(path: Path) -> Read:
  """Reads EMNIST ByClass with its writers; images are stored by columns."""
  from scipy.io import loadmat

  with zipfile.ZipFile(path) as archive:
    (name,) = (x for x in archive.namelist() if x.endswith("byclass.mat"))
    file = io.BytesIO(archive.read(name))
  held = loadmat(file, simplify_cells=True)["dataset"]
  parts = [held[split] for split in SPLITS]
  images = [
    x["images"].reshape(-1, 28, 28).transpose(0, 2, 1)[..., None] for x in parts
  ]
  writers = np.unique(np.concatenate([x["writers"].ravel() for x in parts]))
  numbers = [np.searchsorted(writers, x["writers"].ravel()) for x in parts]
  letters = [chr(code) for _, code in held["mapping"]]
  return _arrays(images, [x["labels"].ravel() for x in parts], numbers), {
    "classes": [f"small {x}" if x.islower() else x for x in letters],
    "clients": [str(int(writer)) for writer in writers],
  }


def tiny_imagenet(path: Path) -> Read:
  """Reads Tiny-ImageNet; the official validation split is the test split.

  Labels are the lines of wnids.txt. Training images are ordered by class and
  name, test images as in val_annotations.txt.
  """
  top = "tiny-imagenet-200"
  found = dict(_members(path, r"(train/.*JPEG|val/.*|wnids\.txt)$"))
  wnids = found[f"{top}/wnids.txt"].decode().split()
  train = sorted(
    (wnids.index(name.split("/")[2]), name)
    for name in found
    if name.startswith(f"{top}/train/")
  )
  lines = found[f"{top}/val/val_annotations.txt"].decode().splitlines()
  rows = [line.split("\t") for line in lines]
  test = [(wnids.index(x[1]), f"{top}/val/images/{x[0]}") for x in rows]
  return _pictures(found, (train, test), 64), {"classes": wnids}


def cinic10(path: Path) -> Read:
  """Reads the splits train and test of CINIC-10, ordered by class and name."""
  found = dict(_members(path, r"(train|test)/\w+/[^./]+\.png$"))
  parts = {name: name.split("/")[-3:] for name in sorted(found)}
  kinds = sorted({kind for _, kind, _ in parts.values()})
  train, test = (
    [(kinds.index(x[1]), name) for name, x in parts.items() if x[0] == split]
    for split in SPLITS
  )
  return _pictures(found, (train, test), 32), {"classes": kinds}


def uci_har(path: Path) -> Read:
  """Reads the nine raw signals of 30 people, [128, 9] float32.

  A window is 2.56 s at 50 Hz and overlaps the one before by a half. Channels:
  acceleration of the body in g, angular velocity in rad/s and acceleration with
  gravity in g, each along x, y and z.
  """
  archive = zipfile.ZipFile(path)
  inner = "UCI HAR Dataset"
  if f"{inner}.zip" in archive.namelist():
    archive = zipfile.ZipFile(io.BytesIO(archive.read(f"{inner}.zip")))
  kinds = "body_acc", "body_gyro", "total_acc"
  signals = []
  for kind in kinds:
    signals += [f"{kind}_{axis}" for axis in "xyz"]

  def table(name: str) -> np.ndarray:
    return np.loadtxt(io.BytesIO(archive.read(f"{inner}/{name}.txt")))

  series = [
    np.stack([table(f"{s}/Inertial Signals/{x}_{s}") for x in signals], -1)
    for s in SPLITS
  ]
  labels = [table(f"{s}/y_{s}") - 1 for s in SPLITS]
  people = [table(f"{s}/subject_{s}") - 1 for s in SPLITS]
  lines = archive.read(f"{inner}/activity_labels.txt").decode().split()
  arrays = _arrays([x.astype(np.float32) for x in series], labels, people)
  names = [str(i) for i in range(1, 31)]
  return arrays, {"classes": lines[1::2], "clients": names}


def ag_news(*paths: Path) -> Read:
  """Reads rows of class, title and description, whose words become ids."""
  splits = []
  for path in paths:
    with path.open(encoding="utf-8", newline="") as file:
      splits.append(list(csv.reader(file)))
  texts = [np.stack([token_ids(f"{r[1]} {r[2]}") for r in x]) for x in splits]
  labels = [np.array([int(row[0]) - 1 for row in x]) for x in splits]
  classes = ["World", "Sports", "Business", "Sci/Tech"]
  return _arrays(texts, labels), {"classes": classes, "vocabulary": VOCABULARY}


def token_ids(text: str) -> np.ndarray:
  """Converts a text to [TOKENS] uint16: a hash of each word, then zeros.

  Words are runs of letters a to z and digits in the lower-case text; the id of
  a word is 1 + crc32(word) mod (VOCABULARY - 1), so that only padding is 0, and
  different words may share an id. Words after the first TOKENS are cut.

  Example:
    >>> token_ids("Oil, oil prices")[:4].tolist()
    [7262, 7262, 150, 0]
  """
  words = re.findall("[a-z0-9]+", text.lower())[:TOKENS]
  ids = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
  return np.array(ids + [0] * (TOKENS - len(ids)), np.uint16)


def _arrays(
  images: Sequence[np.ndarray],
  labels: Sequence[np.ndarray],
  clients: Sequence[np.ndarray] = (),
) -> Arrays:
  """Names the arrays of both splits."""
  arrays = Arrays()
  for i, split in enumerate(SPLITS):
    arrays[f"{split}_image"] = np.ascontiguousarray(images[i])
    arrays[f"{split}_label"] = labels[i].astype(np.int32)
    if clients:
      arrays[f"{split}_client"] = clients[i].astype(np.int32)
  return arrays


def _members(path: Path, pattern: str) -> list[tuple[str, bytes]]:
  """Reads the files of an archive whose names match, in one pass."""
  if zipfile.is_zipfile(path):
    with zipfile.ZipFile(path) as zipped:
      names = [x for x in zipped.namelist() if re.search(pattern, x)]
      return [(x, zipped.read(x)) for x in names if not x.endswith("/")]
  found = []
  with tarfile.open(path) as archive:
    for member in archive:
      if member.isfile() and re.search(pattern, member.name):
        found.append((member.name, archive.extractfile(member).read()))  # type: ignore[union-attr]
  return found


def _pictures(
  raw: dict[str, bytes],
  splits: Sequence[Sequence[tuple[int, str]]],
  side: int,
) -> Arrays:
  """Decodes JPEG or PNG files, each given as a label and a name in `raw`."""
  from PIL import Image

  images, labels = [], []
  for split in splits:
    image = np.empty((len(split), side, side, 3), np.uint8)
    for i, (_, name) in enumerate(tqdm(split, "decoding", disable=None)):
      picture = Image.open(io.BytesIO(raw[name]), formats=("JPEG", "PNG"))
      image[i] = np.asarray(picture.convert("RGB"))
    images.append(image)
    labels.append(np.array([label for label, _ in split]))
  return _arrays(images, labels)


class Official(NamedTuple):
  """A data set with official files.

  Attributes:
    files: name of each file -> "md5:..." or "sha256:...".
    place: address of the folder of the files.
    read: the reader.
    shape: shape of a sample.
    classes: C.
    vocabulary: V, if inputs are token ids; else 0.
    names: the classes' names, where the files lack them.
    remark: what of the files is left out, or "".
  """

  files: dict[str, str]
  place: str
  read: Callable[..., Read]
  shape: tuple[int, ...]
  classes: int
  vocabulary: int = 0
  names: tuple[str, ...] = ()
  remark: str = ""


_MNIST = {
  "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
  "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
  "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
  "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_FASHION = {
  "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
  "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
  "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
  "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
_UCI_HAR = "c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031"
_EMNIST = "e1fa805cdeae699a52da0b77c2db17f6feb77eed125f9b45c022e7990444df95"

OFFICIAL = {
  "mnist": Official(
    files=_MNIST,
    place="https://storage.googleapis.com/cvdf-datasets/mnist",
    read=idx,
    shape=(28, 28, 1),
    classes=10,
  ),
  "fashion_mnist": Official(
    files=_FASHION,
    place="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    read=idx,
    shape=(28, 28, 1),
    classes=10,
    names=(
      *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal"),
      *("Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
  ),
  "cifar10": Official(
    files={"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
    place="https://www.cs.toronto.edu/~kriz",
    read=cifar,
    shape=(32, 32, 3),
    classes=10,
  ),
  "cifar100": Official(
    files={"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"},
    place="https://www.cs.toronto.edu/~kriz",
    read=cifar,
    shape=(32, 32, 3),
    classes=100,
  ),
  "svhn_cropped": Official(
    files={
      "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
      "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
    },
    place="http://ufldl.stanford.edu/housenumbers",
    read=svhn,
    shape=(32, 32, 3),
    classes=10,
    remark="the official extra images are not kept",
  ),
  "emnist_byclass": Official(
    files={"matlab.zip": f"sha256:{_EMNIST}"},
    place="https://biometrics.nist.gov/cs_links/EMNIST",
    read=emnist,
    shape=(28, 28, 1),
    classes=62,
    remark="of the archive's six sets ByClass alone is kept",
  ),
  "cinic10": Official(
    files={"CINIC-10.tar.gz": "md5:6ee4d0c996905fe93221de577967a372"},
    place="https://datashare.ed.ac.uk/bitstream/handle/10283/3192",
    read=cinic10,
    shape=(32, 32, 3),
    classes=10,
    remark="the official split valid is not kept",
  ),
  "tiny_imagenet": Official(
    files={"tiny-imagenet-200.zip": "md5:90528d7ca1a48142e341f4ef8d21d0de"},
    place="http://cs231n.stanford.edu",
    read=tiny_imagenet,
    shape=(64, 64, 3),
    classes=200,
    remark="the test split is the official val, since test has no labels",
  ),
  "uci_har": Official(
    files={
      "human+activity+recognition+using+smartphones.zip": f"sha256:{_UCI_HAR}"
    },
    place="https://archive.ics.uci.edu/static/public/240",
    read=uci_har,
    shape=(128, 9),
    classes=6,
    remark="the 561 computed features are not kept",
  ),
  "ag_news": Official(
    files={
      "train.csv": "md5:b1a00f826fdfbd249f79597b59e1dc12",
      "test.csv": "md5:d52ea96a97a2d943681189a97654912d",
    },
    place="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master"
    "/data/ag_news_csv",
    read=ag_news,
    shape=(TOKENS,),
    classes=4,
    vocabulary=VOCABULARY,
  ),
}
"""Name -> the data set; its folder in DATA_DIR has this name."""


def prepare(
  name: str, data_dir: Place = None, *, allow_modified: bool = False
) -> Path:
  """Downloads, checks and converts a data set, unless it is there already.

  With `allow_modified`, files in DATA_DIR/downloads/NAME may differ from the
  official ones; the note of the data set says so. Returns its folder.

  Raises:
    UserError: a file is damaged or not the official one, or the download
      failed.
    OSError: data_dir cannot be written.
  """
  folder, official = store.root(data_dir) / name, OFFICIAL[name]
  downloads = folder.with_name("downloads") / name

  def make() -> Read:
    paths = [downloads / file for file in official.files]
    modified = [
      path.name
      for path, known in zip(paths, official.files.values(), strict=True)
      if not _official(path, official.place, known, allow_modified)
    ]
    try:
      arrays, facts = official.read(*paths)
      facts.setdefault("classes", list(official.names) or official.classes)
      checked(store.dataset(name, arrays, facts))
    except (OSError, MemoryError):
      raise
    except Exception as error:  # the readers' errors share no base class
      raise UserError(
        f"{name}: the files in {downloads} are damaged or not what their names"
        f" say ({files.reason(error)}): fetch them again"
      ) from error
    if modified:
      facts["note"] = (
        f"{name} was prepared from files that are not the official ones:"
        f" {', '.join(modified)}."
      )
    return arrays, facts

  store.write(folder, make)
  return folder


def _official(path: Path, place: str, known: str, allow_modified: bool) -> bool:
  """Downloads a file if it is not there; tells if it is the official one."""
  import pooch

  if path.exists():
    if pooch.hashes.hash_matches(path, known):
      return True
    if allow_modified:
      return False
    raise UserError(
      f"{path} is not the official file ({known}): delete it to download it"
      " again, or add --allow-modified, and every report will say so"
    )
  url, logger = f"{place}/{quote(path.name, safe='+')}", pooch.get_logger()
  logger.setLevel("WARNING")
  try:
    pooch.retrieve(url, known, path.name, path.parent, progressbar=True)
  except Exception as error:  # of requests, the disk, or a wrong checksum
    raise UserError(
      f"{url} could not be downloaded ({files.reason(error)}): lay the file"
      f" into {path.parent} by other means and run the same command again"
    ) from error
  return True
