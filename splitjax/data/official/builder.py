"""Parsed official files written with tensorflow-datasets (TFDS), without TF.

The stock builders of TFDS cannot prepare without TensorFlow: they decode
archives and encode images with it. So a builder of our own writes, under the
stock name, version, features and keys, as array_record; the result reads back
through the stock builder.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from splitjax.data.official.catalog import About
from splitjax.data.official.formats import Parsed, Split


def write(
  name: str,
  about: About | None,
  parsed: Parsed,
  origin: dict[str, Any],
  folder: Path,
) -> Path:
  """Writes a data set.

  Args:
    name: the stock name, or one of our own.
    about: describes it where TFDS has no builder of that name.
    parsed: what to write.
    origin: kept with it, JSON-ready.
    folder: a data_dir for TFDS, of its own.

  Returns:
    The folder of the version, below `folder`.

  Raises:
    OSError: it cannot be written; or what reading the images raises.
  """
  import tensorflow_datasets as tfds

  facts = _own(about) if about else _stock(name, folder)
  for field, names in parsed.names.items():
    facts["features"][field].names = names

  class Local(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    VERSION = tfds.core.Version(facts.pop("version"))

    def _info(self) -> Any:
      metadata = tfds.core.MetadataDict(origin)
      return tfds.core.DatasetInfo(builder=self, metadata=metadata, **facts)

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
      del dl_manager
      return {
        split: _examples(f"{name} {split}", content)
        for split, content in parsed.splits.items()
      }

    def _generate_examples(self) -> None:
      raise NotImplementedError  # abstract; _split_generators does it all

  Local.name = name
  builder = Local(data_dir=folder, file_format="array_record")
  tfds.display_progress_bar(False)  # its bars know no totals; ours does
  with contextlib.redirect_stdout(io.StringIO()):  # what it says is not so
    builder.download_and_prepare()
  return Path(builder.data_dir)


def version(name: str, about: About | None, folder: Path) -> str:
  """Returns the version under which a data set would be written."""
  return about.version if about else str(_stock(name, folder)["version"])


def _stock(name: str, folder: Path) -> dict[str, Any]:
  """What the builder of TFDS says of its data set."""
  import tensorflow_datasets as tfds

  info = tfds.builder(name, data_dir=folder).info
  return {
    "version": info.version,
    "description": info.description,
    "features": info.features,
    "supervised_keys": info.supervised_keys,
    "homepage": info.homepage,
    "citation": info.citation,
  }


def _own(about: About) -> dict[str, Any]:
  """The same of a data set that TFDS does not have."""
  import tensorflow_datasets as tfds

  features = tfds.features.FeaturesDict(
    {
      "id": tfds.features.Text(),
      "image": tfds.features.Image(shape=about.shape),
      "label": tfds.features.ClassLabel(),
    }
  )
  return {
    "version": about.version,
    "description": about.description,
    "features": features,
    "supervised_keys": ("image", "label"),
    "homepage": about.homepage,
    "citation": about.citation,
  }


def _examples(said: str, split: Split) -> Iterator[tuple[int, dict[str, Any]]]:
  """Samples with the stock key, their place in the official order.

  TFDS keeps the records in the order of the keys' hashes.
  """
  total = len(next(iter(split.labels.values())))
  rows = tqdm(
    split.images,
    f"writing {said}",
    total,
    unit=" images",
    mininterval=1,
    disable=None,
  )
  for row, image in enumerate(rows):
    yield (
      row,
      {
        "image": image if isinstance(image, bytes) else _png(image),
        **({"id": split.ids[row]} if split.ids else {}),
        **{key: int(label[row]) for key, label in split.labels.items()},
      },
    )


def _png(image: np.ndarray) -> bytes:
  """A PNG file of [H, W, c] uint8."""
  from PIL import Image

  file = io.BytesIO()
  grey = image.shape[-1] == 1
  pixels = np.ascontiguousarray(image[..., 0] if grey else image)
  Image.fromarray(pixels).save(file, "png")
  return file.getvalue()
