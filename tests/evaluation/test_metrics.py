"""Latency, intervals and means, against numbers worked by hand."""

import math

import numpy as np
import pytest

from splitjax import evaluation, experiment

BOTH = ("client", "server")
# two clients: a shallow one at power 10, a deep one at power 40
SIZES = evaluation.Sizes(
  prefix=np.array([200, 800]),
  exit=np.array([100, 200]),
  server=np.array([5000, 4000]),
  channels=np.array([8, 16]),
)
RATES = evaluation.Resources(np.array([10.0, 40.0]))
SAMPLES = np.array([20, 10])
OFFLOADED = np.array([0.5, 0.25])


def whole(where, sizes, rates, samples):
  """Latency of the whole network there; q = 784."""
  each, answers = evaluation.deployments(sizes, 784)[where]
  return evaluation.round_trip_latency(each, rates, samples, 1.0, answers)


@pytest.mark.parametrize(
  ("answers", "want"),
  [
    # client 0: 20 * (300 / 10 + 0.5  * (8  + 5000 / 100)) = 20 * 59 = 1180
    # client 1: 10 * (1000 / 40 + 0.25 * (16 + 4000 / 100)) = 10 * 39 = 390
    (BOTH, [1180, 390]),
    # Without an exit: 20 * (200 / 10 + 58) and 10 * (20 + 56).
    (("server",), [1560, 760]),
    # The exit alone: 20 * 300 / 10 and 10 * 1000 / 40.
    (("client",), [600, 250]),
  ],
)
def test_latency_by_hand(answers, want):
  got = evaluation.round_trip_latency(SIZES, RATES, SAMPLES, OFFLOADED, answers)
  np.testing.assert_allclose(got, want)


def test_latency_of_the_whole_network():
  # SplitGP eq. 28: 20 * 5200 / 10 = 10400; 10 * 4800 / 40 = 1200
  got = whole("client", SIZES, RATES, SAMPLES)
  np.testing.assert_allclose(got, [10400, 1200])
  # SplitGP eq. 29, q = 784: 20 * (784 + 52) = 16720; 10 * (784 + 48) = 8320
  got = whole("server", SIZES, RATES, SAMPLES)
  np.testing.assert_allclose(got, [16720, 8320])


def test_the_columns_of_table_1_by_hand():
  # storage 200 + 100 and 800 + 200; computation times 20 and 10 samples;
  # communication 20 * 0.5 * 8 = 80 and 10 * 0.25 * 16 = 40
  got = evaluation.needs(SIZES, SAMPLES, OFFLOADED, BOTH)
  assert [x.tolist() for x in got] == [[300, 1000], [6000, 10_000], [80, 40]]
  for where, want in {
    "client": [[5200, 4800], [104_000, 48_000], [0, 0]],
    "server": [[0, 0], [0, 0], [20 * 784, 10 * 784]],
  }.items():
    sizes, answers = evaluation.deployments(SIZES, 784)[where]
    got = evaluation.needs(sizes, SAMPLES, OFFLOADED, answers)
    assert [x.tolist() for x in got] == want


def test_latency_takes_its_rates():
  # client 0: 20 * (30 + 0.5 * (8 / 2 + 5000 / 50)) = 20 * 82 = 1640
  rates = RATES._replace(server=50.0, bandwidth=2.0)
  got = evaluation.round_trip_latency(SIZES, rates, SAMPLES, OFFLOADED, BOTH)
  assert got[0] == pytest.approx(1640)


def test_latency_keeps_leading_axes_and_empty_clients_cost_nothing():
  samples = np.array([[20, 10], [20, 0]])
  offloaded = np.array([[0.5, 0.25], [0.5, np.nan]])
  got = evaluation.round_trip_latency(SIZES, RATES, samples, offloaded, BOTH)
  np.testing.assert_allclose(got, [[1180, 390], [1180, 0]])


def test_splitfed_of_the_paper():
  # VGG-11 cut behind 2, 3 and 4 convolutions of 50 clients in equal thirds,
  # powers 10, 20, 40, 2000 test samples each: HARMONY's Table 2 has
  # 104.80e8 at rho = 0 and 1.8 times that, 188.63e8, at rho = 0.8.
  sizes = evaluation.Sizes(
    prefix=np.array([75_648, 370_816, 960_896]),
    exit=np.zeros(3),
    server=np.array([9_155_100, 8_860_000, 8_268_800]),
    channels=np.array([128, 256, 256]),
  )
  rates = evaluation.Resources(np.array([10.0, 20.0, 40.0]))
  samples = np.array([[2000] * 3, [3600] * 3])
  each = evaluation.round_trip_latency(
    sizes, rates, samples, np.ones(3), ("server",)
  )
  total = each.mean(axis=-1) * 50
  np.testing.assert_allclose(total, [104.80e8, 188.63e8], rtol=0.01)


def test_mean_over_clients_leaves_out_the_empty():
  values = np.array([[0.5, 1.0, np.nan], [np.nan] * 3])
  got = evaluation.over_clients(values)
  assert got[0] == 0.75 and math.isnan(got[1])


def test_spread_over_clients():
  # 11 clients with samples: the worst tenth are two, 0.1 and 0.2.
  values = [0.9, 0.2, np.nan, 0.1, *[0.6] * 8]
  known = [x for x in values if not np.isnan(x)]
  got = evaluation.spread(np.array([values, [np.nan] * 12]))
  assert got["worst_tenth"] == pytest.approx([0.15, np.nan], nan_ok=True)
  assert got["std"] == pytest.approx([np.std(known), np.nan], nan_ok=True)


def test_held_elsewhere_by_hand():
  # client 0 lacks 2, 3, 4: 2 is held by client 1, the others by nobody;
  # client 1 lacks 0, 3, 4: 0 is held; client 2 lacks 0, 2, 3, 4: 0 and 2
  counts = np.array([[3, 1, 0, 0, 0], [0, 2, 5, 0, 0], [0, 9, 0, 0, 0]])
  assert experiment.held_elsewhere(counts).tolist() == [1, 1, 2]


def test_a_mean_over_samples_counts_each_sample_once():
  values = np.array([[0.5, 1.0, np.nan], [np.nan, np.nan, np.nan]])
  sizes = np.array([[4, 1, 0], [0, 0, 0]])
  got = evaluation.over_samples(values, sizes)
  np.testing.assert_allclose(got, [3 / 5, np.nan])
