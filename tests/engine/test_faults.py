"""Drawn faults, and the steps of a straggler."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax.engine.faults import (
  NO_FAULTS,
  Faults,
  draw_faults,
  truncated,
)

CLIENTS, ROUNDS = 20, 300
KEY = jax.random.key(5)


def drawn(faults, key=KEY, rounds=ROUNDS, seed=0):
  return draw_faults(faults, key, CLIENTS, rounds, seed)


ALL = Faults(dropout=0.1, straggler=0.3, straggler_share=0.25, server_down=0.2)


def test_each_fault_is_as_frequent_as_its_probability():
  found, n = drawn(ALL), CLIENTS * ROUNDS
  assert set(np.unique(found.share)) == {0.25, 1.0}
  for seen, p in ((found.dropped, 0.1), (found.share < 1, 0.3)):
    assert abs(seen.sum() - n * p) < 5 * math.sqrt(n * p * (1 - p))
    # Frequencies by client and by round are within chance.
    for axis, count in ((0, CLIENTS), (1, ROUNDS)):
      most = 6 * math.sqrt(count * p * (1 - p))
      assert np.abs(seen.sum(axis) - count * p).max() < most
  both = found.dropped & (found.share < 1)
  assert abs(both.sum() - n * 0.03) < 5 * math.sqrt(n * 0.03)


def test_a_draw_depends_on_key_round_and_client_alone():
  found = drawn(ALL)
  alone = drawn(Faults(dropout=0.1))
  np.testing.assert_array_equal(alone.dropped, found.dropped)
  assert alone.share is None and alone.server_down is None
  short = drawn(ALL, rounds=7)
  np.testing.assert_array_equal(short.share, found.share[:, :7])
  other = drawn(ALL, key=jax.random.key(6))
  assert (other.dropped != found.dropped).any()


@pytest.mark.parametrize(
  ("share", "count"), [(0.5, 12), (0.3, 8), (0.99, 25), (0.01, 0)]
)
def test_the_server_is_away_in_a_share_of_the_rounds(share, count):
  """Exactly round(p R) rounds of 25, for all clients, by the seed."""
  faults = Faults(server_down=share)
  one, same, other = (
    drawn(faults, rounds=25, seed=seed).server_down for seed in (0, 0, 1)
  )
  assert one.sum(axis=1).tolist() == [count] * CLIENTS
  assert (one == one[:1]).all() and (one == same).all()
  assert (one != other).any() == (0 < count < 25)


def test_certain_and_impossible_faults():
  found = drawn(Faults(dropout=1.0, server_down=1.0))
  assert found.dropped.all() and found.server_down.all() and found.share is None
  assert drawn(Faults()) == NO_FAULTS


@pytest.mark.parametrize("total", [7, 99])
def test_steps_of_a_straggler(total):
  real = np.ones((total, 2), bool)
  for k in range(1, total + 1):
    for share, want in ((k / total, k), ((k - 0.5) / total, k)):
      got = truncated(jnp.asarray(real), jnp.float32(share))
      assert got.all(axis=1).tolist() == [i < want for i in range(total)]


def test_only_the_clients_own_steps_count():
  # Two epochs of three steps, of which the client has two; the last is ragged.
  real = jnp.array([[1, 1], [1, 0], [0, 0]] * 2, bool)
  for share, want in [
    (1.0, [2, 1, 0, 2, 1, 0]),
    (0.6, [2, 1, 0, 2, 0, 0]),
    (0.5, [2, 1, 0, 0, 0, 0]),
    (0.01, [2, 0, 0, 0, 0, 0]),
  ]:
    found = truncated(real, jnp.float32(share))
    assert found.sum(axis=1).tolist() == want
