"""Damaged archives of pictures: one line that names them, and nothing left."""

import re

import pytest
from forms import (
  FORMS,
  but_the_end,
  gone,
  half,
  in_tar,
  in_zip,
  refused,
  resized,
)

TINY, CINIC = "tiny_imagenet", "cinic10"
FILES = {TINY: "tiny-imagenet-200.zip", CINIC: "CINIC-10.tar.gz"}
DAMAGES = [
  (TINY, half, "zip is damaged"),
  (TINY, but_the_end, "zip is damaged"),
  (
    TINY,
    in_zip("/wnids.txt", gone),
    "no item named .*wnids.txt",
  ),
  (
    TINY,
    in_zip("/wnids.txt", lambda raw: raw[:-10]),
    "wnids.txt does not name 200",
  ),
  (
    TINY,
    in_zip("/n00000009_0.JPEG", gone),
    "train has no image of class",
  ),
  (
    TINY,
    in_zip("/n00000009_0.JPEG", resized("jpeg", 63)),
    r"n00000009_0.JPEG is damaged .*\(63, 63\) pixels, expected 64x64",
  ),
  (
    TINY,
    in_zip("/n00000009_0.JPEG", lambda raw: raw[:700]),
    "n00000009_0.JPEG is damaged",
  ),
  (TINY, in_zip("/val_3.JPEG", gone), "no item named .*/val_3.JPEG"),
  (
    TINY,
    in_zip("/val_annotations.txt", lambda raw: b"val_0.JPEG\tn9\t0\n" + raw),
    "KeyError: 'n9'",
  ),
  (CINIC, half, "damaged"),
  (CINIC, but_the_end, "damaged"),
  (
    CINIC,
    in_tar("CINIC-10/test/frog/n0.png", gone),
    "test has no image of class 6",
  ),
  (
    CINIC,
    in_tar("CINIC-10/test/frog/n0.png", resized("png", 33)),
    r"test/frog/n0.png is damaged .*\(33, 33\) pixels, expected 32x32",
  ),
  (
    CINIC,
    in_tar("CINIC-10/train/frog/n1.png", lambda _: b"GIF89a" + bytes(99)),
    "train/frog/n1.png is damaged",
  ),
  (
    TINY,
    in_zip("/wnids.txt", lambda raw: raw.replace(b"n00000009", b"n00000900")),
    "KeyError: 'n00000009'",
  ),
  (
    TINY,
    in_zip("/val_annotations.txt", lambda _: b""),
    "has 0 labels for 0 images",
  ),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_damage(name, damage, message, tmp_path, capsys):
  files = tmp_path / "files"
  files.mkdir()
  FORMS[name][1](files)
  path = files / FILES[name]
  damage(path)
  err = refused(tmp_path, capsys, name, files)
  assert err.startswith(f"error: {path}")
  assert re.search(message, err), err


def test_a_class_that_cinic10_does_not_have(tmp_path, capsys):
  import official_archives as oa
  import official_pictures as op

  op.cinic10(tmp_path)
  path = tmp_path / FILES[CINIC]
  members = oa.read_tar(path)
  members["CINIC-10/train/cow/n0.png"] = members["CINIC-10/train/cat/n0.png"]
  oa.write_tar(path, members)
  err = refused(tmp_path, capsys, CINIC, tmp_path)
  assert "'cow' is not in list" in err
