"""The Dirichlet partition: skew, groups, and draws that come to an end."""

import importlib

import numpy as np
import pytest

from splitjax.data.dirichlet import dirichlet
from splitjax.types import UserError

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


def test_groups_hold_random_shares_in_proportion():
  # 25 clients in groups of 10, 10 and 5: 800, 800 and 400 of the samples,
  # however skewed the clients are.
  parts = dirichlet(LABELS, 25, 0, alpha=0.1, groups_of=10)
  groups = [np.concatenate(parts[i : i + 10]) for i in (0, 10, 20)]
  assert list(map(len, groups)) == [800, 800, 400]
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(2000))
  for rows in groups:
    share = np.bincount(LABELS[rows]) / len(rows)
    assert 0.06 < share.min() and share.max() < 0.14  # 0.1, give or take 3 sd
    assert rows.min() < 50 and rows.max() > 1950
  skew = [np.bincount(LABELS[p]).max() / len(p) for p in parts]
  assert np.mean(skew) > 0.4


def test_one_group_is_no_group():
  for size in (20, 50):
    parts = dirichlet(LABELS, 20, 0, groups_of=size)
    for a, b in zip(parts, dirichlet(LABELS, 20, 0), strict=True):
      np.testing.assert_array_equal(a, b)


def test_the_smallest_group_says_how_many_samples_there_can_be():
  # 39 samples, groups of 3 and one of 2: shares of 6 6 6 5 6 6 4.
  labels = np.zeros(39, int)
  with pytest.raises(UserError, match="min_samples = 2: must be at most 1:"):
    dirichlet(labels, 20, 0, alpha=1e3, min_samples=2, groups_of=3)
  assert len(dirichlet(labels, 20, 0, alpha=1e3, groups_of=3)) == 20


@pytest.mark.parametrize(
  "clients, classes, options, draws",
  [
    # A tenth of 15 million random numbers: 1000 * 100 and 1000 more per draw.
    (1000, 100, {}, 14),
    # Per group 10 * 100 + 1000, for all groups together.
    (1000, 100, dict(groups_of=10), 750),
  ],
)
def test_the_work_of_all_draws_is_limited(
  clients, classes, options, draws, monkeypatch
):
  module = importlib.import_module("splitjax.data.dirichlet")
  monkeypatch.setattr(module, "_WORK", module._WORK // 10)
  labels = np.arange(60000) % classes
  with pytest.raises(UserError) as caught:
    dirichlet(labels, clients, 0, alpha=0.1, min_samples=58, **options)
  message = str(caught.value)
  assert message.startswith(
    f"data.partition.min_samples = 58: in {draws} draws of Dirichlet(0.1) over "
  )
  size = options.get("groups_of", clients)
  assert f"over {size} clients and {60 * size} samples the" in message
  assert "lower min_samples or num_clients, or raise" in message


def test_the_error_has_the_nearest_result():
  # Two clients, two samples of one class: both have one, or one has none.
  # With alpha 1000 the proportions are near 1/2 and a first draw will do; with
  # alpha 1e-3 they are near 0 and 1, and no draw did.
  assert len(dirichlet(np.zeros(2), 2, 0, alpha=1e3)[0]) == 1
  with pytest.raises(UserError, match="client had at most 0; lower"):
    dirichlet(np.zeros(2), 2, 0, alpha=1e-9)
  with pytest.raises(UserError, match="client had at most [1-9]"):
    dirichlet(np.arange(80) % 4, 8, 0, alpha=0.5, min_samples=10)


def test_refuses():
  with pytest.raises(UserError, match="min_samples = 41: .* most 40: 2000 sam"):
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


def test_a_group_has_a_draw_of_its_own():
  # One class: the proportions of a single draw, were it shared, would repeat.
  parts = dirichlet(np.zeros(3000, int), 12, 0, alpha=1.0, groups_of=4)
  sizes = np.reshape([len(p) for p in parts], (3, 4))
  assert (sizes.sum(axis=1) == 1000).all()
  assert (sizes[0] != sizes[1]).any() and (sizes[1] != sizes[2]).any()


def test_the_number_of_cheap_draws_is_fixed():
  with pytest.raises(UserError, match="in 2000 draws of .* 5 clients"):
    dirichlet(np.arange(50) % 5, 5, 0, alpha=0.1, min_samples=10)
