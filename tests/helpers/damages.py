"""Damage to the bytes of a file, as hypothesis draws it."""

from typing import NamedTuple

from hypothesis import strategies as st


class Damage(NamedTuple):
  """A function of bytes: places changed one after another."""

  changes: tuple

  def __call__(self, raw):
    for kind, at, to, size, value in self.changes:
      at, to = at % (len(raw) + 1), to % (len(raw) + 1)
      piece, rest = raw[at : at + size], raw[at + size :]
      if kind == "flip":
        piece = bytes(b ^ (1 << value % 8) for b in piece[:1]) + piece[1:]
      elif kind == "set":
        piece = bytes([value]) * len(piece)
      elif kind == "insert":
        piece = bytes([value]) * size + piece
      elif kind == "repeat":
        piece *= 2
      elif kind == "number":  # for example a size: very large, or text
        piece = piece[:-4] + (b"\xff\xff\xff\x7f", b"9999")[value % 2]
      elif kind == "cut":
        piece, rest = b"", b""
      elif kind == "move":
        rest = rest[:to] + piece + rest[to:]
      if kind in ("delete", "move"):
        piece = b""
      raw = raw[:at] + piece + rest
    return raw


KINDS = "flip set insert delete repeat number cut move".split()
# Most places near the beginning, where the heads are.
places = st.one_of(
  st.integers(0, 24), st.integers(0, 400), st.integers(0, 10**9)
)
sizes = st.sampled_from([1, 1, 2, 4, 16, 300])
bytes_ = st.integers(0, 255)
damages = st.lists(
  st.tuples(st.sampled_from(KINDS), places, places, sizes, bytes_),
  min_size=1,
  max_size=3,
).map(Damage)


def one_line(error):
  """Asserts that the message of a UserError is one line."""
  text = str(error.value if hasattr(error, "value") else error)
  assert len(text.splitlines()) == 1 and text.isprintable(), repr(text)
  return "refused"
