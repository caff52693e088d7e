"""Epsilon against closed forms, and what an account may not do."""

import math
import sys

import pytest
from scipy import optimize, stats

from splitjax import UserError, evaluation
from splitjax.evaluation import Release

DELTA = 1e-5


@pytest.fixture
def known():
  return pytest.importorskip("dp_accounting")


def by_hand(noise, times):
  """Epsilon of Gaussian mechanisms (Balle and Wang, 2018, theorem 8).

  Rows of norm clip are 2 clip apart, so the sensitivity is 2 in units of clip.
  """
  apart = 2 * math.sqrt(times) / noise

  def excess(epsilon):
    one = stats.norm.cdf(apart / 2 - epsilon / apart)
    two = stats.norm.logcdf(-apart / 2 - epsilon / apart)
    return one - math.exp(epsilon + two) - DELTA

  return optimize.brentq(excess, 0, 1e3, xtol=1e-12)


def release(noise, times, steps=0, batch=10, samples=100):
  return Release(noise, times, steps or times, batch, samples)


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (4.0, 1), (8.0, 25)])
def test_one_message_by_the_closed_form(noise, times, known):
  got = evaluation.epsilon((release(noise, times),), DELTA)
  assert got == pytest.approx(by_hand(noise, times), rel=1e-6)


def test_a_gaussian_mechanism_of_the_literature(known):
  # Sensitivity 1 and deviation 1: epsilon 4.377 at delta 1e-5.
  assert evaluation.epsilon((release(2.0, 1),), DELTA) == pytest.approx(
    4.377178
  )


def test_messages_of_one_sample_compose(known):
  # Precisions add up: 1 / 4^2 + 3 / 8^2 is 7 / 8^2.
  both = (release(4.0, 1), release(8.0, 3))
  one = evaluation.epsilon((release(8.0, 7),), DELTA)
  assert evaluation.epsilon(both, DELTA) == pytest.approx(one, rel=1e-9)
  assert evaluation.epsilon(both, DELTA) > evaluation.epsilon(both[:1], DELTA)


def test_who_sends_nothing_risks_nothing(known):
  assert evaluation.epsilon((release(1.0, 0, 0),), DELTA) == 0
  assert evaluation.epsilon((), DELTA, amplified=True) == 0


def test_amplified_is_smaller_where_batches_are_small_and_never_larger(known):
  # Ten passes in batches of 1 in 100, and of all samples.
  small = (Release(4.0, 10, 1000, 1, 100),)
  assert evaluation.epsilon(small, DELTA, True) < 0.6 * evaluation.epsilon(
    small, DELTA
  )
  whole = (Release(4.0, 10, 10, 100, 100),)
  plain = evaluation.epsilon(whole, DELTA)
  assert evaluation.epsilon(whole, DELTA, True) == pytest.approx(plain)
  assert plain == pytest.approx(by_hand(4.0, 10), rel=1e-6)


def test_the_largest_and_the_median_of_clients():
  assert evaluation.noise_spread([3.0, 1.0, 2.0]) == {"max": 3.0, "median": 2.0}
  assert evaluation.noise_spread([4.0, 1.0]) == {"max": 4.0, "median": 2.5}


def test_without_the_library_it_says_how_to_install_it(monkeypatch):
  monkeypatch.setitem(sys.modules, "dp_accounting", None)
  with pytest.raises(UserError, match="pip install 'dp-accounting") as error:
    evaluation.dp_library()
  assert "privacy.delta=None" in str(error.value)
  assert len(str(error.value).splitlines()) == 1
