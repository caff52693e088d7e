"""Small data sets in the exact official formats, and damage to their files.

A writer writes into a folder and returns split -> (inputs [Z, ...], field ->
labels [Z]) in the official order.
"""

import functools
import gzip
import hashlib
import io

import numpy as np
import pytest
from data_command import main
from official_rows import ag_news, uci_har
from packed import python2, write_tar, write_zip
from PIL import Image
from scipy.io import savemat

from splitjax import data
from splitjax.data import STORES, File

NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
FINE = [f"fine_{c}" for c in range(100)]
COARSE = [f"coarse_{c}" for c in range(20)]
TRAIN, TEST = 40, 20
"""Samples of `idx`."""


def _samples(rng, n, fields):
  image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
  order = rng.permutation(n)
  return image, {field: order % c for field, c in fields.items()}


def _planes(image):
  return np.ascontiguousarray(image.transpose(0, 3, 1, 2)).reshape(-1, 3072)


FIELDS = {10: {"label": 10}, 100: {"label": 100, "coarse_label": 20}}
SIZES = {10: ([12, 10, 10, 10, 10], [20]), 100: ([120], [100])}
BATCHES = {
  10: [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"],
  100: ["train", "test"],
}


def _cifar(number):
  """Batch -> its samples, and the joined splits."""
  rng, out, batches = np.random.default_rng(1), {}, []
  for split, sizes in zip(("train", "test"), SIZES[number], strict=True):
    made = [_samples(rng, n, FIELDS[number]) for n in sizes]
    batches += made
    image = np.concatenate([image for image, _ in made])
    out[split] = (
      image,
      {
        field: np.concatenate([label[field] for _, label in made])
        for field in FIELDS[number]
      },
    )
  return dict(zip(BATCHES[number], batches, strict=True)), out


def cifar_python(number, folder):
  batches, out = _cifar(number)
  top, meta = "cifar-10-batches-py", "batches.meta"
  names, keys = {"label_names": NAMES10}, {"label": "labels"}
  if number == 100:
    top, meta = "cifar-100-python", "meta"
    names = {"fine_label_names": FINE, "coarse_label_names": COARSE}
    keys = {"label": "fine_labels", "coarse_label": "coarse_labels"}
  members = {top: None, f"{top}/{meta}": python2({**names, "num_vis": 3072})}
  members[f"{top}/readme.html"] = b"<html>"
  for batch, (image, label) in batches.items():
    held = {
      "batch_label": f"training {batch}",
      "data": _planes(image),
      "filenames": [f"{batch}_{i}.png" for i in range(len(image))],
      **{key: label[field].tolist() for field, key in keys.items()},
    }
    members[f"{top}/{batch}"] = python2(held)
  write_tar(folder / f"cifar-{number}-python.tar.gz", members)
  return out


def cifar_binary(number, folder):
  batches, out = _cifar(number)
  top = "cifar-10-batches-bin" if number == 10 else "cifar-100-binary"
  members = {}
  for batch, (image, label) in batches.items():
    labels = np.stack([label[f] for f in reversed(FIELDS[number])], axis=1)
    raw = np.concatenate([labels.astype("u1"), _planes(image)], axis=1)
    members[f"{top}/{batch}.bin"] = raw.tobytes()
  names = {"batches.meta": [*NAMES10, ""]}  # with an empty line, as it is
  if number == 100:
    names = {"fine_label_names": FINE, "coarse_label_names": COARSE}
  for file, each in names.items():
    members[f"{top}/{file}.txt"] = "\n".join(each).encode() + b"\n"
  write_tar(folder / f"cifar-{number}-binary.tar.gz", members)
  return out


def svhn(folder):
  made, rng = {}, np.random.default_rng(2)
  for split, n in (("train", 30), ("test", 20)):
    image, label = _samples(rng, n, {"label": 10})
    digit = np.where(label["label"] == 0, 10, label["label"])
    held = {"X": np.moveaxis(image, 0, -1), "y": digit[:, None].astype("u1")}
    savemat(folder / f"{split}_32x32.mat", held, do_compression=True)
    made[split] = image, label
  return made


def emnist(folder):
  """EMNIST's MATLAB archive: images by columns, writers with numbers."""
  made, held, rng = {}, {}, np.random.default_rng(3)
  for split, n in (("train", 130), ("test", 70)):
    image = rng.integers(0, 256, (n, 28, 28, 1), np.uint8)
    label = np.arange(n) % 62
    writer = rng.choice([7, 40, 3000], n, p=[0.6, 0.36, 0.04])
    held[split] = {
      "images": image[..., 0].transpose(0, 2, 1).reshape(n, 784),
      "labels": label[:, None].astype("u1"),
      "writers": writer[:, None].astype(float),
    }
    number = np.searchsorted([7, 40, 3000], writer)
    made[split] = image, {"label": label, "writer": number}
  codes = [*range(48, 58), *range(65, 91), *range(97, 123)]
  held["mapping"] = np.array(list(enumerate(codes)))
  file = io.BytesIO()
  savemat(file, {"dataset": held}, do_compression=True)
  more = {"matlab/emnist-letters.mat": b"another set"}
  members = {**more, "matlab/emnist-byclass.mat": file.getvalue()}
  write_zip(folder / "matlab.zip", members)
  return made


def picture(rng, mode, side, form):
  """A file of noise and its pixels as RGB, by another decoder."""
  noise = rng.integers(0, 256, (side, side, 3), np.uint8)
  file = io.BytesIO()
  Image.fromarray(noise).convert(mode).save(file, form)
  decoded = Image.open(io.BytesIO(file.getvalue())).convert("RGB")
  return file.getvalue(), np.asarray(decoded)


def _filled(pairs):
  images, labels = zip(*pairs, strict=True)
  return np.stack(images), {"label": np.array(labels)}


def tiny_imagenet(folder):
  members, made = _tiny_imagenet()
  write_zip(folder / "tiny-imagenet-200.zip", members)
  return {split: _filled(pairs) for split, pairs in made.items()}


@functools.cache
def _tiny_imagenet():
  """Draws it once: hundreds of pictures take a second."""
  rng, made = np.random.default_rng(3), {"train": [], "test": []}
  wnids = [f"n{i:08d}" for i in rng.permutation(200)]
  top, members, annotations = "tiny-imagenet-200", {}, []
  for label, wnid in enumerate(wnids):
    inside = f"{top}/train/{wnid}"
    boxes = f"{wnid}_0.JPEG\t0\t0\t9\t9\n"
    members[f"{inside}/{wnid}_boxes.txt"] = boxes.encode()
    mode = "L" if label == 7 else "RGB"  # the official archive has grey ones
    # Two of a class, in another order than that of their names.
    for number in (1, 0) if label == 3 else (0,):
      raw, image = picture(rng, mode, 64, "jpeg")
      members[f"{inside}/images/{wnid}_{number}.JPEG"] = raw
      made["train"].append((image, label, number))
  made["train"] = [x[:2] for x in sorted(made["train"], key=lambda x: x[1:])]
  for i, label in enumerate(rng.permutation(200)[:30].tolist()):
    raw, image = picture(rng, "RGB", 64, "jpeg")
    members[f"{top}/val/images/val_{i}.JPEG"] = raw
    annotations.append(f"val_{i}.JPEG\t{wnids[label]}\t0\t0\t63\t63\n")
    made["test"].append((image, label))
  members[f"{top}/val/val_annotations.txt"] = "".join(annotations).encode()
  members[f"{top}/wnids.txt"] = "\n".join(wnids).encode() + b"\n"
  members[f"{top}/words.txt"] = b"n00000000\tentity\n"
  members[f"{top}/test/images/test_0.JPEG"] = raw
  return members, made


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
    made[split] = _filled(pairs)
  names = list(members)
  rng.shuffle(names)  # the archive has no order
  more = {"CINIC-10/README.md": b"#", "CINIC-10/train": None}
  write_tar(folder / "CINIC-10.tar.gz", more | {k: members[k] for k in names})
  return {split: made[split] for split in ("train", "test")}


def write_idx(path, array):
  head = bytes([0, 0, 8, array.ndim])
  sizes = np.array(array.shape, ">u4").tobytes()
  path.write_bytes(gzip.compress(head + sizes + array.tobytes()))


def idx(folder):
  """The four files of MNIST and Fashion-MNIST."""
  rng, made = np.random.default_rng(0), {}
  for split, prefix, n in (("train", "train", TRAIN), ("test", "t10k", TEST)):
    image = rng.integers(0, 256, (n, 28, 28), np.uint8)
    label = np.arange(n, dtype=np.uint8) % 10
    write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", image)
    write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", label)
    made[split] = image[..., None], {"label": label}
  return made


FORMS = {
  "idx": ("fashion_mnist", idx),
  "cifar10_python": ("cifar10", functools.partial(cifar_python, 10)),
  "cifar10_binary": ("cifar10", functools.partial(cifar_binary, 10)),
  "cifar100_python": ("cifar100", functools.partial(cifar_python, 100)),
  "cifar100_binary": ("cifar100", functools.partial(cifar_binary, 100)),
  "svhn": ("svhn_cropped", svhn),
  "emnist": ("emnist_byclass", emnist),
  "tiny_imagenet": ("tiny_imagenet", tiny_imagenet),
  "cinic10": ("cinic10", cinic10),
  "uci_har": ("uci_har", uci_har),
  "uci_har_inner": ("uci_har", functools.partial(uci_har, nested=False)),
  "ag_news": ("ag_news", ag_news),
}
"""Form -> the name it is prepared under, and what writes it."""


def md5(path):
  return hashlib.md5(path.read_bytes()).hexdigest()


def trust(monkeypatch, folder, name="fashion_mnist", place=None):
  """Makes the files of a folder the official ones, available at a place."""

  def trusted(file, official):
    path = folder / file
    urls = (f"{place}/{file}",) if place else official.urls
    if not path.is_file():
      return official
    return File(md5(path), path.stat().st_size, urls)

  store = STORES[name]
  forms = [
    form._replace(files={k: trusted(k, v) for k, v in form.files.items()})
    for form in store.forms
  ]
  monkeypatch.setitem(STORES, name, store._replace(forms=tuple(forms)))


def prepared(tmp_path_factory, form="idx"):
  """A small data set as if of official files: its folder and what is in it."""
  files, data_dir = tmp_path_factory.mktemp("f"), tmp_path_factory.mktemp("d")
  name, write = FORMS[form]
  made = write(files)
  with pytest.MonkeyPatch.context() as patch:
    trust(patch, files, name)
    data.prepare(name, data_dir, files)
  return data_dir, made


def refused(tmp_path, capsys, name, files):
  """Prepares files as they are; returns the one line of error."""
  target = tmp_path / "data"
  words = f"prepare {name} --allow-modified --from {files} --data_dir {target}"
  assert main(words.split()) == 2
  out, err = capsys.readouterr()
  assert out == "" and len(err.splitlines()) == 1
  assert not any(target.rglob("*"))
  return err


def bag(image, label):
  """The samples as a sorted list: TFDS keeps them in an order of its own."""
  label = label["label"] if isinstance(label, dict) else label
  pairs = zip(image, label, strict=True)
  return sorted((int(y), x.tobytes()) for x, y in pairs)
