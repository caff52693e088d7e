"""Damage to a checkpoint, by hand."""

import json
import shutil

from splitjax.files import sealed


def step(workdir, round, key="own"):
  """The folder of a checkpoint."""
  return workdir / "methods" / key / "checkpoints" / str(round)


def data_file(folder):
  """The file with most of a state's numbers."""
  files = (p for p in (folder / "state").rglob("*") if p.is_file())
  return max(files, key=lambda path: path.stat().st_size)


def flip(path, place=0.5):
  """Flips one bit in a file."""
  content = bytearray(path.read_bytes())
  content[int(len(content) * place)] ^= 0x10
  path.write_bytes(content)


def record_of(folder):
  """What a checkpoint knows beside the state, with its digest."""
  return json.loads((folder / "record/metadata").read_text())


def rewrite_record(folder, **changes):
  """Makes a sound checkpoint's record that of another program."""
  body = {**record_of(folder), **changes}
  del body["sha256"]
  (folder / "record/metadata").write_text(json.dumps(sealed(body)))


def cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def reword(path):
  """Changes a text without breaking the JSON around it."""
  path.write_bytes(path.read_bytes().replace(b"round", b"sound"))


DAMAGE = {
  "a byte flipped in the numbers": lambda s: flip(data_file(s)),
  "numbers cut short": lambda s: cut(data_file(s)),
  "numbers gone": lambda s: data_file(s).unlink(),
  "the state gone": lambda s: shutil.rmtree(s / "state"),
  "structure gone": lambda s: (s / "state/_METADATA").unlink(),
  "an empty record": lambda s: (s / "record/metadata").write_text(""),
  "a record of nothing": lambda s: (s / "record/metadata").write_text("{}"),
  "a byte flipped in the record": lambda s: flip(s / "record/metadata"),
  "record gone": lambda s: shutil.rmtree(s / "record"),
  "a byte flipped in the log": lambda s: flip(s / "log/metadata", 0.3),
  "another word in the log": lambda s: reword(s / "log/metadata"),
  "an empty folder": lambda s: (shutil.rmtree(s), s.mkdir()),
}
