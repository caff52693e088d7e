"""Tiny-ImageNet and CINIC-10: archives of JPEG and PNG files.

The prepared data contain these files unchanged. Only images that are not RGB
(Tiny-ImageNet has grey ones) are converted, to PNG and so without loss: readers
of prepared data expect three channels.
"""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from splitjax.data.official.archives import members
from splitjax.data.official.formats import Parsed, Paths, Split, reading, refuse

CINIC_CLASSES = (
  "airplane automobile bird cat deer dog frog horse ship truck".split()
)
_LARGEST = 1 << 20
"""Largest image file in bytes; the official ones have a few thousand."""


def _rgb(raw: bytes, where: str, side: int) -> bytes:
  """Checks a JPEG or PNG file and converts it to RGB if it is not."""
  from PIL import Image

  with reading(where):
    picture = Image.open(io.BytesIO(raw), formats=("JPEG", "PNG"))
  if picture.size != (side, side):
    wide, high = picture.size
    raise refuse(where, f"is {wide}x{high} pixels, expected {side}x{side}")
  with reading(where):
    picture.load()
    if picture.mode == "RGB":
      return raw
    png = io.BytesIO()
    picture.convert("RGB").save(png, "png")
  return png.getvalue()


def tiny_imagenet(paths: Paths) -> Parsed:
  """Reads Tiny-ImageNet; the official val is the test split.

  Labels are the lines of wnids.txt. Training images are ordered by class and
  name, test images as in val_annotations.txt. The official test images have no
  labels and are ignored.

  Args:
    paths: tiny-imagenet-200.zip.

  Returns:
    Files of [64, 64, 3]; the official file names as ids.

  Raises:
    UserError: the archive is damaged, or files are missing or misplaced.
  """
  (path,) = paths.values()
  with reading(path), zipfile.ZipFile(path) as archive:
    files = {name for name in archive.namelist() if not name.endswith("/")}
    wnids = _lines(archive, "wnids.txt", path)
    annotations = _lines(archive, "val/val_annotations.txt", path)
  if len(wnids) != 200 or len(set(wnids)) != 200:
    raise refuse(f"{path}: wnids.txt", "does not name 200 classes")
  splits = {}
  for split, pairs in (
    ("train", _train(files, wnids, path)),
    ("test", _val(files, annotations, wnids, path)),
  ):
    names = [name for name, _ in pairs]
    labels = np.array([wnids.index(wnid) for _, wnid in pairs], np.int64)
    ids = [PurePosixPath(name).name for name in names]
    splits[split] = Split(_unzipped(path, names), {"label": labels}, ids)
  return Parsed(splits, {"label": wnids})


def _lines(archive: zipfile.ZipFile, name: str, path: Path) -> list[str]:
  """The lines of a text file in the archive."""
  where = f"tiny-imagenet-200/{name}"
  if where not in archive.namelist():
    raise refuse(path, f"lacks {where}")
  return archive.read(where).decode().splitlines()


def _train(
  files: set[str], wnids: list[str], path: Path
) -> list[tuple[str, str]]:
  """All training images and their classes."""
  of_class: dict[str, list[str]] = {wnid: [] for wnid in wnids}
  for name in sorted(files):
    parts = PurePosixPath(name).parts
    if len(parts) != 5 or (parts[1], parts[3]) != ("train", "images"):
      continue
    if parts[2] not in of_class:
      raise refuse(f"{path}: {name}", "is of no class in wnids.txt")
    of_class[parts[2]].append(name)
  if empty := [wnid for wnid, names in of_class.items() if not names]:
    raise refuse(path, f"lacks tiny-imagenet-200/train/{empty[0]}/images")
  return [(name, wnid) for wnid, names in of_class.items() for name in names]


def _val(
  files: set[str], annotations: list[str], wnids: list[str], path: Path
) -> list[tuple[str, str]]:
  """All images of the official val and their annotated classes."""
  folder = "tiny-imagenet-200/val/images"
  pairs = []
  for line in annotations:
    name, wnid, *_ = [*line.split("\t"), ""]
    if wnid not in wnids:
      raise refuse(f"{path}: val_annotations.txt", f"has a line {line!r}")
    pairs.append((f"{folder}/{name}", wnid))
  named = {name for name, _ in pairs}
  if missing := sorted(named - files):
    raise refuse(path, f"lacks {missing[0]}")
  images = {name for name in files if name.startswith(f"{folder}/")}
  if images != named or not named:
    unnamed = sorted(images - named) or ["any picture"]
    raise refuse(f"{path}: val_annotations.txt", f"does not name {unnamed[0]}")
  return pairs


def _unzipped(path: Path, names: list[str]) -> Iterator[bytes]:
  """Reads the images one by one, never the whole archive."""
  with zipfile.ZipFile(path) as archive:
    for name in names:
      where = f"{path}: {name}"
      size = archive.getinfo(name).file_size
      if size > _LARGEST:
        raise refuse(where, f"has {size} bytes")
      with reading(where):
        raw = archive.read(name)
      yield _rgb(raw, where, 64)


def cinic10(paths: Paths) -> Parsed:
  """Reads CINIC-10's train and test, 90,000 images each, ordered by name.

  The third official split, valid, is not kept. Labels are in alphabetical
  order, as in CIFAR-10.

  Args:
    paths: CINIC-10.tar.gz, with SPLIT/CLASS/NAME.png in any folder.

  Returns:
    Files of [32, 32, 3]; CLASS/NAME.png as ids.

  Raises:
    UserError: the archive is damaged, or files are missing or misplaced.
  """
  (path,) = paths.values()
  found: dict[str, list[tuple[str, str, bytes]]] = {"train": [], "test": []}
  for name, read in members(path):
    split, kind, file = ("", "", *name.parts)[-3:]
    if split not in found or name.suffix != ".png" or file.startswith("."):
      continue
    if kind not in CINIC_CLASSES:
      raise refuse(f"{path}: {name}", "is of no class of CINIC-10")
    found[split].append((kind, file, read()))
  splits = {}
  for split, pictures in found.items():
    pictures.sort(key=lambda picture: picture[:2])
    labels = np.array([CINIC_CLASSES.index(kind) for kind, *_ in pictures])
    if missing := set(range(10)) - set(labels.tolist()):
      raise refuse(path, f"lacks {split}/{CINIC_CLASSES[min(missing)]}/*.png")
    ids = [f"{kind}/{file}" for kind, file, _ in pictures]
    where = f"{path}: {split}"
    splits[split] = Split(_released(pictures, where), {"label": labels}, ids)
  return Parsed(splits, {"label": CINIC_CLASSES})


def _released(
  pictures: list[tuple[str, str, bytes]], where: str
) -> Iterator[bytes]:
  """Yields the images and frees each one: half a gigabyte in total."""
  pictures.reverse()
  while pictures:
    kind, file, raw = pictures.pop()
    yield _rgb(raw, f"{where}/{kind}/{file}", 32)
