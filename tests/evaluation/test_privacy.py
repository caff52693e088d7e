"""Epsilon against numbers of the literature and of an independent account."""

import pytest

from splitjax import evaluation
from splitjax.evaluation import Release

DELTA = 1e-5

# (noise, times, delta) -> epsilon of dp-accounting 0.6's analytic Gaussian.
KNOWN = [
  (1.0, 1, 1e-5, 9.997256146434315),
  (2.0, 1, 1e-5, 4.377178095681137),  # sensitivity 1 and deviation 1
  (4.0, 4, 1e-5, 4.377178095681137),  # four times half the precision
  (8.0, 25, 1e-5, 5.679586855097564),
  (4.0, 4, 1e-3, 3.1386705485829296),
  (0.1, 100, 1e-5, 20851.988679700935),
  (0.01, 1000, 1e-9, 20037932.462740995),
]


@pytest.mark.parametrize(("noise", "times", "delta", "want"), KNOWN)
def test_epsilon_is_that_of_the_analytic_gaussian(noise, times, delta, want):
  got = evaluation.epsilon([Release(noise, times)], delta)
  assert got == pytest.approx(want, rel=1e-9)
  # The noise for this epsilon is the noise that gave it.
  again = evaluation.noise_for(want, delta, times)
  assert again == pytest.approx(noise, rel=1e-9)


def test_messages_of_one_sample_compose():
  # Precisions add up: 1 / 4^2 + 3 / 8^2 is 7 / 8^2.
  both = [Release(4.0, 1), Release(8.0, 3)]
  joined = evaluation.epsilon([Release(8.0, 7)], DELTA)
  assert evaluation.epsilon(both, DELTA) == pytest.approx(joined, rel=1e-9)
  assert joined > evaluation.epsilon(both[:1], DELTA)


def test_who_sends_nothing_risks_nothing():
  assert evaluation.epsilon([Release(1.0, 0)], DELTA) == 0
  assert evaluation.epsilon([], DELTA) == 0
  # So does one sending with more noise than delta notices.
  assert evaluation.epsilon([Release(1e9, 1)], DELTA) == 0
