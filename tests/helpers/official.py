"""Small data sets in the exact official formats.

A writer writes files into a folder and returns split -> arrays by field, as
they are to be read.
"""

import functools
import gzip
import io
import tarfile
import zipfile

import numpy as np
from PIL import Image
from scipy.io import savemat

from splitjax import data

NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
TRAIN, TEST = 40, 20
"""Samples of `idx`."""


def write_tar(path, members):
  """Writes a tar.gz with its folders."""
  with tarfile.open(path, "w:gz", compresslevel=1) as tar:
    for name, raw in {path.name.split(".")[0]: None, **members}.items():
      info = tarfile.TarInfo(name)
      info.type = tarfile.DIRTYPE if raw is None else tarfile.REGTYPE
      info.size = len(raw or b"")
      tar.addfile(info, io.BytesIO(raw or b""))


def write_zip(path, members):
  with zipfile.ZipFile(path, "w") as archive:
    for name, raw in members.items():
      archive.writestr(name, raw)


def idx(folder):
  """The four files of MNIST and Fashion-MNIST."""
  rng, made = np.random.default_rng(0), {}
  for split, prefix, n in (("train", "train", TRAIN), ("test", "t10k", TEST)):
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = np.arange(n, dtype=np.uint8) % 10
    for kind, array in (("images-idx3", image), ("labels-idx1", label)):
      head = bytes([0, 0, 8, array.ndim])
      raw = head + np.array(array.shape, ">u4").tobytes() + array.tobytes()
      path = folder / f"{prefix}-{kind}-ubyte.gz"
      path.write_bytes(gzip.compress(raw))
    made[split] = {"image": image[..., None], "label": label}
  return made


def cifar(number, coarse, folder):
  """Records of one label or two and the pixels, in one file or five.

  With `coarse` what is to be read are the superclasses.
  """
  rng, made, members = np.random.default_rng(1), {}, {}
  top = "cifar-10-batches-bin" if number == 10 else "cifar-100-binary"
  batches = {
    10: {"train": [f"data_batch_{i}" for i in range(1, 6)],
         "test": ["test_batch"]},
    100: {"train": ["train"], "test": ["test"]},
  }[number]  # fmt: skip
  for split, files in batches.items():
    n = 100
    image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
    label, above = rng.permutation(n) % number, rng.permutation(n) % 20
    fields = [label] if number == 10 else [above, label]
    planes = image.transpose(0, 3, 1, 2).reshape(n, -1)
    raw = np.column_stack([*fields, planes]).astype(np.uint8)
    for name, part in zip(files, np.split(raw, len(files)), strict=True):
      members[f"{top}/{name}.bin"] = part.tobytes()
    made[split] = {"image": image, "label": above if coarse else label}
  names = {"batches.meta": [*NAMES10, ""]}  # with an empty line, as it is
  if number == 100:
    names = {
      f"{kind}_label_names": [f"{kind}_{c}" for c in range(count)]
      for kind, count in (("fine", 100), ("coarse", 20))
    }
  for name, lines in names.items():
    members[f"{top}/{name}.txt"] = "\n".join(lines).encode() + b"\n"
  members[f"{top}/readme.html"] = b"<html>"
  # The archive has no order.
  shuffled = {k: members[k] for k in sorted(members, key=lambda k: k[::-1])}
  write_tar(folder / f"cifar-{number}-binary.tar.gz", shuffled)
  return made


def svhn(folder):
  made, rng = {}, np.random.default_rng(2)
  for split, n in (("train", 30), ("test", 20)):
    image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
    label = rng.permutation(n) % 10
    digit = np.where(label == 0, 10, label)[:, None].astype("u1")
    held = {"X": np.moveaxis(image, 0, -1), "y": digit}
    savemat(folder / f"{split}_32x32.mat", held, do_compression=True)
    made[split] = {"image": image, "label": label}
  return made


def picture(rng, mode, side, form):
  """A file of noise and its pixels as RGB, by another decoder."""
  noise = rng.integers(0, 256, (side, side, 3), np.uint8)
  file = io.BytesIO()
  Image.fromarray(noise).convert(mode).save(file, form)
  decoded = Image.open(io.BytesIO(file.getvalue())).convert("RGB")
  return file.getvalue(), np.asarray(decoded)


def _stacked(pairs):
  images, labels = zip(*pairs, strict=True)
  return {"image": np.stack(images), "label": np.array(labels)}


def tiny_imagenet(folder):
  """Two hundred classes; one of them is grey, one has two images."""
  rng, made = np.random.default_rng(3), {"train": [], "test": []}
  wnids = [f"n{i:08d}" for i in rng.permutation(200)]
  top, members, lines = "tiny-imagenet-200", {}, []
  for label, wnid in enumerate(wnids):
    members[f"{top}/train/{wnid}/{wnid}_boxes.txt"] = b"0\t0\t9\t9\n"
    mode, found = ("L" if label == 7 else "RGB"), {}
    for number in (1, 0) if label == 3 else (0,):
      raw, found[number] = picture(rng, mode, 64, "jpeg")
      members[f"{top}/train/{wnid}/images/{wnid}_{number}.JPEG"] = raw
    made["train"] += [(found[number], label) for number in sorted(found)]
  for i, label in enumerate(rng.permutation(200)[:30].tolist()):
    raw, image = picture(rng, "RGB", 64, "jpeg")
    members[f"{top}/val/images/val_{i}.JPEG"] = raw
    lines.append(f"val_{i}.JPEG\t{wnids[label]}\t0\t0\t63\t63\n")
    made["test"].append((image, label))
  members[f"{top}/val/val_annotations.txt"] = "".join(lines)
  members[f"{top}/wnids.txt"] = "\n".join(wnids) + "\n"
  members[f"{top}/test/images/test_0.JPEG"] = raw
  write_zip(folder / "tiny-imagenet-200.zip", members)
  return {split: _stacked(pairs) for split, pairs in made.items()}


def cinic10(folder):
  rng, made, members = np.random.default_rng(4), {}, {}
  for split, n in (("valid", 1), ("train", 2), ("test", 1)):
    pairs = []
    for label, kind in enumerate(NAMES10):
      for i in range(n):
        grey = (split, label) == ("test", 3)
        raw, image = picture(rng, "L" if grey else "RGB", 32, "png")
        members[f"CINIC-10/{split}/{kind}/n{i}.png"] = raw
        pairs.append((image, label))
    made[split] = _stacked(pairs)
  names = list(members)
  rng.shuffle(names)  # the archive has no order
  shuffled = {"CINIC-10/README.md": b"#"} | {k: members[k] for k in names}
  write_tar(folder / "CINIC-10.tar.gz", shuffled)
  return {split: made[split] for split in ("train", "test")}


WRITE = {
  "mnist": idx,
  "fashion_mnist": idx,
  "cifar10": functools.partial(cifar, 10, False),
  "cifar100": functools.partial(cifar, 100, False),
  "cifar100_coarse": functools.partial(cifar, 100, True),
  "svhn_cropped": svhn,
  "tiny_imagenet": tiny_imagenet,
  "cinic10": cinic10,
}
"""Name of a data set -> what writes small files of it."""


def prepared(name, data_dir):
  """Writes and prepares a small data set; returns what is in the files."""
  folder = data_dir / "downloads" / (data.OFFICIAL[name].downloads or name)
  folder.mkdir(parents=True, exist_ok=True)
  made = WRITE[name](folder)
  data.prepare(name, data_dir, allow_modified=True)
  return made
