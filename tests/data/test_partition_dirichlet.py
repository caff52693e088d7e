"""The Dirichlet partition: skew, and draws that come to an end."""

import numpy as np
import pytest
from refusals import refused

from splitjax.data import dirichlet

# 2,000 samples, ten classes of 200, in no order.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(10), 200))


def test_skews_more_the_smaller_alpha():
  def largest_share(alpha):
    parts = dirichlet(LABELS, 10, 0, alpha=alpha)
    shares = [np.bincount(LABELS[p]).max() / len(p) for p in parts]
    return np.mean(shares)

  assert largest_share(0.1) > largest_share(1.0) > largest_share(1000.0)
  assert largest_share(1000.0) < 0.13  # near 1/10: almost iid


def test_proportions_are_those_of_the_distribution():
  # Dir(a) over N clients: a share has mean 1/N and variance
  # (1/N)(1 - 1/N) / (N a + 1): N = 4, a = 0.5: 0.25 and 0.0625. 40 classes of
  # 100 samples, 10 seeds: the variance of 1600 shares, to a tenth or so.
  labels = np.repeat(np.arange(40), 100)
  shares = [
    np.bincount(labels[p], minlength=40) / 100
    for seed in range(10)
    for p in dirichlet(labels, 4, seed, alpha=0.5)
  ]
  assert np.var(shares) == pytest.approx(0.0625, rel=0.15)


def test_the_error_has_the_nearest_result():
  # Two clients, two samples of one class: both have one, or one has none.
  # With alpha 1000 the proportions are near 1/2 and a first draw will do; with
  # alpha 1e-3 they are near 0 and 1, and no draw did.
  assert len(dirichlet(np.zeros(2), 2, 0, alpha=1e3)[0]) == 1
  with refused("data.partition.min_samples"):
    dirichlet(np.zeros(2), 2, 0, alpha=1e-9)
  with refused("data.partition.min_samples"):
    dirichlet(np.arange(80) % 4, 8, 0, alpha=0.5, min_samples=10)


def test_refuses():
  with refused("data.partition.min_samples"):
    dirichlet(LABELS, 50, 0, min_samples=41)


def test_a_client_with_the_mean_gets_no_further_class():
  labels = np.repeat(np.arange(10), 300)
  parts = dirichlet(labels, 20, 0, alpha=0.1, min_samples=40, capped=True)
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
  counts = np.stack([np.bincount(labels[p], minlength=10) for p in parts])
  before = counts.cumsum(axis=1) - counts
  assert not counts[before > 3000 / 20 + 1].any()
  free = dirichlet(labels, 20, 0, alpha=0.1, min_samples=1)
  sizes = np.array([len(p) for p in parts])
  assert sizes.min() >= 40 and sizes.std() < np.std([len(p) for p in free])


def test_the_number_of_draws_is_fixed():
  with refused("data.partition.min_samples"):
    dirichlet(np.arange(50) % 5, 5, 0, alpha=0.1, min_samples=10)
