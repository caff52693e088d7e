"""Small CIFAR, SVHN and EMNIST archives in the exact official formats.

Every function writes into a folder and returns split -> (images [Z, H, W, c]
uint8, field -> labels [Z]) in the official order.
"""

import io
import pickle
import struct
import tarfile
import warnings
import zipfile

import numpy as np
from scipy.io import savemat

NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
FINE = [f"fine_{c}" for c in range(100)]
COARSE = [f"coarse_{c}" for c in range(20)]


class Python2(pickle._Pickler):
  """Pickles as Python 2 did: text is bytes, truth a number, numpy old."""

  dispatch = dict(pickle._Pickler.dispatch)

  def save_text(self, said):
    raw = said.encode("latin1") if isinstance(said, str) else said
    if len(raw) < 256:
      self.write(pickle.SHORT_BINSTRING + bytes([len(raw)]) + raw)
    else:
      self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
    self.memoize(said)

  def save_truth(self, said):
    self.save(int(said))

  dispatch[str] = dispatch[bytes] = save_text
  dispatch[bool] = save_truth


def python2(held):
  file = io.BytesIO()
  Python2(file, protocol=2).dump(held)
  return file.getvalue().replace(b"numpy._core.multi", b"numpy.core.multi")


def unpickle(raw):
  """Reads a pickle of Python 2 with numpy; text becomes bytes."""
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # numpy, of so old an array
    return pickle.loads(raw, encoding="bytes")


def write_tar(path, members):
  """Writes a tar.gz; a member None is a folder."""
  with tarfile.open(path, "w:gz", compresslevel=1) as tar:
    for name, raw in members.items():
      info = tarfile.TarInfo(name)
      if raw is None:
        info.type = tarfile.DIRTYPE
      else:
        info.size = len(raw)
      tar.addfile(info, io.BytesIO(raw or b""))


def read_tar(path):
  with tarfile.open(path) as tar:
    return {
      member.name: tar.extractfile(member).read() if member.isfile() else None
      for member in tar.getmembers()
    }


def _samples(rng, n, fields):
  image = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
  order = rng.permutation(n)
  return image, {field: order % c for field, c in fields.items()}


def _planes(image):
  return np.ascontiguousarray(image.transpose(0, 3, 1, 2)).reshape(-1, 3072)


def _cifar(fields, batches):
  rng = np.random.default_rng(1)
  return {
    split: [_samples(rng, n, fields) for n in sizes]
    for split, sizes in batches.items()
  }


def _joined(made):
  return {
    split: (
      np.concatenate([image for image, _ in batches]),
      {
        field: np.concatenate([label[field] for _, label in batches])
        for field in batches[0][1]
      },
    )
    for split, batches in made.items()
  }


def _cifar10():
  return _cifar({"label": 10}, {"train": [12, 10, 10, 10, 10], "test": [20]})


def _cifar100():
  fields = {"label": 100, "coarse_label": 20}
  return _cifar(fields, {"train": [120], "test": [100]})


def cifar10_python(folder):
  made, members = _cifar10(), {"cifar-10-batches-py": None}
  files = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
  meta = {"label_names": NAMES10, "num_cases_per_batch": 10, "num_vis": 3072}
  members["cifar-10-batches-py/batches.meta"] = python2(meta)
  members["cifar-10-batches-py/readme.html"] = b"<html>"
  batches = made["train"] + made["test"]
  for file, (image, label) in zip(files, batches, strict=True):
    held = {
      "batch_label": f"training {file}",
      "labels": label["label"].tolist(),
      "data": _planes(image),
      "filenames": [f"{file}_{i}.png" for i in range(len(image))],
    }
    members[f"cifar-10-batches-py/{file}"] = python2(held)
  write_tar(folder / "cifar-10-python.tar.gz", members)
  return _joined(made)


def _records(image, *labels):
  columns = [np.stack(labels, axis=1).astype(np.uint8), _planes(image)]
  return np.concatenate(columns, axis=1).tobytes()


def cifar10_binary(folder):
  made, members = _cifar10(), {"cifar-10-batches-bin": None}
  files = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
  batches = made["train"] + made["test"]
  for file, (image, label) in zip(files, batches, strict=True):
    raw = _records(image, label["label"])
    members[f"cifar-10-batches-bin/{file}"] = raw
  names = "\n".join(NAMES10) + "\n\n"  # with an empty line, as it is
  members["cifar-10-batches-bin/batches.meta.txt"] = names.encode()
  write_tar(folder / "cifar-10-binary.tar.gz", members)
  return _joined(made)


def cifar100_python(folder):
  made, members = _cifar100(), {"cifar-100-python": None}
  for file, ((image, label),) in made.items():
    held = {
      "filenames": [f"{i}.png" for i in range(len(image))],
      "batch_label": "batch",
      "fine_labels": label["label"].tolist(),
      "coarse_labels": label["coarse_label"].tolist(),
      "data": _planes(image),
    }
    members[f"cifar-100-python/{file}"] = python2(held)
  meta = {"fine_label_names": FINE, "coarse_label_names": COARSE}
  members["cifar-100-python/meta"] = python2(meta)
  write_tar(folder / "cifar-100-python.tar.gz", members)
  return _joined(made)


def cifar100_binary(folder):
  made, members = _cifar100(), {}
  for file, ((image, label),) in made.items():
    raw = _records(image, label["coarse_label"], label["label"])
    members[f"cifar-100-binary/{file}.bin"] = raw
  for kind, names in (("fine", FINE), ("coarse", COARSE)):
    raw = "\n".join(names).encode() + b"\n"
    members[f"cifar-100-binary/{kind}_label_names.txt"] = raw
  write_tar(folder / "cifar-100-binary.tar.gz", members)
  return _joined(made)


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
  with zipfile.ZipFile(folder / "matlab.zip", "w") as archive:
    archive.writestr("matlab/emnist-letters.mat", b"another set")
    archive.writestr("matlab/emnist-byclass.mat", file.getvalue())
  return made
