"""client_split: a client's own samples into train and test."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from splitjax.data import client_split

# Clients of 100, 7, 30 and 3 samples.
PARTS = np.split(np.arange(140) * 3, [100, 107, 137])


def sizes(pieces):
  return [[len(rows) for rows in piece] for piece in pieces]


def test_by_hand():
  # 7: cut after 5.25 -> 5; 30: after 22.5 -> 22 (even); 3: after 2.25 -> 2.
  assert sizes(client_split(PARTS, 0, (0.75, 0.25))) == [
    [75, 5, 22, 2],
    [25, 2, 8, 1],
  ]


def test_three_pieces_by_hand():
  # 7: cuts after 4.2 -> 4 and 5.6 -> 6; 30: 18 and 24; 3: after 1.8 -> 2 and
  # 2.4 -> 2, which leaves the middle piece nothing: the first cut moves to 1.
  assert sizes(client_split(PARTS, 0, (0.6, 0.2, 0.2))) == [
    [60, 4, 18, 1],
    [20, 2, 6, 1],
    [20, 1, 6, 1],
  ]


def test_every_piece_has_a_sample():
  for fractions, expected in (
    ((0.98, 0.01, 0.01), [2, 1, 1]),
    ((0.01, 0.98, 0.01), [1, 2, 1]),
    ((0.01, 0.01, 0.98), [1, 1, 2]),
    ((0.5, 0.01, 0.01, 0.48), [1, 1, 1, 1]),
  ):
    pieces = client_split([np.arange(4)], 0, fractions)
    assert [len(piece[0]) for piece in pieces] == expected


def test_the_split_is_random():
  # A piece is no run of the rows, and every row is in the test piece at times.
  held = [client_split(PARTS, seed, (0.75, 0.25))[1] for seed in range(60)]
  assert set(np.concatenate([each[0] for each in held])) == set(PARTS[0])
  assert len({tuple(each[1]) for each in held}) > 10
  assert np.ptp(held[0][0]) > 3 * 40


def test_the_stream_is_not_that_of_another_draw():
  # shift.id_ood_sets spawns from the bare seed; equal sizes must not give
  # equal orders.
  stream = np.random.SeedSequence(0).spawn(1)[0]
  order = np.random.default_rng(stream).permutation(40)
  _, test = client_split([np.arange(40)], 0, (0.75, 0.25))
  assert set(order[30:]) != set(test[0])


def test_refuses_fractions():
  for fractions in ((0.75, 0.2), (1.0, 0.0), (float("nan"), 0.5), ()):
    with refused("fractions"):
      client_split(PARTS, 0, fractions)


def test_refuses_a_client_with_too_little():
  with refused("num_clients = 2: client 1 has 2"):
    client_split([np.arange(9), np.arange(9, 11)], 0, (0.6, 0.2, 0.2))


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
  assert len(pieces) == len(fractions)
  alone = client_split(parts[:1], seed, fractions)
  for n, own in enumerate(parts):
    mine = [piece[n] for piece in pieces]
    np.testing.assert_array_equal(np.sort(np.concatenate(mine)), own)
    for part, share in zip(mine, fractions, strict=True):
      assert len(part) > 0 and (np.diff(part) > 0).all()
      if min(fractions) * len(own) >= 1:
        assert abs(len(part) - share * len(own)) <= 1 + 1e-6
  for piece, first in zip(pieces, alone, strict=True):
    np.testing.assert_array_equal(piece[0], first[0])


def test_each_client_has_a_stream_of_its_own():
  same = [np.arange(40)] * 3
  _, test = client_split(same, 0, (0.75, 0.25))
  assert len({tuple(rows) for rows in test}) == 3


def test_noise_in_the_sum_is_no_mistake():
  client_split(PARTS, 0, (0.6, 0.2, 1 - 0.6 - 0.2))
  client_split(PARTS, 0, (1 / 3, 1 / 3, 1 / 3))
