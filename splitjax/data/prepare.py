"""From official files to a prepared data set: TFDS without TensorFlow.

The stock builders of tensorflow-datasets (TFDS) cannot prepare without
TensorFlow: they decode archives and encode images with it. So a data set is
prepared by a builder of our own, under the stock name, version and features,
as array_record, and reads back through the stock builder (tfds_store.py).
"""

import gzip
import hashlib
import io
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from splitjax.data.tfds_store import SPLITS, Arrays, Place, commands, find, root
from splitjax.types import UserError


class Store(NamedTuple):
  """How the official files of a data set become a prepared one.

  Attributes:
    md5: official file name -> its md5.
    parse: (file name -> path of that file) -> Arrays.
  """

  md5: dict[str, str]
  parse: Callable[[dict[str, Path]], Arrays]


def _read_idx(path: Path) -> np.ndarray:
  """Reads a gzipped IDX file of bytes: 0 0 8 rank, the sizes, the values."""
  with gzip.open(path) as file:
    rank = file.read(4)[3]
    shape = np.frombuffer(file.read(4 * rank), ">u4")
    return np.frombuffer(file.read(), np.uint8).reshape(shape)


def _parse_idx(paths: dict[str, Path]) -> Arrays:
  """Reads the four files of the MNIST family."""
  arrays = {}
  for split, prefix in (("train", "train"), ("test", "t10k")):
    image = _read_idx(paths[f"{prefix}-images-idx3-ubyte.gz"])
    label = _read_idx(paths[f"{prefix}-labels-idx1-ubyte.gz"])
    arrays[f"{split}_image"] = image[..., None]
    arrays[f"{split}_label"] = label.astype(np.int32)
  return arrays


STORES: dict[str, Store] = {
  "fashion_mnist": Store(
    md5={
      "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
      "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
      "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
      "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    parse=_parse_idx,
  )
}


def prepare(name: str, data_dir: Place, source_dir: Place) -> Path:
  """Prepares a data set, once; what fails leaves nothing half-written.

  Args:
    name: a name in STORES, the stock name.
    data_dir: folder of all prepared data.
    source_dir: a folder with the official files; None downloads them.

  Returns:
    The folder of the prepared data set.

  Raises:
    UserError: a file is missing or not the official one, the download failed,
      or the data set is there as tfrecord.
  """
  if folder := find(name, data_dir):
    return folder
  import tensorflow_datasets as tfds

  store = STORES[name]
  stock = tfds.builder(name, data_dir=root(data_dir))
  if source_dir is None:
    paths = _download(stock, store, data_dir)
  else:
    paths = {file: Path(source_dir) / file for file in store.md5}
    _check_files(paths, store.md5)
  builder = _builder(stock, store.parse(paths), root(data_dir))
  tfds.display_progress_bar(False)  # its bars know no totals; ours does
  # TFDS writes into a folder of another name and renames it at the end.
  builder.download_and_prepare()
  return Path(builder.data_dir)


def _check_files(paths: dict[str, Path], md5: dict[str, str]) -> None:
  """Raises UserError unless every file is there and is the official one."""
  folder = next(iter(paths.values())).parent
  absent = [file for file, path in paths.items() if not path.is_file()]
  if absent:
    raise UserError(
      f"--from {folder}: {', '.join(absent)} not found there; it must hold the "
      "official files under their official names"
    )
  for file, path in paths.items():
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if found != md5[file]:
      raise UserError(
        f"--from {folder}: {file} is not the official file, expected md5 "
        f"{md5[file]}, found {found}; fetch it again"
      )


def _download(stock: Any, store: Store, data_dir: Place) -> dict[str, Path]:
  """Downloads the official files; TFDS verifies their sizes and SHA-256."""
  import tensorflow_datasets as tfds

  urls = {info.filename: url for url, info in stock.url_infos.items()}
  urls = {file: urls[file] for file in store.md5}
  try:
    # Without a network TFDS tries for minutes; this fails within seconds.
    urllib.request.urlopen(next(iter(urls.values())), timeout=15).close()
    manager = tfds.download.DownloadManager(
      download_dir=root(data_dir) / "downloads",
      dataset_name=stock.name,
      url_infos=stock.url_infos,
    )
    return {file: Path(p) for file, p in manager.download(urls).items()}
  except Exception as error:  # of three libraries, without a common class
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    raise UserError(
      f"{stock.name}: download failed ({reason}); fetch {', '.join(urls)} by "
      f"other means and run {commands(stock.name, data_dir)[1]}"
    ) from error


def _builder(stock: Any, arrays: Arrays, data_dir: Path) -> Any:
  """A builder that writes the arrays as if the stock builder had."""
  import tensorflow_datasets as tfds
  from PIL import Image

  def examples(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    images, labels = arrays[f"{split}_image"], arrays[f"{split}_label"]
    for row in tqdm(range(len(images)), f"{stock.name} {split}", mininterval=1):
      png = io.BytesIO()
      Image.fromarray(images[row].squeeze()).save(png, "png")
      yield row, {"image": png.getvalue(), "label": int(labels[row])}

  class Local(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    name = stock.name
    VERSION = stock.version

    def _info(self) -> Any:
      return tfds.core.DatasetInfo(
        builder=self,
        description=stock.info.description,
        features=stock.info.features,
        supervised_keys=stock.info.supervised_keys,
        homepage=stock.info.homepage,
      )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
      del dl_manager
      return {split: examples(split) for split in SPLITS}

    def _generate_examples(self) -> None:
      raise NotImplementedError  # abstract; _split_generators does it all

  return Local(data_dir=data_dir, file_format="array_record")
