"""FedAMP, FedGH, FedPAC, FedALA, FedFomo: their formulas in plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import toy_world as toys

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.methods import (
  METHODS,
  adaptive,
  base,
  collaborative,
  optimizer,
  prototypes,
  simplex,
)
from splitjax.methods.fedfomo import choose, first_order, toward
from splitjax.methods.fedpac import head_weights
from splitjax.types import Half, Segment, Shard

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = optimizer.sgd(0.1)
C, D = toys.CLASSES, toys.WIDTHS[-1]


def stack(count):
  """The whole networks of so many clients, leaves [N, ...]."""
  each = [whole(seed) for seed in range(count)]
  return jax.tree.map(lambda *x: jnp.stack(x), *each)


def whole(seed):
  full = toys.fresh(NET, seed)
  return jax.tree.map(jnp.asarray, base.whole_network(NET, full))


def samples(rows, held=()):
  """Samples of a client with these rows of the stock, batches of 4."""
  image, label = toys.stock()
  world = toys.world(NET, (4,), (tuple(rows),))
  counts = jnp.asarray(np.bincount(label[list(rows)], minlength=C))
  shard = Shard(
    jnp.asarray(image),
    jnp.asarray(label),
    jnp.asarray(rows, jnp.int32),
    jnp.int32(len(rows)),
    counts,
    jnp.int32(0),
    held=jnp.asarray(held, jnp.int32),
  )
  return Samples(shard, world.plans[0])


def head_of(params, z):
  (layer,) = params.values()
  return z @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])


def body(params, x):
  """The features of images x [B, 16] in plain NumPy."""
  for name in NET.names():
    (layer,) = params[name].values()
    kernel, bias = np.asarray(layer["kernel"]), np.asarray(layer["bias"])
    x = np.maximum(x @ kernel + bias, 0)
  return x


def flat(params):
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


@pytest.mark.parametrize("sigma", [5.0, 1e9])
def test_fedamp_is_a_double_loop(sigma):
  alpha_k, clients = 0.3 * sigma, stack(4)
  on = np.array([True, True, False, True])
  memory = jax.tree.map(lambda x: x + 7.0, clients)
  rule = collaborative.attention(sigma, alpha_k)
  got = jax.jit(rule.clients)(Half(clients, (), memory), on, None, None).memory
  w = [flat(trees.take(clients.params, i)) for i in range(4)]
  for i in range(4):
    want = flat(trees.take(memory.params, i))
    if on[i]:
      a = [
        0.0
        if j == i or not on[j]
        else alpha_k * np.exp(-np.sum((w[i] - w[j]) ** 2) / sigma) / sigma
        for j in range(4)
      ]
      want = (1 - sum(a)) * w[i] + sum(a[j] * w[j] for j in range(4))
      if sigma > 1e6:  # all others have one weight
        np.testing.assert_allclose(
          np.array(a)[on & (np.arange(4) != i)], 0.3, 1e-6
        )
    mine = flat(trees.take(got.params, i))
    np.testing.assert_allclose(mine, want, rtol=0, atol=1e-12)


def test_fedamps_proximal_term_has_a_gradient():
  world = toys.world(NET, (4,) * 3, toys.parts_of((8, 6, 7)))
  states = [
    toys.train(world, METHODS["fedamp"](NET, SGD, lam=lam), 2)[0]
    for lam in (0.0, 1.0)
  ]
  assert (
    toys.distance(states[0].clients[0].segment, states[1].clients[0].segment)
    > 1e-3
  )


def test_fedgh_takes_a_step_for_each_client_and_class():
  rng, lr = np.random.default_rng(0), 0.3
  mean = rng.normal(size=(3, C, D))
  count = np.array([[4, 0, 2], [1, 1, 1], [0, 5, 0]])
  on = np.array([True, False, True])
  clients = stack(3)
  head = whole(9).params["head"]
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
  new = collaborative.train_header(NET, lr, server, half, jnp.asarray(on))
  np.testing.assert_allclose(new.memory[name]["kernel"], kernel, atol=1e-12)
  np.testing.assert_allclose(new.memory[name]["bias"], bias, atol=1e-12)
  shared = collaborative.with_header(half, new).segment.params["head"]
  for i in range(3):
    np.testing.assert_array_equal(
      shared[name]["bias"][i], new.memory[name]["bias"]
    )


def test_class_means_are_a_loop_over_samples():
  rows, client = range(5, 16), whole(0)
  data = samples(rows)
  got = jax.jit(lambda: prototypes.class_stats(NET, client, data))()
  x, y = toys.standard(rows)
  x = body(client.params, x)
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


@pytest.mark.parametrize("seed", range(4))
def test_fedpacs_heads_solve_the_quadratic_program(seed):
  rng = np.random.default_rng(seed)
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
    a = np.asarray(simplex.minimise(jnp.asarray(q), jnp.ones(5, bool)))
    assert a @ q @ a <= best.fun + 1e-7


def test_where_the_program_fails_the_own_head_stays():
  h, v = np.ones((3, C, D)), np.array([0.1, np.nan, 0.2])
  got = np.asarray(
    head_weights(jnp.asarray(h), jnp.asarray(v), jnp.ones(3, bool))
  )
  np.testing.assert_array_equal(got[1], [0, 1, 0])
  assert got[0, 1] == got[2, 1] == 0 and np.isfinite(got).all()


def test_a_point_of_the_simplex_by_hand():
  got = simplex.project(
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
    got = prototypes.distance_to(
      jnp.asarray(anchor), known, jnp.asarray(z), batch, per_feature=per
    )
    np.testing.assert_allclose(got, want / size, rtol=1e-12)


def test_fedala_learns_its_mixing_as_printed():
  # One epoch of one batch: the second learning, after round 1.
  eta, data = 0.7, samples(range(4))
  method = METHODS["fedala"](NET, SGD, eta=eta, share=100.0)
  own, shared, key = whole(1), whole(2), jax.random.key(0)
  start = jax.tree.map(
    lambda x: jnp.full_like(x, 0.6), {"head": own.params["head"]}
  )
  client = Half(own, (), adaptive.Mixing(start, jnp.bool_(True)))
  server = Half(Segment({}, {}), (), shared)
  new, *_ = jax.jit(
    lambda: method.begin(client, server, data, jnp.int32(2), key)
  )()
  mixed = adaptive.mix(own.params, shared.params, start)
  x, y = toys.standard(range(4))
  for name in NET.names():
    assert toys.distance(mixed[name], shared.params[name]) == 0
  x = body(mixed, x)
  p = np.exp(head_of(mixed["head"], x))
  p = (p / p.sum(axis=1, keepdims=True) - np.eye(C)[y]) / 4
  (name,) = own.params["head"]
  for key, grad in (("kernel", x.T @ p), ("bias", p.sum(axis=0))):
    a, b = (np.asarray(s.params["head"][name][key]) for s in (own, shared))
    w = np.clip(0.6 - eta * grad * (b - a), 0, 1)
    assert np.ptp(w) > 0.01
    np.testing.assert_allclose(
      new.memory.weights["head"][name][key], w, atol=1e-12
    )
    np.testing.assert_allclose(
      new.segment.params["head"][name][key], a + (b - a) * w, atol=1e-12
    )


def test_fedala_first_learns_until_the_loss_settles():
  data = samples(range(12))
  own, shared, key = whole(1), whole(2), jax.random.key(0)
  ones = jax.tree.map(jnp.ones_like, {"head": own.params["head"]})
  server = Half(Segment({}, {}), (), shared)

  def learned(round, before=False, data=data, **options):
    method = METHODS["fedala"](NET, SGD, eta=0.05, **options)
    client = Half(own, (), adaptive.Mixing(ones, jnp.bool_(before)))
    new, *_ = jax.jit(
      lambda: method.begin(client, server, data, jnp.int32(round), key)
    )()
    assert bool(new.memory.learned) == (round > 0)
    return new.memory.weights

  assert toys.distance(learned(0), ones) == 0
  one = learned(2, before=True)
  assert toys.distance(learned(1, most_epochs=1), one) == 0
  settled = learned(1, threshold=1e9)  # as soon as there are ten losses
  assert toys.distance(settled, learned(1, most_epochs=10, threshold=0.0)) == 0
  assert toys.distance(settled, one) > 1e-3
  # A client that comes for the first time in a later round, too; and its share
  # is of its own three batches, whatever the largest client of the cohort has.
  assert toys.distance(settled, learned(7, threshold=1e9)) == 0
  half = learned(2, before=True, share=50.0)
  assert toys.distance(half, one) > 1e-4
  wider = data._replace(plan=data.plan._replace(steps=9))
  wide = learned(2, before=True, data=wider, share=50.0)
  assert toys.distance(half, wide) < 1e-12


def test_fedfomos_weights_of_two_clients_by_hand():
  data = samples(range(6), held=[20, 21, 22, 23, 24, -1])
  own, others = whole(0), stack(3)

  def loss(params):
    x, y = toys.standard(range(20, 25))
    x = body(params, x)
    out = head_of(params["head"], x)
    return np.mean(np.log(np.exp(out).sum(axis=1)) - out[np.arange(5), y])

  mine, want = loss(own.params), []
  for i in range(3):  # the first is the client itself: no distance, no weight
    theirs = trees.take(others.params, i)
    apart = np.linalg.norm(flat(theirs) - flat(own.params))
    want.append(max(0, mine - loss(theirs)) / apart if apart else 0)
  got = jax.jit(lambda: first_order(NET, own, others, data))()
  assert max(want) > 0
  np.testing.assert_allclose(got, np.array(want) / sum(want), atol=1e-12)
  mixed = toward(own, others, got)
  np.testing.assert_allclose(
    flat(mixed.params),
    flat(own.params)
    + sum(
      float(got[i]) * (flat(trees.take(others.params, i)) - flat(own.params))
      for i in range(3)
    ),
    atol=1e-12,
  )


def test_fedfomo_downloads_the_nearest_but_for_epsilon():
  affinity, number = jnp.array([0.0, 5.0, 9.0, 1.0, 3.0]), 2
  pick = jax.jit(
    jax.vmap(
      lambda epsilon, key: choose(affinity, number, 2, epsilon, key),
      in_axes=(None, 0),
    )
  )
  keys = jax.random.split(jax.random.key(0), 500)
  assert (np.asarray(pick(0.0, keys)) == [1, 4]).all()
  drawn = np.asarray(pick(0.5, keys))
  assert not (drawn == number).any() and (drawn[:, 0] != drawn[:, 1]).all()
  assert 0.1 < np.mean(drawn == 0) * 2 < 0.9
