"""Two budgets of every fuzz test: small, and large under the mark slow.

`pytest -s` prints how many examples each tried, how they ended and how long it
took. The small budget tries the same examples every time, the large one others.
"""

import collections
import contextlib
import signal
import time
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

BUDGETS = pytest.mark.parametrize(
  "large",
  [
    pytest.param(False, id="small"),
    pytest.param(True, id="large", marks=pytest.mark.slow),
  ],
)


class Hang(BaseException):
  """Not an Exception, which the code under test might catch."""


@contextlib.contextmanager
def within(seconds):
  """Raises AssertionError after so many seconds."""

  def end(*_):
    raise Hang

  before = signal.signal(signal.SIGALRM, end)
  signal.setitimer(signal.ITIMER_REAL, seconds)
  try:
    yield
  except Hang:
    raise AssertionError(f"not done after {seconds} seconds") from None
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def fuzz(check, *strategies, large, examples, limit=20.0, shrink=True):
  """Calls check(*drawn) on many examples, and prints how they ended.

  Args:
    check: the property; may return a word on how an example ended.
    *strategies: of its arguments.
    large: use the large budget.
    examples: number of the small and of the large budget.
    limit: maximum seconds of one example.
    shrink: minimise failing examples, which tries many more.
  """
  ends = collections.Counter()
  phases = [Phase.explicit, Phase.generate] + [Phase.shrink] * shrink

  @settings(
    max_examples=examples[large],
    deadline=None,  # `within` also ends what would never end
    derandomize=not large,
    database=None,
    print_blob=large,
    phases=phases,
    suppress_health_check=list(HealthCheck),
  )
  @given(st.tuples(*strategies))
  def each(drawn):
    with within(limit):
      ends[check(*drawn) or "right"] += 1

  start = time.monotonic()
  each()
  seconds = time.monotonic() - start
  summary = ", ".join(f"{count} {end}" for end, count in ends.most_common())
  name = check.__qualname__.split(".")[0]
  print(f"\n{name}: {ends.total()} examples in {seconds:.1f} s: {summary}")


def fuzzed(*strategies, examples, limit=20.0):
  """Makes a test of a property, with both budgets; see `fuzz`."""

  def decorate(check):
    @BUDGETS
    def test(large):
      fuzz(check, *strategies, large=large, examples=examples, limit=limit)

    return test

  return decorate


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
