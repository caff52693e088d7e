"""Three rounds of every method give the numbers that they always gave."""

import json

import golden
import numpy as np
import pytest

from splitjax.methods import METHODS

pytestmark = pytest.mark.numeric

QUICK = "harmony", "merge_sfl", "pgfedsplit"
"""Kinds of rounds and of state; the others are variants of these."""


def test_every_method_has_golden_numbers():
  named = [name for names in golden.FAMILIES.values() for name in names]
  assert sorted(named) == sorted(METHODS)


@pytest.mark.parametrize(
  ("family", "case"),
  [
    pytest.param(
      family, case, marks=[] if case in QUICK else [pytest.mark.slow]
    )
    for family in golden.FAMILIES
    for case in golden.cases(family)
  ],
)
def test_rounds_are_golden(family, case):
  want = json.loads((golden.FOLDER / f"{family}.json").read_text())
  assert list(want) == list(golden.cases(family))
  same(golden.play(case), want[case], case)


def same(got, want, where):
  """Compares nested numbers; keys and lengths must be equal."""
  if isinstance(want, dict):
    assert got.keys() == want.keys(), where
    for key in want:
      same(got[key], want[key], f"{where}: {key}")
  elif isinstance(want, list):
    assert len(got) == len(want), where
    for one, two in zip(got, want, strict=True):
      same(one, two, where)
  else:
    np.testing.assert_allclose(got, want, 1e-9, 1e-10, err_msg=where)
