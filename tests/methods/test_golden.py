"""Three rounds of every method give the numbers that they always gave."""

import golden
import pytest
from marks import slow

pytestmark = pytest.mark.numeric

QUICK = "harmony", "merge_sfl", "pgfedsplit"
"""Kinds of rounds and of state; the others are variants of these."""


def test_every_method_has_golden_numbers():
  assert set(golden.read()) == set(golden.CASES)


@pytest.mark.parametrize(
  "case", [*QUICK, *slow(*(c for c in golden.CASES if c not in QUICK))]
)
def test_rounds_are_golden(case):
  want = golden.read()[case]
  assert golden.deviation(golden.play(case), want) < 1e-9
