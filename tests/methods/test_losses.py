"""Losses against their formulas; where every method takes the task's from."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import Dropped
from marks import slow
from worlds import one_shard, world

from splitjax import losses, trees
from splitjax.data import Samples
from splitjax.methods import METHODS
from splitjax.methods.harmony import csa
from splitjax.methods.task_losses import make_loss

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

YES, NO = jnp.array([True]), jnp.array([False])
TOL = 1e-9


def row(*numbers):
  return jnp.array([numbers], float)


def csa_at(a, b, same, *, margin=1.0):
  """Value and both gradients for one real pair."""

  def loss(a, b):
    return csa(a, b, same, YES, margin)

  value, (da, db) = jax.value_and_grad(loss, (0, 1))(a, b)
  return float(value), np.asarray(da[0]), np.asarray(db[0])


def test_beyond_the_margin_nothing_pushes():
  # (0.6, 0.8) and (1, 0) are sqrt 0.8 = 0.894 apart.
  value, da, db = csa_at(row(3, 4), row(1, 0), NO, margin=0.89)
  assert value == 0 and not da.any() and not db.any()


@pytest.mark.parametrize("z", [(0.0, 0.0), (3.0, 4.0)])
def test_equal_embeddings_have_a_zero_gradient(z):
  value, da, db = csa_at(row(*z), row(*z), YES)
  assert value == 0 and not da.any() and not db.any()
  # Two classes at one point: the full 1/2 m^2, but no direction to prefer.
  value, da, db = csa_at(row(*z), row(*z), NO, margin=3.0)
  assert value == pytest.approx(4.5)
  assert not da.any() and not db.any()


def test_one_zero_embedding_has_a_finite_gradient():
  for same in (YES, NO):
    _, da, db = csa_at(row(0, 0), row(3, 4), same, margin=3.0)
    assert np.isfinite(da).all() and np.isfinite(db).all()


def test_normalised_embeddings_do_not_depend_on_length():
  # u = (0.6, 0.8), v = (1, 0): ||u - v||^2 = 0.16 + 0.64 = 0.8.
  value, da, db = csa_at(row(6, 8), row(5, 0), YES)
  assert value == pytest.approx(0.4)
  # 1/2 ||u - v||^2 = 1 - u.v: -(v - u (u.v)) / ||a|| with u.v = 0.6, ||a|| 10.
  np.testing.assert_allclose(da, [-0.064, 0.048], rtol=TOL)
  # -(u - v (u.v)) / ||b|| with ||b|| = 5.
  np.testing.assert_allclose(db, [0, -0.16], atol=TOL)
  long, *_ = csa_at(row(60, 80), row(0.5, 0), YES)
  assert long == pytest.approx(0.4)
  # Apart by sqrt 0.8: margin 1 leaves 1/2 (1 - sqrt 0.8)^2.
  value, *_ = csa_at(row(6, 8), row(5, 0), NO)
  assert value == pytest.approx(0.5 * (1 - np.sqrt(0.8)) ** 2, rel=TOL)


def test_csa_is_the_mean_over_real_pairs():
  a = jnp.array([[6.0, 8], [6, 8], [900, 0], [1, 1]])
  b = jnp.array([[5.0, 0], [5, 0], [0, 900], [1, 1]])
  same = jnp.array([True, False, True, True])
  real = jnp.array([True, True, False, True])

  def loss(a):
    return csa(a, b, same, real, 1.0)

  value, grad = jax.value_and_grad(loss)(a)
  short = 1 - np.sqrt(0.8)
  assert float(value) == pytest.approx((0.4 + short**2 / 2 + 0) / 3, rel=TOL)
  # A pair of two classes is pushed by short / d times as much.
  pulled = np.array([-0.064, 0.048])
  pushed = -short / np.sqrt(0.8) * pulled
  want = np.array([pulled, pushed, [0, 0], [0, 0]]) / 3
  np.testing.assert_allclose(grad, want, atol=TOL)


def test_masked_mean():
  x = jnp.array([1.0, 100.0, 3.0, jnp.nan])
  real = jnp.array([True, False, True, False])
  assert float(losses.masked_mean(x, real)) == 2
  grad = jax.grad(losses.masked_mean)(x, real)
  np.testing.assert_array_equal(grad, [0.5, 0, 0.5, 0])
  # Padding alone: 0 and no gradient, not 0 / 0.
  padding = jnp.zeros(4, bool)
  assert float(losses.masked_mean(x, padding)) == 0
  assert not jax.grad(losses.masked_mean)(x, padding).any()


def test_cross_entropy_of_half_precision_is_exact():
  """Also far beyond exp's range."""
  big = jnp.array([[1000.0, 0.0]], jnp.bfloat16)
  (loss,) = losses.each_cross_entropy(big, jnp.array([1]))
  assert float(loss) == 1000 and loss.dtype == jnp.float64


