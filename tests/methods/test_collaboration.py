"""FedAMP, FedGH, FedPAC: their formulas in plain NumPy; what others share."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import toy_world as toys

from splitjax import methods, trees
from splitjax.methods import METHODS, Prototypes, head_weights
from splitjax.types import Half, Segment

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
C, D = toys.CLASSES, toys.WIDTHS[-1]


@pytest.mark.parametrize(
  ("sigma", "alpha_k", "factor"),
  [
    (60.0, 18.0, 1.0),
    (1e9, 1e9, 1.0),  # the weights of others add up to 2: divided by that
    (None, None, 1e-3),  # attends at any scale
  ],
)
def test_fedamp_is_a_double_loop(sigma, alpha_k, factor):
  clients = jax.tree.map(lambda x: factor * x, toys.stack(NET, 4))
  on = np.array([True, True, False, True])
  memory = jax.tree.map(lambda x: x + 7.0, clients)
  rule = methods.attention(sigma, alpha_k)
  got = jax.jit(rule.clients)(Half(clients, (), memory), on, None, None).memory
  w = [toys.flat(trees.take(clients.params, i)) for i in range(4)]
  pairs = [(i, j) for i in (0, 1, 3) for j in (0, 1, 3) if i != j]
  apart = {(i, j): np.sum((w[i] - w[j]) ** 2) for i, j in pairs}
  scale = np.mean(list(apart.values())) if sigma is None else sigma
  most = 1 / 3 if alpha_k is None else alpha_k / scale
  for i in range(4):
    want = toys.flat(trees.take(memory.params, i))
    if on[i]:
      a = {
        j: most * np.exp(-d / scale) for (k, j), d in apart.items() if k == i
      }
      total = max(1, sum(a.values()))
      assert 0.01 < min(a.values()) and (total > 1) == (alpha_k == sigma == 1e9)
      own = (1 - sum(a.values()) / total) * w[i]
      want = own + sum(share / total * w[j] for j, share in a.items())
    mine = toys.flat(trees.take(got.params, i))
    np.testing.assert_allclose(mine, want, rtol=0, atol=1e-12)


def test_fedgh_takes_a_step_for_each_client_and_class():
  rng, lr = np.random.default_rng(0), 0.3
  mean = rng.normal(size=(3, C, D))
  count = np.array([[4, 0, 2], [1, 1, 1], [0, 5, 0]])
  on = np.array([True, False, True])
  clients = toys.stack(NET, 3)
  head = toys.whole(NET, 9).params["head"]
  (name,) = head
  kernel, bias = (np.asarray(head[name][k]) for k in ("kernel", "bias"))
  for i in range(3):
    for y in range(C):
      if on[i] and count[i, y]:
        z = mean[i, y]
        p = np.exp(z @ kernel + bias)
        p = p / p.sum() - np.eye(C)[y]
        kernel, bias = kernel - lr * np.outer(z, p), bias - lr * p
  half = Half(clients, (), (jnp.asarray(mean), jnp.asarray(count)))
  server = Half(Segment({}, {}), (), head)
  new = methods.train_header(NET, lr, server, [half], [jnp.asarray(on)])
  np.testing.assert_allclose(new.memory[name]["kernel"], kernel, atol=1e-12)
  np.testing.assert_allclose(new.memory[name]["bias"], bias, atol=1e-12)
  shared = methods.with_header(half, new).segment.params["head"]
  for mine in shared[name]["bias"]:
    np.testing.assert_array_equal(mine, new.memory[name]["bias"])


def test_class_means_are_a_loop_over_samples():
  rows, client = range(5, 16), toys.whole(NET)
  data = toys.samples(NET, rows)
  got = jax.jit(lambda: methods.class_stats(NET, client, data))()
  x, y = toys.standard(rows)
  names = by_hand.blocks(0)
  x = by_hand.walk(by_hand.arrays(client.params), names, x)[-1]
  for c in range(C):
    z = x[y == c]
    assert got.samples[c] == len(z) > 0
    np.testing.assert_allclose(got.mean[c], z.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
      got.square[c], (z**2).sum(axis=1).mean(), rtol=1e-12
    )


def on_simplex(q):
  """The quadratic program by scipy."""
  return scipy.optimize.minimize(
    lambda a: a @ q @ a,
    np.full(len(q), 1 / len(q)),
    jac=lambda a: 2 * q @ a,
    bounds=[(0, 1)] * len(q),
    constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
    method="SLSQP",
    options={"ftol": 1e-14, "maxiter": 1000},
  )


def test_fedpacs_heads_solve_the_quadratic_program():
  rng = np.random.default_rng(0)
  h = rng.normal(size=(6, C, D)) * rng.uniform(0.1, 2)
  v = rng.uniform(0.0, 0.5, 6)
  on = np.array([True] * 5 + [False])
  got = np.asarray(jax.jit(head_weights)(h, v, on))
  np.testing.assert_array_equal(got[5], np.eye(6)[5])
  for i in range(5):
    gaps = (h[i] - h[:5]).reshape(5, -1)
    q = np.diag(v[:5]) + gaps @ gaps.T
    best = on_simplex(q)
    assert best.success and got[i, 5] == 0
    np.testing.assert_allclose(got[i].sum(), 1, atol=1e-12)
    # Weights below a thousandth are dropped.
    np.testing.assert_allclose(got[i, :5], best.x, atol=3e-3)
    a = np.asarray(methods.minimise(jnp.asarray(q), jnp.ones(5, bool)))
    assert a @ q @ a <= best.fun + 1e-7


def test_where_the_program_fails_the_own_head_stays():
  h, v = np.ones((3, C, D)), np.array([0.1, np.nan, 0.2])
  got = np.asarray(jax.jit(head_weights)(h, v, np.ones(3, bool)))
  np.testing.assert_array_equal(got[1], [0, 1, 0])
  assert got[0, 1] == got[2, 1] == 0 and np.isfinite(got).all()


def test_a_point_of_the_simplex_by_hand():
  got = methods.project(
    jnp.array([0.5, 0.9, -1.0, 9.0]), jnp.array([1, 1, 1, 0]) > 0
  )
  np.testing.assert_allclose(got, [0.3, 0.7, 0, 0], atol=1e-12)


def test_alignment_by_hand():
  batch = toys.batch(0, 4, (True, True, True, False))
  rng = np.random.default_rng(1)
  z, anchor = rng.normal(size=(4, D)), rng.normal(size=(C, D))
  known = np.arange(C) != batch.label[1]
  want = 0.0
  for i in range(3):
    if known[batch.label[i]]:
      want += np.sum((z[i] - anchor[batch.label[i]]) ** 2) / 3
  for per, size in ((False, 1), (True, D)):
    got = methods.distance_to(
      jnp.asarray(anchor), known, jnp.asarray(z), batch, per_feature=per
    )
    np.testing.assert_allclose(got, want / size, rtol=1e-12)


@pytest.mark.parametrize(("mean", "want"), [("size", 4.5), ("uniform", 3.0)])
def test_clients_with_a_class_may_count_alike(mean, want):
  """FedProto's means of 1 and 5, of one sample and seven; a third has none."""
  sgd = methods.sgd(0.1)
  rule = METHODS["fedproto"](NET, sgd, mean=mean).aggregation

  def held(value, count):
    memory = Prototypes(jnp.full((C, D), value), jnp.full(C, count))
    return Half(Segment({}, {}), memory=memory)

  each = [
    rule.contribute(held(0.0, 0.0), held(*own), jnp.ones(()))
    for own in ((1.0, 1.0), (5.0, 7.0), (9.0, 0.0))
  ]
  sums = jax.tree.map(lambda *x: sum(x), *each)
  new = rule.server(held(0.0, 0.0), (), (), sums).memory
  np.testing.assert_allclose(new.mean, np.full((C, D), want), rtol=1e-12)
  assert new.samples.tolist() == [8.0] * C
