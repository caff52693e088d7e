"""Tiny-ImageNet and CINIC-10: archives of JPEG and PNG files.

These files go into the prepared data as they are. Only a picture that is not
RGB (Tiny-ImageNet has grey ones) is written anew, as PNG and hence without
loss: readers of prepared data take every file to have three channels.
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
"""Bytes in a picture; the official ones have a few thousand."""


def _rgb(raw: bytes, where: str, side: int) -> bytes:
  """A JPEG or PNG file of [side, side, 3], the given one if it is that."""
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

  Labels are the lines of wnids.txt. Training images come class by class in the
  order of their names, test images in that of val_annotations.txt. The official
  test images have no labels and are left alone.

  Args:
    paths: tiny-imagenet-200.zip.

  Returns:
    Files of [64, 64, 3]; the official file names as ids.

  Raises:
    UserError: the archive is damaged, or lacks or misplaces something.
  """
  (path,) = paths.values()
  with reading(path), zipfile.ZipFile(path) as archive:
    files = {name for name in archive.namelist() if not name.endswith("/")}
    wnids = _lines(archive, "wnids.txt", path)
    said = _lines(archive, "val/val_annotations.txt", path)
  if len(wnids) != 200 or len(set(wnids)) != 200:
    raise refuse(f"{path}: wnids.txt", "does not name 200 classes")
  splits = {}
  for split, pairs in (
    ("train", _train(files, wnids, path)),
    ("test", _val(files, said, wnids, path)),
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
  """Every training image and its class."""
  held: dict[str, list[str]] = {wnid: [] for wnid in wnids}
  for name in sorted(files):
    parts = PurePosixPath(name).parts
    if len(parts) != 5 or (parts[1], parts[3]) != ("train", "images"):
      continue
    if parts[2] not in held:
      raise refuse(f"{path}: {name}", "is of no class in wnids.txt")
    held[parts[2]].append(name)
  if empty := [wnid for wnid, names in held.items() if not names]:
    raise refuse(path, f"lacks tiny-imagenet-200/train/{empty[0]}/images")
  return [(name, wnid) for wnid, names in held.items() for name in names]


def _val(
  files: set[str], said: list[str], wnids: list[str], path: Path
) -> list[tuple[str, str]]:
  """Every image of the official val and its class, as annotated."""
  folder = "tiny-imagenet-200/val/images"
  pairs = []
  for line in said:
    name, wnid, *_ = [*line.split("\t"), ""]
    if wnid not in wnids:
      raise refuse(f"{path}: val_annotations.txt", f"has a line {line!r}")
    pairs.append((f"{folder}/{name}", wnid))
  named = {name for name, _ in pairs}
  if lacking := sorted(named - files):
    raise refuse(path, f"lacks {lacking[0]}")
  held = {name for name in files if name.startswith(f"{folder}/")}
  if held != named or not named:
    odd = sorted(held - named) or ["any picture"]
    raise refuse(f"{path}: val_annotations.txt", f"does not name {odd[0]}")
  return pairs


def _unzipped(path: Path, names: list[str]) -> Iterator[bytes]:
  """Reads the pictures one by one: the archive is never held in memory."""
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
  """Reads CINIC-10's train and test, 90,000 images each, in order of names.

  The third official split, valid, is not kept. Labels are the classes in the
  order of the alphabet, which is that of CIFAR-10.

  Args:
    paths: CINIC-10.tar.gz, with SPLIT/CLASS/NAME.png in any folder.

  Returns:
    Files of [32, 32, 3]; CLASS/NAME.png as ids.

  Raises:
    UserError: the archive is damaged, or lacks or misplaces something.
  """
  (path,) = paths.values()
  held: dict[str, list[tuple[str, str, bytes]]] = {"train": [], "test": []}
  for name, read in members(path):
    split, kind, file = ("", "", *name.parts)[-3:]
    if split not in held or name.suffix != ".png" or file.startswith("."):
      continue
    if kind not in CINIC_CLASSES:
      raise refuse(f"{path}: {name}", "is of no class of CINIC-10")
    held[split].append((kind, file, read()))
  splits = {}
  for split, pictures in held.items():
    pictures.sort(key=lambda picture: picture[:2])
    labels = np.array([CINIC_CLASSES.index(kind) for kind, *_ in pictures])
    if lacking := set(range(10)) - set(labels.tolist()):
      raise refuse(path, f"lacks {split}/{CINIC_CLASSES[min(lacking)]}/*.png")
    ids = [f"{kind}/{file}" for kind, file, _ in pictures]
    where = f"{path}: {split}"
    splits[split] = Split(_released(pictures, where), {"label": labels}, ids)
  return Parsed(splits, {"label": CINIC_CLASSES})


def _released(
  pictures: list[tuple[str, str, bytes]], where: str
) -> Iterator[bytes]:
  """Lets go of each picture as it is given: half a gigabyte in all."""
  pictures.reverse()
  while pictures:
    kind, file, raw = pictures.pop()
    yield _rgb(raw, f"{where}/{kind}/{file}", 32)