def test_entropy():
  p = np.array([[0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]])
  got = losses.entropy(jnp.asarray(np.log(p) + 5))
  np.testing.assert_allclose(got, -(p * np.log(p)).sum(1), rtol=TOL)
  assert float(got[0]) == pytest.approx(np.log(4))
  # A certain answer has entropy 0, not 0 * -inf.
  assert float(losses.entropy(jnp.array([1e4, 0.0, 0.0]))) == 0


C = 4
LOGITS = np.random.default_rng(0).normal(size=(6, C)) * 3
LABEL = np.array([0, 1, 2, 3, 3, 0])
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
OWN = P[np.arange(6), LABEL]


@pytest.mark.parametrize(
  ("name", "options", "share"),
  [
    ("cross_entropy", {}, 0.0),
    ("label_smoothing", {"smoothing": 0.2}, 0.2),
  ],
)
def test_a_loss_is_its_formula(name, options, share):
  loss = make_loss(name, C, options)
  want = -(1 - share) * np.log(OWN) - share * np.log(P).mean(axis=1)
  np.testing.assert_allclose(loss(LOGITS, LABEL), want, rtol=0, atol=1e-13)
  slope = jax.grad(lambda logits: loss(logits, LABEL).sum())(LOGITS)
  target = (1 - share) * np.eye(C)[LABEL] + share / C
  np.testing.assert_allclose(slope, P - target, rtol=0, atol=1e-13)


def dropped(net):
  """The network with dropout in all its parts, and a loss of its own."""
  parts = {
    "blocks": {k: Dropped(x) for k, x in net.blocks.items()},
    "exits": {k: Dropped(x) for k, x in net.exits.items()},
    "head": Dropped(net.head),
  }
  return dataclasses.replace(net, loss=counted, **parts)


calls = []


def counted(logits, label):
  """A loss that notes that it was called."""
  calls.append(logits.shape)
  return logits[:, 0] * 0.5


QUICK = "harmony", "hydra", "fedpac"
"""Of each kind of step; the others are slow tests."""


@pytest.mark.parametrize(
  "name", [*QUICK, *slow(*sorted(METHODS.keys() - {*QUICK}))]
)
def test_every_method_takes_the_networks_loss_and_keys(name, monkeypatch):
  """Traced only: who calls cross-entropy, or hands no key on, would fail."""

  def forbidden(*args):
    raise AssertionError("a method computes cross-entropy itself")

  trial = world(name, change=dropped)
  calls.clear()
  state = jax.eval_shape(trial.start, trial.method)
  monkeypatch.setattr(losses, "each_cross_entropy", forbidden)
  jax.eval_shape(trial.round, trial.method, state)
  assert calls

  def personalised(state, shards):
    """One client after its personalisation."""
    samples = Samples(one_shard(shards[0], 0), trial.plans[0])
    client, method = trees.take(state.clients[0], 0), trial.method
    return method.personalise(client, state.server, samples, state.key)

  jax.eval_shape(personalised, state, trial.shards)
