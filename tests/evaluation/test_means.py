"""Means over clients, against numbers worked by hand."""

import numpy as np
import pytest

from splitjax import evaluation


def test_means_leave_out_the_empty_and_count_each_sample_once():
  values = np.array([[0.5, 1.0, np.nan], [np.nan] * 3])
  got = evaluation.over_clients(values)
  np.testing.assert_allclose(got, [0.75, np.nan])
  got = evaluation.over_samples(values, np.array([[4, 1, 0], [0, 0, 0]]))
  np.testing.assert_allclose(got, [3 / 5, np.nan])


def test_spread_over_clients():
  # 11 clients with samples: the worst tenth are two, 0.1 and 0.2.
  values = [0.9, 0.2, np.nan, 0.1, *[0.6] * 8]
  known = [x for x in values if not np.isnan(x)]
  got = evaluation.spread(np.array([values, [np.nan] * 12]))
  assert got["worst_tenth"] == pytest.approx([0.15, np.nan], nan_ok=True)
  assert got["std"] == pytest.approx([np.std(known), np.nan], nan_ok=True)
