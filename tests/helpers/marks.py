"""Cases of a table that `make test` leaves out."""

import pytest


def slow(*cases):
  """Each case, or tuple of arguments, as one of `make test-all` alone."""
  return [
    pytest.param(
      *(case if type(case) is tuple else (case,)), marks=pytest.mark.slow
    )
    for case in cases
  ]
