"""Match bits: components of a graph, and the labels that they reveal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attacked import KEY, messages, public, scores
from scipy.sparse import csgraph

from splitjax.evaluation.attacks.match_graph import components

pytestmark = pytest.mark.usefixtures("float64")


def test_components_are_those_of_scipy():
  rng = np.random.default_rng(5)
  a, b = rng.integers(0, 60, (2, 80))
  edge = rng.random(80) < 0.5
  graph = np.zeros((60, 60))
  graph[a[edge], b[edge]] = 1
  _, want = csgraph.connected_components(graph, directed=False)
  got = np.asarray(jax.jit(components, static_argnums=0)(60, a, b, edge))
  same = got[:, None] == got
  np.testing.assert_array_equal(same, want[:, None] == want)
  assert all(got[group] == group for group in got)


def paired(label, epochs, seed=0):
  """Match bits of random pairs, each sample twice in an epoch."""
  rng = np.random.default_rng(seed)
  count = len(label)
  sample = np.concatenate(
    [[rng.permutation(count), rng.permutation(count)] for _ in range(epochs)],
    axis=1,
  )
  pair = np.asarray(label)[sample]
  sent = {"up/match": jnp.asarray(pair[0] == pair[1])}
  return messages(sent, pair, sample=sample, size=count)


def test_match_bits_of_a_chain_are_named_by_one_sample_each():
  # Two chains of one label each, 0-1-2-3 and 4-5-6, and 7 apart.
  sample = np.array([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 5, 6, 7]])
  label = np.array([2, 2, 2, 2, 4, 4, 4, 2])
  pair = label[sample]
  sent = {"up/match": jnp.asarray(pair[0] == pair[1])}
  sent["up/match"] = sent["up/match"].at[3].set(False)  # 3-7 is lost
  seen = messages(sent, pair, sample=sample, size=8)
  got = scores("match_graph", seen, public())
  # 7 is alone and gets the most frequent class, which is right.
  assert got["accuracy"] == 1
  # Of six samples that do not name a component four are of class 2.
  assert got["majority"] == pytest.approx(4 / 6)
  assert got["joined"] == pytest.approx((4 * 4 / 5 + 1 / 5 + 3) / 8)


def test_more_epochs_join_more_until_all_is_known():
  label = np.random.default_rng(6).integers(0, 3, 90)
  each = [
    scores("match_graph", paired(label, epochs), public()) for epochs in (1, 8)
  ]
  assert each[0]["joined"] < 0.5
  assert each[1]["accuracy"] == each[1]["joined"] == 1


def test_two_classes_are_known_from_unequal_pairs_too():
  label = np.random.default_rng(7).integers(0, 2, 90) + 2
  one, two = (
    scores("match_graph", paired(label, 2), public(), two_classes=both)
    for both in (False, True)
  )
  assert two["accuracy"] == 1 > one["accuracy"] > one["majority"]


def test_random_bits_give_no_more_than_the_majority():
  label = np.random.default_rng(8).integers(0, 2, 200)
  seen = paired(label, 6)
  noise = jax.random.bernoulli(KEY, 0.5, (1200,))
  got = scores("match_graph", seen._replace(sent={"up/match": noise}), public())
  assert abs(got["accuracy"] - 0.5) < 0.08
