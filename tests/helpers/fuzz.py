"""Two budgets of a fuzz test: small, and large under the mark slow.

The small budget tries the same examples every time, the large one others.
`pytest -s` prints how many examples were tried and how they ended.
"""

import collections

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BUDGETS = pytest.mark.parametrize(
  "large",
  [
    pytest.param(False, id="small"),
    pytest.param(True, id="large", marks=pytest.mark.slow),
  ],
)


def fuzzed(*strategies, examples):
  """Makes a test of a property, a function of what the strategies draw.

  It may return a word on how an example ended. `examples` are the numbers of
  the small and of the large budget.
  """

  def decorate(check):
    @BUDGETS
    def test(large):
      ends = collections.Counter()

      @settings(
        max_examples=examples[large],
        deadline=None,
        derandomize=not large,
        database=None,
        print_blob=large,
        suppress_health_check=list(HealthCheck),
      )
      @given(st.tuples(*strategies))
      def one_example(drawn):
        ends[check(*drawn) or "right"] += 1

      one_example()
      print(f"\n{check.__qualname__}: {dict(ends)}")

    return test

  return decorate
