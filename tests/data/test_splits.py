"""A client's samples split into training, test and validation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from splitjax.data import client_split

# Clients of 100, 7, 30 and 3 samples.
PARTS = np.split(np.arange(140) * 3, [100, 107, 137])


@pytest.mark.parametrize(
  "fractions, expected",
  [
    # 7: cut after 5.25 -> 5; 30: after 22.5 -> 22 (even); 3: after 2.25 -> 2.
    ((0.75, 0.25), [[75, 5, 22, 2], [25, 2, 8, 1]]),
    # 7: cuts after 4.2 -> 4 and 5.6 -> 6; 30: 18 and 24; 3: after 1.8 -> 2 and
    # 2.4 -> 2, which leaves the middle piece nothing: the first cut moves to 1.
    ((0.6, 0.2, 0.2), [[60, 4, 18, 1], [20, 2, 6, 1], [20, 1, 6, 1]]),
    # Noise in the sum is no mistake.
    ((0.6, 0.2, 1 - 0.6 - 0.2), [[60, 4, 18, 1], [20, 2, 6, 1], [20, 1, 6, 1]]),
    # Every piece has a sample.
    ((0.01, 0.98, 0.01), [[1, 1, 1, 1], [98, 5, 28, 1], [1, 1, 1, 1]]),
  ],
)
def test_by_hand(fractions, expected):
  pieces = client_split(PARTS, 0, fractions)
  assert [[*map(len, piece)] for piece in pieces] == expected


def test_the_split_is_random():
  # A piece is no run of the rows; every row is in the test piece at times.
  held = [client_split(PARTS, seed, (0.75, 0.25))[1] for seed in range(60)]
  assert set(np.concatenate([rows[0] for rows in held])) == set(PARTS[0])
  assert len({tuple(rows[1]) for rows in held}) > 10
  assert np.ptp(held[0][0]) > 3 * 40
  # Clients draw apart; and no split is that of id_ood_sets, which spawns from
  # the bare seed.
  _, test = client_split([np.arange(40)] * 3, 0, (0.75, 0.25))
  assert len({tuple(rows) for rows in test}) == 3
  stream = np.random.SeedSequence(0).spawn(1)[0]
  order = np.random.default_rng(stream).permutation(40)
  assert set(order[30:]) != set(test[0])


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
  st.lists(st.integers(1, 60), min_size=1, max_size=12),
  st.lists(st.integers(1, 50), min_size=1, max_size=5),
  st.integers(0, 2**31 - 1),
)
def test_any_clients_and_fractions(sizes, weights, seed):
  ends = np.cumsum(sizes)
  rows = np.random.default_rng(seed).permutation(ends[-1])
  parts = [np.sort(part) for part in np.split(rows, ends[:-1])]
  fractions = tuple(np.array(weights) / sum(weights))
  if min(sizes) < len(weights):
    with refused("num_clients"):
      client_split(parts, seed, fractions)
    return
  pieces = client_split(parts, seed, fractions)
  alone = client_split(parts[:1], seed, fractions)
  for n, part in enumerate(parts):
    of_client = [piece[n] for piece in pieces]
    np.testing.assert_array_equal(np.sort(np.concatenate(of_client)), part)
    for rows, share in zip(of_client, fractions, strict=True):
      assert len(rows) > 0 and (np.diff(rows) > 0).all()
      if min(fractions) * len(part) >= 1:
        assert abs(len(rows) - share * len(part)) <= 1 + 1e-6
  # A client's split does not depend on the others.
  for piece, rows in zip(pieces, alone, strict=True):
    np.testing.assert_array_equal(piece[0], rows[0])
