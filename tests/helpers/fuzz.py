"""Two budgets of every fuzz test: small, and large under the mark slow.

`pytest -s` prints how many examples each tried, how they ended and how long it
took. The small budget tries the same examples every time, the large one others.
"""

import collections
import contextlib
import signal
import time

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
