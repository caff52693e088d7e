"""Service orders: every batch once, in the order of that name."""

import numpy as np
import pytest

from splitjax.fleet.orders import ORDERS, Queue

# Six clients; 0 and 3 have label 1, 1 and 4 label 0, 2 and 5 label 2.
LABEL = np.array([1, 0, 2, 1, 0, 2])
EVEN = Queue("cyclic", rounds=1, seed=0, steps=np.full(6, 2), label=LABEL)
RAGGED = EVEN._replace(steps=np.array([3, 1, 2, 3, 2, 1]))


@pytest.mark.parametrize("turn", [1, 2, 100])
@pytest.mark.parametrize("spec", [EVEN, RAGGED], ids=["even", "ragged"])
@pytest.mark.parametrize("name", ORDERS)
def test_every_batch_is_served_once(name, spec, turn):
  order = ORDERS[name](spec._replace(turn=turn), 3)
  assert order.dtype == np.int32
  np.testing.assert_array_equal(np.bincount(order, minlength=6), spec.steps)


def labels(order):
  return LABEL[order].tolist()


def test_a_cycle_goes_through_the_labels_one_after_another():
  order = ORDERS["cyclic"](EVEN, 0)
  once, again = order[:6], order[6:]
  np.testing.assert_array_equal(once, again)
  order_of_labels = labels(once)
  assert order_of_labels[::2] == order_of_labels[1::2] and sorted(
    order_of_labels[::2]
  ) == [0, 1, 2]
  assert all(a < b for a, b in once.reshape(3, 2))  # by number
  np.testing.assert_array_equal(ORDERS["cyclic"](EVEN, 7), order)


def test_the_order_of_labels_is_the_seeds():
  orders = {
    tuple(ORDERS["cyclic"](EVEN._replace(seed=s), 0)) for s in range(20)
  }
  assert len(orders) > 1


def test_every_other_cycle_runs_back():
  forth = ORDERS["cyclic"](EVEN, 0)[:6]
  order = ORDERS["cyclic_reverse"](EVEN, 0)
  np.testing.assert_array_equal(order, [*forth, *forth[::-1]])
  # Three cycles a round: the second round begins backwards.
  three = EVEN._replace(steps=np.full(6, 3))
  order = ORDERS["cyclic_reverse"](three, 1)
  np.testing.assert_array_equal(order, [*forth[::-1], *forth, *forth[::-1]])


def test_a_long_turn_is_served_in_a_row():
  order = ORDERS["cyclic"](EVEN._replace(turn=2), 0)
  assert (order[::2] == order[1::2]).all()
  order = ORDERS["random"](RAGGED._replace(turn=100), 0)
  assert (np.diff(order) != 0).sum() == 5  # one turn each


def test_clients_without_batches_left_are_skipped():
  order = ORDERS["cyclic"](RAGGED, 0)
  assert set(order[:6]) == set(range(6))
  assert set(order[6:10]) == {0, 2, 3, 4} and set(order[10:]) == {0, 3}


def test_random_clients_are_served_to_their_end():
  order = ORDERS["random_clients"](RAGGED, 0)
  assert (np.diff(order) != 0).sum() == 5
  assert ORDERS["random_clients"](RAGGED, 1).tolist() != order.tolist()


def test_random_turns_are_uniform_among_those_with_batches_left():
  first = [ORDERS["random"](RAGGED, r)[0] for r in range(3000)]
  counts = np.bincount(first, minlength=6)
  assert abs(counts - 500).max() < 5 * np.sqrt(500 * 5 / 6)
  # Any client may come last.
  last = [ORDERS["random"](EVEN._replace(seed=s), 0)[-1] for s in range(50)]
  assert len(set(last)) == 6
