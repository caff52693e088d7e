"""Small data sets in the exact official formats.

A writer writes files into a folder and returns split -> arrays by field, as
they are to be read.
"""

import functools
import gzip
import io
import tarfile
import zipfile
import zlib

import numpy as np
from PIL import Image
from scipy.io import savemat

from splitjax import data

NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
WRITERS = ["7", "40", "3000"]
ACTIVITIES = "WALKING UPSTAIRS DOWNSTAIRS SITTING STANDING LAYING".split()
SIGNALS = [
  f"{kind}_{axis}"
  for kind in ("body_acc", "body_gyro", "total_acc")
  for axis in "xyz"
]
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


def cifar(number, folder):
  """Records of one label or two and the pixels, in one file or five."""
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
    label, coarse = rng.permutation(n) % number, rng.permutation(n) % 20
    fields = [label] if number == 10 else [coarse, label]
    planes = image.transpose(0, 3, 1, 2).reshape(n, -1)
    raw = np.column_stack([*fields, planes]).astype(np.uint8)
    for name, part in zip(files, np.split(raw, len(files)), strict=True):
      members[f"{top}/{name}.bin"] = part.tobytes()
    made[split] = {"image": image, "label": label}
    if number == 100:
      made[split]["coarse"] = coarse
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


def emnist(folder):
  """EMNIST's MATLAB archive: images by columns, writers with numbers."""
  made, held, rng = {}, {}, np.random.default_rng(3)
  for split, n in (("train", 130), ("test", 70)):
    image = rng.integers(0, 256, (n, 28, 28, 1), np.uint8)
    label = np.arange(n) % 62
    number = rng.choice(3, n, p=[0.6, 0.36, 0.04])
    held[split] = {
      "images": image[..., 0].transpose(0, 2, 1).reshape(n, 784),
      "labels": label[:, None].astype("u1"),
      "writers": np.array(WRITERS, float)[number][:, None],
    }
    made[split] = {"image": image, "label": label, "client": number}
  codes = [*range(48, 58), *range(65, 91), *range(97, 123)]
  held["mapping"] = np.array(list(enumerate(codes)))
  file = io.BytesIO()
  savemat(file, {"dataset": held}, do_compression=True)
  members = {"matlab/emnist-letters.mat": b"another set"}
  members["matlab/emnist-byclass.mat"] = file.getvalue()
  write_zip(folder / "matlab.zip", members)
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


def uci_har(folder):
  """Windows as text in the archive, which lies in another as UCI serves it."""
  rng, made = np.random.default_rng(0), {}
  lines = "".join(f"{i} {a}\n" for i, a in enumerate(ACTIVITIES, start=1))
  members = {"UCI HAR Dataset/activity_labels.txt": lines}
  for split, people in (("train", (1, 3, 30)), ("test", (2, 9))):
    y = np.arange(4 * len(people)) % 6
    who = np.repeat(people, 4)
    x = np.round(rng.normal(size=(len(y), 128, 9)), 6)
    at = f"UCI HAR Dataset/{split}"
    members[f"{at}/y_{split}.txt"] = "".join(f"{i + 1}\n" for i in y)
    members[f"{at}/subject_{split}.txt"] = "".join(f"{i}\n" for i in who)
    for c, signal in enumerate(SIGNALS):
      rows = ("  " + "  ".join(f"{v: .7e}" for v in row) for row in x[..., c])
      name = f"{at}/Inertial Signals/{signal}_{split}.txt"
      members[name] = "\n".join(rows) + "\n"
    made[split] = {"image": x.astype("f4"), "label": y, "client": who - 1}
  inner = io.BytesIO()
  write_zip(inner, members)
  outer = folder / "human+activity+recognition+using+smartphones.zip"
  write_zip(outer, {"UCI HAR Dataset.zip": inner.getvalue(), "names": "text"})
  return made


def ag_news(folder):
  """News as quoted rows; their ids are those of hashed words."""
  made, words = {}, ["oil", "wins", "match", "web", "Iraq", "profit's"]
  for split, count in (("train", 12), ("test", 8)):
    y, lines, ids = np.arange(count) % 4, [], np.zeros((count, 64), "u2")
    for row, kind in enumerate(y):
      title = f'{words[row % 6].title()} ""{words[kind]}""'
      text = " ".join(words[i % 6] for i in range(row, row + 7 * row))
      lines.append(f'"{kind + 1}","{title}","{text} \\ (AP), #39;s"\n')
      said = f"{title} {text} ap 39 s".replace('"', " ").replace("'", " ")
      for place, word in enumerate(said.lower().split()[:64]):
        ids[row, place] = 1 + zlib.crc32(word.encode()) % (2**14 - 1)
    (folder / f"{split}.csv").write_text("".join(lines), encoding="utf-8")
    made[split] = {"image": ids, "label": y}
  return made


WRITE = {
  "mnist": idx,
  "fashion_mnist": idx,
  "cifar10": functools.partial(cifar, 10),
  "cifar100": functools.partial(cifar, 100),
  "svhn_cropped": svhn,
  "emnist_byclass": emnist,
  "tiny_imagenet": tiny_imagenet,
  "cinic10": cinic10,
  "uci_har": uci_har,
  "ag_news": ag_news,
}
"""Name of a data set -> what writes small files of it."""


def prepared(name, data_dir):
  """Writes and prepares a small data set; returns what is in the files."""
  folder = data_dir / "downloads" / name
  folder.mkdir(parents=True)
  made = WRITE[name](folder)
  data.prepare(name, data_dir, allow_modified=True)
  return made
