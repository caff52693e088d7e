"""The entropy gate, worked by hand on one client and three samples.

label      0     1     2
entropy    0.1   0.5   0.5
client     0     0     2     right, wrong, right
server     1     1     1     wrong, right, wrong
"""

import math

import numpy as np
import pytest
from refusals import refused

from splitjax import evaluation, losses
from splitjax.evaluation.exits import Exits

BOTH = ("client", "server")
LABELS = np.array([0, 1, 2])
EXITS = Exits(
  entropy=np.array([[0.1, 0.5, 0.5]], np.float32),
  confidence=np.array([[0.9, 0.6, 0.6]], np.float32),
  client=np.array([[0, 0, 2]], np.int32),
  server=np.array([[1, 1, 1]], np.int32),
)
ALL = np.ones((1, 1, 3), bool)


def swept(thresholds, samples=ALL, answers=BOTH):
  return evaluation.sweep(EXITS, LABELS, samples, thresholds, answers)


def random_world(seed=0, clients=4, count=60):
  rng = np.random.default_rng(seed)
  shape = (clients, count)
  exits = Exits(
    entropy=rng.uniform(0, 2.3, shape).astype(np.float32),
    confidence=rng.uniform(0.1, 1, shape).astype(np.float32),
    client=rng.integers(0, 3, shape).astype(np.int32),
    server=rng.integers(0, 3, shape).astype(np.int32),
  )
  samples = rng.random((2, *shape)) < 0.5
  return exits, rng.integers(0, 3, count), samples


def test_sweep_by_hand():
  # 0: all go up, only sample 1 is right. 0.3: sample 0 stays and is right,
  # samples 1 and 2 go up, right and wrong. inf: all stay, 0 and 2 are right.
  got = swept([0.0, 0.3, math.inf])
  np.testing.assert_allclose(got.accuracy[:, 0, 0], [1 / 3, 2 / 3, 2 / 3])
  np.testing.assert_allclose(got.offloaded[:, 0, 0], [1, 2 / 3, 0])
  assert got.size.tolist() == [[[3]]] * 3


def test_the_gate_is_strict():
  # E < e_n stays; sample 1 and 2 have E = 0.5 exactly and must go up
  assert swept([0.5]).offloaded[0, 0, 0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("classes", [2, 1000])
def test_the_ends_of_the_default_grid_ask_always_and_never(classes):
  # As the network gives them: a sure exit, whose entropy is 0 to the bit, a
  # uniform one, log C as float32 rounds it, and random ones of every sureness.
  draw = np.random.default_rng(classes).normal(size=(200, classes))
  scale = np.geomspace(1e-6, 1e4, 200)[:, None]
  sure = 1e4 * np.eye(classes)[:1]
  logits = np.concatenate([sure, 0 * sure, scale * draw]).astype(np.float32)
  entropy = np.asarray(losses.entropy(logits))
  assert entropy[0] == 0 and entropy[1] == pytest.approx(math.log(classes))
  entropy = np.append(entropy, np.float32([-0.0, 1e-45]))
  count = len(entropy)
  rng = np.random.default_rng(0)
  client, server = rng.integers(0, classes, (2, 1, count), np.int32)
  exits = Exits(entropy[None], entropy[None], client, server)
  labels, every = rng.integers(0, classes, count), np.ones((1, 1, count), bool)
  grid = evaluation.default_grid(classes)
  got = evaluation.sweep(exits, labels, every, grid, BOTH)
  assert got.offloaded[0] == 1 and got.offloaded[-1] == 0
  oracle = evaluation.best(got).accuracy
  for end, who in ((0, "server"), (-1, "client")):
    alone = evaluation.score(exits, labels, every, math.nan, (who,)).accuracy
    assert got.accuracy[end] == alone <= oracle


def test_methods_with_one_answer_ignore_the_threshold():
  server = swept([0.0, math.inf], answers=("server",))
  np.testing.assert_allclose(server.accuracy, 1 / 3)
  np.testing.assert_allclose(server.offloaded, 1)
  client = swept([0.0, math.inf], answers=("client",))
  np.testing.assert_allclose(client.accuracy, 2 / 3)
  np.testing.assert_allclose(client.offloaded, 0)


def test_a_diverged_exit_offloads():
  exits = EXITS._replace(entropy=np.full((1, 3), np.nan, np.float32))
  got = evaluation.sweep(exits, LABELS, ALL, [math.inf], BOTH)
  assert got.offloaded[0, 0, 0] == 1


def test_sweep_equals_a_double_loop():
  exits, labels, samples = random_world()
  grid = [0.2, 1.0, 2.0]
  got = evaluation.sweep(exits, labels, samples, grid, BOTH)
  for e, threshold in enumerate(grid):
    for r, n in np.ndindex(2, 4):
      right, sent, count = 0, 0, 0
      for m in np.flatnonzero(samples[r, n]):
        up = not exits.entropy[n, m] < threshold
        answer = (exits.server if up else exits.client)[n, m]
        right, sent, count = (
          right + (answer == labels[m]),
          sent + up,
          count + 1,
        )
      assert got.accuracy[e, r, n] == pytest.approx(right / count)
      assert got.offloaded[e, r, n] == pytest.approx(sent / count)


def test_repeated_samples_count_repeatedly():
  # sample 1 drawn twice, sample 0 once: the server has 2 of 3 right
  samples = np.array([[[1, 2, 0]]])
  assert swept([0.0], samples).accuracy[0, 0, 0] == pytest.approx(2 / 3)


def test_oracle_takes_the_larger_of_equal_thresholds():
  # accuracy 1/3 at 0, 2/3 at 0.3 and at 0.9, where nothing is offloaded
  best = evaluation.best(swept([0.9, 0.0, 0.3]))
  assert best.threshold[0, 0] == 0.9
  assert best.accuracy[0, 0] == pytest.approx(2 / 3)
  assert best.offloaded[0, 0] == 0


def test_oracle_chooses_per_client_and_rho():
  exits, labels, samples = random_world()
  grid = (0.3, 0.9, 1.7)
  got = evaluation.sweep(exits, labels, samples, grid, BOTH)
  best = evaluation.best(got)
  np.testing.assert_array_equal(best.accuracy, got.accuracy.max(axis=0))
  again = evaluation.score(exits, labels, samples, best.threshold, BOTH)
  np.testing.assert_array_equal(again.accuracy, best.accuracy)
  np.testing.assert_array_equal(again.offloaded, best.offloaded)
  assert len(set(best.threshold.ravel())) > 1


def test_a_client_without_samples_is_nan_and_not_chosen():
  samples = np.concatenate([ALL, np.zeros_like(ALL)])
  got = swept([0.3, 0.9], samples)
  best = evaluation.best(got)
  assert best.size[:, 0].tolist() == [3, 0]
  for values in (got.accuracy[0], got.offloaded[0], *best[:3]):
    assert np.isnan(values[:, 0]).tolist() == [False, True]


def test_default_grid():
  assert evaluation.default_grid(10) == evaluation.GRID
  # log 100 / log 10 = 2
  doubled = [2 * threshold for threshold in evaluation.GRID]
  np.testing.assert_allclose(evaluation.default_grid(100), doubled)
  with refused("classes"):
    evaluation.default_grid(1)
