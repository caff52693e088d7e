"""Paces: who is in time for a deadline, worked by hand."""

import numpy as np
import pytest

from splitjax.engine.faults import Schedule
from splitjax.engine.pace import ClientTimes, Deadline, cut_short
from splitjax.types import UserError

TIMES = ClientTimes(
  np.array([1.0, 1.0, 5.0]),
  np.array([0.1, 1.0, 1.0]),
  np.array([10.0, 8.0, 8.0]),
  np.zeros(3),
)
"""Whole rounds of 2, 9 and 13 s."""


@pytest.mark.parametrize(
  ("options", "ends", "shares"),
  [
    ({"seconds": 5.0}, 5.0, [1, 4 / 8, 0]),
    ({"seconds": 5.0, "late": "drop"}, 5.0, [1, 0, 0]),
    ({"seconds": 9.0, "late": "drop"}, 9.0, [1, 1, 0]),
    ({"quantile": 0.5}, 9.0, [1, 1, 4 / 8]),
    ({"quantile": 0.0}, 2.0, [1, 1 / 8, 0]),
    ({"quantile": 1.0}, 13.0, [1, 1, 1]),
  ],
)
def test_who_is_in_time(options, ends, shares):
  pace = Deadline(**options)
  assert pace.ends(TIMES) == ends
  assert pace.shares(TIMES, 1).tolist() == shares


def test_stages_round_their_shares_up_within_the_deadline():
  pace, steps = Deadline(seconds=6.5), np.array([3, 5])
  share = pace.shares(TIMES, stages=2)
  assert share.tolist() == [1, 4 / 8, 0]  # in time for 5 steps, one kept back
  assert np.ceil(steps * share[1]).sum() == 5


def test_a_deadline_that_nobody_meets_is_one_line():
  with pytest.raises(UserError, match=r"after 0.5 s; the fastest takes 2 s"):
    Deadline(seconds=0.5).shares(TIMES, 1)


def test_scheduled_faults_stay():
  given = Schedule(dropout=np.eye(3, 2, dtype=bool))
  found = cut_short(given, np.array([1.0, 0.5, 0.0]), 2)
  assert found.dropout.tolist() == [[True, False], [False, True], [True, True]]
  assert found.straggler.tolist() == [[1, 1], [0.5, 0.5], [1, 1]]
  assert cut_short((), np.array([1.0, 0.0]), 1).straggler is None
