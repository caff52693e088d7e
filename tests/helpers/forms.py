"""Every official form, and how to damage one."""

import numpy as np
import official_archives as oa
import official_pictures as op

from splitjax.data import __main__

FORMS = {
  "cifar10_python": ("cifar10", oa.cifar10_python),
  "cifar10_binary": ("cifar10", oa.cifar10_binary),
  "cifar100_python": ("cifar100", oa.cifar100_python),
  "cifar100_binary": ("cifar100", oa.cifar100_binary),
  "svhn": ("svhn_cropped", oa.svhn),
  "emnist": ("emnist_byclass", oa.emnist),
  "tiny_imagenet": ("tiny_imagenet", op.tiny_imagenet),
  "cinic10": ("cinic10", op.cinic10),
}
"""Form -> the name it is prepared under, and what writes it."""


def refused(tmp_path, capsys, name, files):
  """Prepares files as they are; returns the one line of error."""
  target = tmp_path / "data"
  words = f"prepare {name} --allow-modified --from {files} --data_dir {target}"
  assert __main__.main(words.split()) == 2
  out, err = capsys.readouterr()
  assert out == "" and len(err.splitlines()) == 1
  assert not any(target.rglob("*"))
  return err


def in_tar(member, change):
  """Changes a member's bytes; to None: leaves it out."""

  def damage(path):
    members = oa.read_tar(path)
    members[member] = change(members[member])
    if members[member] is None:
      del members[member]
    oa.write_tar(path, members)

  return damage


def in_zip(member, change):
  def damage(path):
    members = op.read_zip(path)
    (name,) = [name for name in members if name.endswith(member)]
    raw = change(members.pop(name))
    op.write_zip(path, members if raw is None else {**members, name: raw})

  return damage


def first_byte(value):
  return lambda raw: bytes([value]) + raw[1:]


def gone(_):
  return None


def resized(form, side):
  raw, _ = op.picture(np.random.default_rng(0), "RGB", side, form)
  return lambda _: raw


def half(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def but_the_end(path):
  path.write_bytes(path.read_bytes()[:-4])
