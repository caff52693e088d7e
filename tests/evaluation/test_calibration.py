"""Thresholds from a client's own data: the choice by hand, proxies, samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from splitjax import data, evaluation
from splitjax.data.test_sets import Holdout
from splitjax.evaluation.exits import Exits

GRID = (0.3, 0.9, 1.5)


def exits(entropy, client, server):
  return Exits(
    np.array([entropy], np.float32),
    np.ones((1, len(entropy)), np.float32),
    np.array([client]),
    np.array([server]),
  )


# Four held-out samples of classes 0 0 1 1 and padding, which would offload. The
# exit is right on the first three, the server on the first, second and last.
LABEL = np.array([[0, 0, 1, 1, 0]])
REAL = np.array([[True, True, True, True, False]])
OWN = exits([0.1, 0.5, 1.0, 1.2, 9.0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0])
PROXY = exits([0.2, 0.7, 1.3, 2.0, 9.0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0])
# At 0.3 the first stays: 1 of 1, and of three that go up the server has two,
#   3/4; three of four proxies go up. At 0.9 two stay, both right, and the
#   server has one of the other two, 3/4; two proxies go up. At 1.5 all stay,
#   3/4; one proxy goes up. The server has 3/4 of the held-out samples.


def estimated(rho):
  return evaluation.estimate(OWN, LABEL, REAL, PROXY, GRID, rho)


def chosen(rho, own=OWN, proxy=PROXY, grid=GRID):
  swept = evaluation.estimate(own, LABEL, REAL, proxy, grid, rho)
  return evaluation.best(swept).threshold[0]


def test_the_estimate_by_hand():
  found = estimated(0.5)
  # (3/4 + 1/2 s 3/4) / (3/2) with s = 3/4, 2/4, 1/4
  want = [(0.75 + 0.5 * s * 0.75) / 1.5 for s in (0.75, 0.5, 0.25)]
  assert found.accuracy[:, 0, 0] == pytest.approx(want)
  # (3/4 + 1/2 3/4) / (3/2), (2/4 + 1/2 2/4) / (3/2), (0 + 1/2 1/4) / (3/2)
  assert found.offloaded[:, 0, 0] == pytest.approx([0.75, 0.5, 1 / 12])
  assert found.size.tolist() == [[[4]]] * 3


def test_the_choice_by_hand():
  assert chosen(0.5).tolist() == [0.3]
  # Without strange samples all are equal: the larger, which offloads less.
  assert chosen(0.0).tolist() == [1.5]
  assert chosen(0.0, grid=(1.5, 0.3, 0.9)).tolist() == [1.5]
  # An exit that knows all of its own: what it loses decides against s.
  sure = OWN._replace(client=LABEL)
  # own: 3/4, 3/4, 1; at 0.2 the s of 3/4, 2/4, 1/4 weigh 0.15 each
  assert chosen(0.2, sure).tolist() == [1.5]
  assert chosen(2.0, sure).tolist() == [0.3]


def test_a_server_that_is_always_wrong_gets_nothing():
  wrong = OWN._replace(server=np.full_like(LABEL, 5))
  assert chosen(2.0, wrong).tolist() == [1.5]


def test_what_a_proxy_is_taken_for_does_not_matter():
  other = PROXY._replace(client=PROXY.client + 1, server=PROXY.server + 3)
  np.testing.assert_equal(
    estimated(0.5), evaluation.estimate(OWN, LABEL, REAL, other, GRID, 0.5)
  )
  # One of NaN entropy, of a network that diverged, goes up.
  lost = PROXY._replace(entropy=np.full_like(PROXY.entropy, np.nan))
  found = evaluation.estimate(OWN, LABEL, REAL, lost, GRID, 1.0)
  assert found.accuracy[:, 0, 0] == pytest.approx([0.75] * 3)


def test_clients_choose_for_themselves():
  two = [
    jax.tree.map(lambda *x: np.concatenate(x), *pair)
    for pair in ((OWN, OWN._replace(client=LABEL)), (PROXY, PROXY))
  ]
  both = np.tile(LABEL, (2, 1)), np.tile(REAL, (2, 1))
  swept = evaluation.estimate(two[0], *both, two[1], GRID, 0.2)
  assert evaluation.best(swept).threshold.tolist() == [[0.3, 1.5]]


PARTS = [np.arange(0, 20), np.arange(20, 27), np.arange(30, 32)]
CLASSES = np.array([0, 1] * 10 + [2] * 20)


def test_held_out_samples_are_a_share_of_each_clients():
  kept, back = data.hold_out(PARTS, 3, 0.25)
  assert [len(rows) for rows in back] == [5, 2, 1]
  for part, *both in zip(PARTS, kept, back, strict=True):
    np.testing.assert_array_equal(np.sort(np.concatenate(both)), part)
  other = data.hold_out(PARTS, 4, 0.25)[1]
  assert any(a.tolist() != b.tolist() for a, b in zip(back, other, strict=True))
  with refused("num_clients"):
    data.hold_out([np.array([4])], 0, 0.5)


def test_held_out_samples_are_arranged_by_client():
  back = data.hold_out(PARTS, 3, 0.5)[1]
  table = data.holdout(CLASSES, back, 3)
  assert table.rows.shape == (3, 10) and table.rows.dtype == np.int32
  for n, own in enumerate(back):
    real = table.real[n]
    np.testing.assert_array_equal(table.rows[n, real], own)
    np.testing.assert_array_equal(table.label[n, real], CLASSES[own])
    assert table.draw[n, real].min() >= 0
  again = data.holdout(CLASSES, back, 3)
  np.testing.assert_equal(table, again)
  # A client's draws do not depend on how many others there are.
  alone = data.holdout(CLASSES, back[:1], 3)
  np.testing.assert_array_equal(alone.draw[0, :10], table.draw[0])


def test_patches_are_all_there_in_another_order():
  rng = np.random.default_rng(0)
  image = jnp.asarray(rng.integers(0, 256, (6, 9, 8, 3)), jnp.uint8)
  table = Holdout(np.array([[2, 2]]), np.zeros((1, 2)), np.array([[1, 2]]))
  made = evaluation.aside(image, table)
  assert made.rows.tolist() == [[0, 1, 2, 3]]
  shown = np.asarray(made.image)
  assert shown.shape == (4, 9, 8, 3) and shown.dtype == np.uint8
  own, made = shown[:2], shown[2:]
  np.testing.assert_array_equal(own, image[jnp.array([2, 2])])

  def cut(x):  # 4 x 4 patches of 2 x 2, the ninth line apart
    places = np.ndindex(4, 4)
    return [
      x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].tobytes() for i, j in places
    ]

  whole = cut(own[0])
  for each in made:
    assert sorted(cut(each)) == sorted(whole) and cut(each) != whole
    np.testing.assert_array_equal(each[8], own[0, 8])
  assert (made[0] != made[1]).any()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 1)])
def test_pictures_of_any_size_have_proxies(shape):
  image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
  made = jax.jit(evaluation.patches)(image, jax.random.key(0))
  assert made.shape == shape and made.dtype == jnp.uint8
