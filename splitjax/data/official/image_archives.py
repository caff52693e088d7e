"""Tiny-ImageNet and CINIC-10: archives of JPEG and PNG files.

The prepared data contain these files unchanged, except that images that are not
RGB (Tiny-ImageNet has grey ones) are converted to PNG without loss, because
readers of prepared data expect three channels.
"""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from splitjax.data.official.formats import (
  OfficialSplit,
  Parsed,
  Paths,
  checked,
  members,
  reading,
)

CINIC_CLASSES = (
  "airplane automobile bird cat deer dog frog horse ship truck".split()
)
_TINY = "tiny-imagenet-200"
"""The folder of all files of Tiny-ImageNet."""


def _rgb(raw: bytes, where: str, side: int) -> bytes:
  """Checks a JPEG or PNG file; converts it to PNG in RGB if it is not RGB."""
  from PIL import Image

  with reading(where):
    picture = Image.open(io.BytesIO(raw), formats=("JPEG", "PNG"))
    if picture.size != (side, side):
      raise ValueError(f"has {picture.size} pixels, expected {side}x{side}")
    picture.load()
    if picture.mode == "RGB":
      return raw
    png = io.BytesIO()
    picture.convert("RGB").save(png, "png")
  return png.getvalue()


def _require_all(split: str, labels: list[int], classes: int) -> None:
  """Raises ValueError unless every class occurs in a split."""
  if missing := set(range(classes)) - set(labels):
    raise ValueError(f"{split} has no image of class {min(missing)}")


def tiny_imagenet(paths: Paths) -> Parsed:
  """Reads Tiny-ImageNet; the official validation split is the test split.

  Labels are line numbers in wnids.txt, from 0. Training images are ordered by
  class and name, test images as in val_annotations.txt. The official test
  images have no labels and are ignored. Ids are the official file names.
  """
  (path,) = paths.values()
  with reading(path), zipfile.ZipFile(path) as archive:
    wnids = archive.read(f"{_TINY}/wnids.txt").decode().splitlines()
    number = {wnid: c for c, wnid in enumerate(wnids)}
    if len(number) != 200 or len(wnids) != 200:
      raise ValueError("wnids.txt does not name 200 classes")
    train = [
      (number[name.split("/")[2]], name)
      for name in archive.namelist()
      if PurePosixPath(name).match(f"{_TINY}/train/*/images/*")
    ]
    lines = archive.read(f"{_TINY}/val/val_annotations.txt").decode()
    rows = [line.split("\t") for line in lines.splitlines()]
    val = [(number[row[1]], f"{_TINY}/val/images/{row[0]}") for row in rows]
    _require_all("train", [label for label, _ in train], 200)
    splits = {}
    for split, pairs in (("train", sorted(train)), ("test", val)):
      labels = checked([label for label, _ in pairs], len(pairs), 200)
      names = [name for _, name in pairs]
      ids = [PurePosixPath(name).name for name in names]
      splits[split] = OfficialSplit(
        _unzipped(path, names), {"label": labels}, ids
      )
  return Parsed(splits, {"label": wnids})


def _unzipped(path: Path, names: list[str]) -> Iterator[bytes]:
  """Yields the images one by one, without reading the whole archive."""
  with reading(path), zipfile.ZipFile(path) as archive:
    for name in names:
      yield _rgb(archive.read(name), f"{path}: {name}", 64)


def cinic10(paths: Paths) -> Parsed:
  """Reads CINIC-10's train and test, 90,000 images each, ordered by name.

  In the archive, the files SPLIT/CLASS/NAME.png may lie in any folder. The
  third official split, valid, is dropped. Classes are numbered in alphabetical
  order, as in CIFAR-10. Ids are CLASS/NAME.png.
  """
  (path,) = paths.values()
  found: dict[str, list[tuple[int, str, bytes]]] = {"train": [], "test": []}
  with reading(path):
    for name, raw in members(path):
      split, kind, file = ("", "", *name.parts)[-3:]
      if split in found and file.endswith(".png") and file[0] != ".":
        label = CINIC_CLASSES.index(kind)
        found[split].append((label, f"{kind}/{file}", raw))
    splits = {}
    for split, pictures in found.items():
      pictures.sort()
      numbers = [label for label, *_ in pictures]
      _require_all(split, numbers, 10)
      labels = checked(numbers, len(numbers), 10)
      ids = [name for _, name, _ in pictures]
      images = _converted(pictures, f"{path}: {split}")
      splits[split] = OfficialSplit(images, {"label": labels}, ids)
  return Parsed(splits, {"label": CINIC_CLASSES})


def _converted(
  pictures: list[tuple[int, str, bytes]], where: str
) -> Iterator[bytes]:
  """Yields the images of CINIC-10, checked one by one."""
  for _, name, raw in pictures:
    yield _rgb(raw, f"{where}/{name}", 32)
