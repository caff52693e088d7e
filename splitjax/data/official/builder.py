"""Writes parsed official files with tensorflow-datasets (TFDS).

The builders of TFDS need TensorFlow to prepare data: they decode archives and
encode images with it. The builder here needs none: it writes array_record files
with the name, version, features and keys of the TFDS builder, so that TFDS can
read them.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from splitjax.data.facts import FACTS
from splitjax.data.official.catalog import About
from splitjax.data.official.formats import OfficialSplit, Parsed

VERSION = "1.0.0"
"""Version of the prepared data if TFDS has no builder of that name."""


def write(
  name: str,
  about: About | None,
  parsed: Parsed,
  origin: dict[str, Any],
  folder: Path,
) -> Path:
  """Writes a data set below `folder`; returns the folder of this version.

  Args:
    name: name of the data set.
    about: its description if TFDS has no builder of that name.
    parsed: the data.
    origin: metadata to store with the data, JSON-ready.
    folder: a data_dir for TFDS that nothing else uses.
  """
  import tensorflow_datasets as tfds

  facts = _facts(name, about, folder)
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
      raise NotImplementedError  # abstract; _split_generators does all

  Local.name = name
  builder = Local(data_dir=folder, file_format="array_record")
  tfds.display_progress_bar(False)  # its bar has no totals
  with contextlib.redirect_stdout(io.StringIO()):  # it announces a download
    builder.download_and_prepare()
  return Path(builder.data_dir)


def version(name: str, about: About | None, folder: Path) -> str:
  """Returns the version under which a data set is written."""
  return str(_facts(name, about, folder)["version"])


def _facts(name: str, about: About | None, folder: Path) -> dict[str, Any]:
  """Returns facts of a data set, from `about` or from the builder of TFDS."""
  import tensorflow_datasets as tfds

  if about is None:
    info = tfds.builder(name, data_dir=folder).info
    keys = "version description features supervised_keys homepage citation"
    return {key: getattr(info, key) for key in keys.split()}
  known = FACTS[name]
  shape, dtype = known.shape, np.dtype(known.dtype)
  if dtype == np.uint8:
    given, kind = "image", tfds.features.Image(shape=shape)
  else:
    given, kind = "input", tfds.features.Tensor(shape=shape, dtype=dtype.type)
  fields = filter(None, (known.label, known.client))
  features = {
    "id": tfds.features.Text(),
    given: kind,
    **{field: tfds.features.ClassLabel() for field in fields},
  }
  return {
    **about._asdict(),
    "version": VERSION,
    "features": tfds.features.FeaturesDict(features),
    "supervised_keys": (given, known.label),
  }


def _examples(
  title: str, split: OfficialSplit
) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields (TFDS key, sample); the key is the row number in official order.

  TFDS orders the records by the hashes of these keys.
  """
  total = len(next(iter(split.labels.values())))
  rows = tqdm(
    split.images,
    f"writing {title}",
    total,
    unit=" samples",
    mininterval=1,
    disable=None,
  )
  for row, image in enumerate(rows):
    yield (
      row,
      {
        **_input(image),
        **({"id": split.ids[row]} if split.ids else {}),
        **{key: int(label[row]) for key, label in split.labels.items()},
      },
    )


def _input(x: np.ndarray | bytes) -> dict[str, Any]:
  """Returns a sample's input as {name of its feature: input}."""
  if isinstance(x, bytes):
    return {"image": x}
  return {"image": _png(x)} if x.dtype == np.uint8 else {"input": x}


def _png(image: np.ndarray) -> bytes:
  """Encodes [H, W, c] uint8 as a PNG file."""
  from PIL import Image

  file = io.BytesIO()
  grey = image.shape[-1] == 1
  pixels = np.ascontiguousarray(image[..., 0] if grey else image)
  Image.fromarray(pixels).save(file, "png")
  return file.getvalue()
