"""Archives and pickles as official data sets are packed, in memory."""

import io
import pickle
import struct
import tarfile
import warnings
import zipfile


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

  dispatch[str] = dispatch[bytes] = save_text
  dispatch[bool] = lambda self, said: self.save(int(said))


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
      info.type = tarfile.DIRTYPE if raw is None else tarfile.REGTYPE
      info.size = len(raw or b"")
      tar.addfile(info, io.BytesIO(raw or b""))


def read_tar(path):
  with tarfile.open(path) as tar:
    return {
      member.name: tar.extractfile(member).read() if member.isfile() else None
      for member in tar.getmembers()
    }


def write_zip(path, members):
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, raw in members.items():
      archive.writestr(name, raw)


def read_zip(path):
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}
