"""The entropy gate and calibrated thresholds, worked by hand.

label      0     1     2
entropy    0.1   0.5   0.5
client     0     0     2     right, wrong, right
server     1     1     1     wrong, right, wrong
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from splitjax import evaluation, losses
from splitjax.data.test_sets import Holdout
from splitjax.evaluation import Answered, Exits, Outputs


def exits_of(entropy, client, server):
  """Exits of rows of numbers, one for each client."""
  entropy = np.atleast_2d(np.asarray(entropy, np.float32))
  return Exits(
    entropy=entropy,
    confidence=np.ones_like(entropy),
    client=np.atleast_2d(client),
    server=np.atleast_2d(server),
  )


ALL = np.ones((1, 1, 3), bool)
ONE = Answered(
  exits_of([0.1, 0.5, 0.5], [0, 0, 2], [1, 1, 1]), np.array([0, 1, 2]), ALL
)


def random_world(clients=4, count=60):
  rng = np.random.default_rng(0)
  shape = (clients, count)
  client, server = rng.integers(0, 3, (2, *shape))
  exits = exits_of(rng.uniform(0, 2.3, shape), client, server)
  samples = rng.random((2, *shape)) < 0.5
  return Answered(exits, rng.integers(0, 3, count), samples)


DIVERGED = ONE.exits._replace(entropy=np.full((1, 3), np.nan, np.float32))


@pytest.mark.parametrize(
  ("answered", "threshold", "accuracy", "offloaded"),
  [
    (ONE, 0.0, 1 / 3, 1),  # all go up, only sample 1 is right
    (ONE, 0.3, 2 / 3, 2 / 3),  # sample 0 stays and is right, 1 goes up, too
    (ONE, 0.5, 2 / 3, 2 / 3),  # the gate is strict: E < e_n stays
    (ONE, math.inf, 2 / 3, 0),  # all stay, 0 and 2 are right
    (ONE, math.nan, 1 / 3, 1),
    (ONE._replace(exits=DIVERGED), math.inf, 1 / 3, 1),
    # A side that answers alone answers whatever the threshold is.
    (ONE._replace(sides=("server",)), math.inf, 1 / 3, 1),
    (ONE._replace(sides=("client",)), 0.0, 2 / 3, 0),
  ],
)
def test_thresholds_by_hand(answered, threshold, accuracy, offloaded):
  got = evaluation.score(answered, threshold)
  assert got.accuracy[0, 0] == pytest.approx(accuracy)
  assert got.offloaded[0, 0] == pytest.approx(offloaded)
  assert got.size.tolist() == [[3]]


# log 2 / log 10 = 0.30103, log 1000 / log 10 = 3
@pytest.mark.parametrize(("classes", "share"), [(2, 0.30103), (1000, 3)])
def test_the_ends_of_the_default_grid_ask_always_and_never(classes, share):
  grid = evaluation.default_grid(classes)
  np.testing.assert_allclose(grid, share * np.array(evaluation.GRID), 1e-5)
  with refused("classes"):
    evaluation.default_grid(1)
  # As the network gives them: a sure exit, whose entropy is 0 to the bit, a
  # uniform one, log C as float32 rounds it, and random ones of every sureness.
  draw = np.random.default_rng(classes).normal(size=(200, classes))
  scale = np.geomspace(1e-6, 1e4, 200)[:, None]
  sure = 1e4 * np.eye(classes)[:1]
  logits = np.concatenate([sure, 0 * sure, scale * draw]).astype(np.float32)
  entropy = np.asarray(losses.entropy(logits))
  assert entropy[0] == 0 and entropy[1] == pytest.approx(math.log(classes))
  entropy = np.append(entropy, np.float32([-0.0, 1e-45]))
  rng = np.random.default_rng(0)
  client, server, labels = rng.integers(0, classes, (3, len(entropy)))
  samples = np.ones((1, 1, len(entropy)), bool)
  answered = Answered(exits_of(entropy, client, server), labels, samples)
  got = evaluation.sweep(answered, grid)
  assert got.offloaded[0] == 1 and got.offloaded[-1] == 0
  oracle = evaluation.best(got).accuracy
  for end, side in ((0, "server"), (-1, "client")):
    alone = evaluation.score(answered._replace(sides=(side,)), math.nan)
    assert got.accuracy[end] == alone.accuracy <= oracle


def test_sweep_equals_a_double_loop():
  answered = random_world()
  exits, labels, samples, _ = answered
  grid = [0.2, 1.0, 2.0]
  got = evaluation.sweep(answered, grid)
  for e, threshold in enumerate(grid):
    for r, n in np.ndindex(2, 4):
      right = sent = 0
      rows = np.flatnonzero(samples[r, n])
      for m in rows:
        up = not exits.entropy[n, m] < threshold
        answer = (exits.server if up else exits.client)[n, m]
        right += answer == labels[m]
        sent += up
      assert got.accuracy[e, r, n] == pytest.approx(right / len(rows))
      assert got.offloaded[e, r, n] == pytest.approx(sent / len(rows))


def test_oracle_chooses_per_client_and_rho():
  # Accuracy 1/3 at 0, 2/3 at 0.3 and at 0.9: the larger, which offloads less.
  best = evaluation.best(evaluation.sweep(ONE, [0.9, 0.0, 0.3]))
  assert best.threshold[0, 0] == 0.9 and best.offloaded[0, 0] == 0
  assert best.accuracy[0, 0] == pytest.approx(2 / 3)
  answered = random_world()
  got = evaluation.sweep(answered, (0.3, 0.9, 1.7))
  best = evaluation.best(got)
  np.testing.assert_array_equal(best.accuracy, got.accuracy.max(axis=0))
  again = evaluation.score(answered, best.threshold)
  np.testing.assert_array_equal(again.accuracy, best.accuracy)
  np.testing.assert_array_equal(again.offloaded, best.offloaded)
  assert len(set(best.threshold.ravel())) > 1


def test_a_client_without_samples_is_nan_and_not_chosen():
  samples = np.concatenate([ALL, np.zeros_like(ALL)])
  got = evaluation.sweep(ONE._replace(samples=samples), [0.3, 0.9])
  best = evaluation.best(got)
  assert best.size[:, 0].tolist() == [3, 0]
  for values in (got.accuracy[0], got.offloaded[0], *best[:3]):
    assert np.isnan(values[:, 0]).tolist() == [False, True]


# Thresholds without test labels.

GRID = (0.3, 0.9, 1.5)
# Four held-out samples of classes 0 0 1 1 and padding, which would offload. The
# exit is right on the first three, the server on the first, second and last.
LABEL = np.array([[0, 0, 1, 1, 0]])
SAMPLES = Holdout(np.array([[3, 4, 5, 6, -1]]), LABEL, np.zeros((1, 5)))
HELD = exits_of([0.1, 0.5, 1.0, 1.2, 9.0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0])
PROXY = exits_of([0.2, 0.7, 1.3, 2.0, 9.0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0])
# At 0.3 the first stays: 1 of 1, and of three that go up the server has two,
#   3/4; three of four proxies go up. At 0.9 two stay, both right, and the
#   server has one of the other two, 3/4; two proxies go up. At 1.5 all stay,
#   3/4; one proxy goes up. The server has 3/4 of the held-out samples.


def estimated(rho, held=HELD, proxy=PROXY, grid=GRID):
  return evaluation.estimate(Outputs(held, held, proxy), SAMPLES, grid, rho)


def test_the_estimate_by_hand():
  got = estimated(0.5)
  # (3/4 + 1/2 s 3/4) / (3/2) with s = 3/4, 2/4, 1/4
  want = [(0.75 + 0.5 * s * 0.75) / 1.5 for s in (0.75, 0.5, 0.25)]
  assert got.accuracy[:, 0, 0] == pytest.approx(want)
  # (3/4 + 1/2 3/4) / (3/2), (2/4 + 1/2 2/4) / (3/2), (0 + 1/2 1/4) / (3/2)
  assert got.offloaded[:, 0, 0] == pytest.approx([0.75, 0.5, 1 / 12])
  assert got.size.tolist() == [[[4]]] * 3
  # What a proxy is taken for does not matter, and of NaN entropy it goes up.
  other = PROXY._replace(client=PROXY.client + 1, server=PROXY.server + 3)
  np.testing.assert_equal(got, estimated(0.5, proxy=other))
  lost = PROXY._replace(entropy=np.full_like(PROXY.entropy, np.nan))
  accuracy = estimated(1.0, proxy=lost).accuracy[:, 0, 0]
  assert accuracy == pytest.approx([0.75] * 3)


RIGHT = HELD._replace(client=LABEL)  # an exit that knows all of its own
WRONG = HELD._replace(server=np.full_like(LABEL, 5))


@pytest.mark.parametrize(
  ("rho", "held", "grid", "want"),
  [
    (0.5, HELD, GRID, 0.3),
    # Without strange samples all are equal: the larger, which offloads less.
    (0.0, HELD, GRID, 1.5),
    (0.0, HELD, (1.5, 0.3, 0.9), 1.5),
    # What a sure exit loses decides against s: own 3/4, 3/4, 1; at 0.2 the s of
    # 3/4, 2/4, 1/4 weigh 0.15 each.
    (0.2, RIGHT, GRID, 1.5),
    (2.0, RIGHT, GRID, 0.3),
    (2.0, WRONG, GRID, 1.5),  # a server that is always wrong gets nothing
  ],
)
def test_the_choice_by_hand(rho, held, grid, want):
  chosen = evaluation.best(estimated(rho, held, grid=grid))
  assert chosen.threshold.tolist() == [[want]]


def test_clients_choose_for_themselves():
  held, proxy, samples = (
    jax.tree.map(lambda *x: np.concatenate(x), *pair)
    for pair in ((HELD, RIGHT), (PROXY, PROXY), (SAMPLES, SAMPLES))
  )
  swept = evaluation.estimate(Outputs(held, held, proxy), samples, GRID, 0.2)
  assert evaluation.best(swept).threshold.tolist() == [[0.3, 1.5]]


def test_proxies_have_all_patches_in_another_order():
  rng = np.random.default_rng(0)
  image = jnp.asarray(rng.integers(0, 256, (6, 9, 8, 3)), jnp.uint8)
  table = Holdout(np.array([[2, 2]]), np.zeros((1, 2)), np.array([[1, 2]]))
  calibration = evaluation.calibration(image, table)
  assert calibration.rows.tolist() == [[0, 1, 2, 3]]
  shown = np.asarray(calibration.image)
  assert shown.shape == (4, 9, 8, 3) and shown.dtype == np.uint8
  np.testing.assert_array_equal(shown[:2], image[jnp.array([2, 2])])

  def cut(x):  # 4 x 4 patches of 2 x 2, the ninth line apart
    return [
      x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].tobytes()
      for i, j in np.ndindex(4, 4)
    ]

  patches = cut(shown[0])
  for proxy in shown[2:]:
    assert sorted(cut(proxy)) == sorted(patches) and cut(proxy) != patches
    np.testing.assert_array_equal(proxy[8], shown[0, 8])
  assert (shown[2] != shown[3]).any()

  # Pictures smaller than the patches have proxies, too.
  small = evaluation.patches(image[0, :3, :1], jax.random.key(0))
  assert small.shape == (3, 1, 3) and small.dtype == jnp.uint8
