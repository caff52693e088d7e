"""Damage to a checkpoint, by hand."""

import json

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
