"""Tiny-ImageNet and CINIC-10, small, in the exact official formats.

Every function writes into a folder and returns split -> (images [Z, H, W, 3]
uint8, field -> labels [Z]) in the official order.
"""

import io
import zipfile

import numpy as np
import official_archives as oa
from PIL import Image


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


def tiny_imagenet(folder, times=1):
  rng, made = np.random.default_rng(3), {"train": [], "test": []}
  wnids = [f"n{i:08d}" for i in rng.permutation(200)]
  top, members, annotations = "tiny-imagenet-200", {}, []
  for label, wnid in enumerate(wnids):
    inside = f"{top}/train/{wnid}"
    boxes = f"{wnid}_0.JPEG\t0\t0\t9\t9\n"
    members[f"{inside}/{wnid}_boxes.txt"] = boxes.encode()
    mode = "L" if label == 7 else "RGB"  # the official archive has grey ones
    # Two of a class, in another order than that of their names.
    first = (1, 0) if label == 3 else (0,)
    for number in (*first, *range(2, times + 1)):
      raw, image = picture(rng, mode, 64, "jpeg")
      members[f"{inside}/images/{wnid}_{number}.JPEG"] = raw
      made["train"].append((image, label, number))
  made["train"].sort(key=lambda sample: sample[1:])
  made["train"] = [sample[:2] for sample in made["train"]]
  for i, label in enumerate(rng.permutation(200)[:30].tolist()):
    raw, image = picture(rng, "RGB", 64, "jpeg")
    members[f"{top}/val/images/val_{i}.JPEG"] = raw
    annotations.append(f"val_{i}.JPEG\t{wnids[label]}\t0\t0\t63\t63\n")
    made["test"].append((image, label))
  members[f"{top}/val/val_annotations.txt"] = "".join(annotations).encode()
  members[f"{top}/wnids.txt"] = "\n".join(wnids).encode() + b"\n"
  members[f"{top}/words.txt"] = b"n00000000\tentity\n"
  members[f"{top}/test/images/test_0.JPEG"] = raw
  write_zip(folder / "tiny-imagenet-200.zip", members)
  return {split: _filled(pairs) for split, pairs in made.items()}


def write_zip(path, members):
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, raw in members.items():
      archive.writestr(name, raw)


def read_zip(path):
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def cinic10(folder, times=1):
  rng, made, members = np.random.default_rng(4), {}, {}
  for split, n in (("valid", 1), ("train", 2), ("test", 1)):
    pairs = []
    for label, kind in enumerate(oa.NAMES10):
      for i in range(n * times):
        grey = (split, label) == ("test", 3)
        raw, image = picture(rng, "L" if grey else "RGB", 32, "png")
        members[f"CINIC-10/{split}/{kind}/n{i}.png"] = raw
        pairs.append((image, label))
    made[split] = _filled(pairs)
  names = list(members)
  rng.shuffle(names)  # the archive has no order
  readme = {"CINIC-10/README.md": b"#", "CINIC-10/train": None}
  oa.write_tar(
    folder / "CINIC-10.tar.gz", {**readme, **{k: members[k] for k in names}}
  )
  return {split: made[split] for split in ("train", "test")}
