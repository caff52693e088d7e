"""FedAMP, FedGH, FedPAC: their formulas in plain NumPy; what others share."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import worlds as toys

from splitjax import trees
from splitjax.methods import METHODS, fedpac, prototypes
from splitjax.methods.fedpac import head_weights
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.prototypes import Prototypes
from splitjax.types import NO_BLOCKS, Client, Half, Net, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
PARTS = {"backbone": NET, "optimizer": Optimizer(lr=0.1)}
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
  networks = jax.tree.map(lambda x: factor * x, toys.stack(NET, 4))
  on = np.array([True, True, False, True])
  memory = jax.tree.map(lambda x: x + 7.0, networks)
  method = METHODS["fedamp"](**PARTS, sigma=sigma, alpha_k=alpha_k)
  server = Server(net=NO_BLOCKS, common=NO_BLOCKS)
  clients = (Client(net=networks, memory=memory),)
  _, (cohort,) = jax.jit(method.merge)(server, {}, clients, (on,))
  w = [toys.flat(trees.take(networks.params, i)) for i in range(4)]
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
      kept = (1 - sum(a.values()) / total) * w[i]
      want = kept + sum(share / total * w[j] for j, share in a.items())
    cloud = toys.flat(trees.take(cohort.memory.params, i))
    np.testing.assert_allclose(cloud, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sigma", [None, 60.0])
def test_a_network_too_large_to_be_squared_costs_fedamp_itself(sigma):
  """The others' clouds are those of a round without it."""
  networks = toys.stack(NET, 4)
  large = jax.tree.map(lambda x: x.at[1].multiply(1e200), networks)
  method = METHODS["fedamp"](**PARTS, sigma=sigma, alpha_k=18.0)
  server = Server(net=NO_BLOCKS, common=NO_BLOCKS)
  merge = jax.jit(method.merge)

  def clouds(networks, *on):
    clients = (Client(net=networks, memory=networks),)
    _, (cohort,) = merge(server, {}, clients, (np.array(on),))
    return cohort.memory

  got = clouds(large, True, True, True, True)
  want = clouds(networks, True, False, True, True)
  others = np.array([0, 2, 3])
  toys.assert_close(trees.take(got, others), trees.take(want, others), 1e-12)
  assert toys.distance(trees.take(got, 0), trees.take(networks, 0)) > 1e-6
  assert toys.same_bits(trees.take(got, 1), trees.take(large, 1))


def test_fedamp_descends_towards_its_cloud_model(lam=0.6, alpha_k=2.0):
  """CE + lam / (2 alpha_k) |w - u|^2, from u on (eq. 7)."""
  method = METHODS["fedamp"](**PARTS, alpha_k=alpha_k, lam=lam)
  net, cloud, batch = toys.whole(NET, 1), toys.whole(NET, 2), toys.batch(0)
  server = Server(net=NO_BLOCKS, common=NO_BLOCKS)
  client = Client(net=net, memory=cloud)
  half, _, context = method.receive(client, server, None, 0, None)
  toys.assert_close(half.net, cloud, 0.0)
  half = half._replace(net=net)
  grads, _, _ = jax.jit(method.gradients)(half, context, batch)
  w = by_hand.arrays(net.params)
  _, want = by_hand.whole_step(w, by_hand.data(batch))
  gap = by_hand.plus(w, by_hand.scaled(-1, by_hand.arrays(cloud.params)))
  want = by_hand.plus(want, by_hand.scaled(lam / alpha_k, gap))
  toys.assert_close(by_hand.arrays(grads), want, 1e-12)


def test_fedgh_takes_a_step_for_each_client_and_class():
  rng, lr = np.random.default_rng(0), 0.3
  mean = rng.normal(size=(3, C, D))
  held = np.array([[4, 0, 2], [1, 1, 1], [0, 5, 0]]) > 0
  on = np.array([True, False, True])
  method = METHODS["fedgh"](**PARTS, server_lr=lr)
  full = toys.whole(NET, 9)
  (name,) = full.params["head"]
  kernel, bias = (
    np.asarray(full.params["head"][name][k]) for k in ("kernel", "bias")
  )
  for i in range(3):
    for y in range(C):
      if on[i] and held[i, y]:
        z = mean[i, y]
        p = np.exp(z @ kernel + bias)
        p = p / p.sum() - np.eye(C)[y]
        kernel, bias = kernel - lr * np.outer(z, p), bias - lr * p
  client = method.first_client(toys.whole(NET), 3)
  server = method.first_server(full, full, 3)
  memory = Prototypes(mean=jnp.asarray(mean), present=jnp.asarray(held))
  clients = (trees.repeat(client, 3)._replace(memory=memory),)
  server, _ = jax.jit(method.merge)(server, {}, clients, (on,))
  # Clients get this head, and keep their bodies.
  net = method.model(client, server)
  np.testing.assert_allclose(net.params["head"][name]["kernel"], kernel, 1e-10)
  np.testing.assert_allclose(net.params["head"][name]["bias"], bias, 1e-10)
  body = toys.whole(NET).params
  for block in NET.names():
    toys.assert_close(net.params[block], body[block], 0.0)


def test_class_means_are_a_loop_over_samples():
  rows, net = range(5, 16), toys.whole(NET)
  data = toys.samples(NET, rows)
  got = jax.jit(lambda: prototypes.class_stats(NET, net, data))()
  x, y = toys.standard(rows)
  x = by_hand.walk(by_hand.arrays(net.params), by_hand.blocks(0), x)[-1]
  for c in range(C):
    z = x[y == c]
    assert got.samples[c] == len(z) > 0
    np.testing.assert_allclose(got.mean[c], z.mean(axis=0), atol=1e-12)
    square = (z**2).sum(axis=1).mean()
    np.testing.assert_allclose(got.square[c], square, rtol=1e-12)


@pytest.mark.parametrize("round", [0, 1])
def test_fedpac_estimates_with_the_body_that_it_receives(round):
  """pi_l mu_l; (sum_l pi_l E|f|^2 - |pi_l mu_l|^2) / n; class 1 has c_1."""
  rows, net = range(5, 16), toys.whole(NET, 3)
  data = toys.samples(NET, rows)
  method = METHODS["fedpac"](**PARTS)
  client = method.first_client(toys.whole(NET), 3)
  server = method.first_server(net, net, 3)
  known = jnp.arange(C) == 1
  server = server._replace(memory=Prototypes(jnp.full((C, D), 5.0), known))
  half, _, anchors = jax.jit(
    lambda: method.receive(client, server, data, jnp.int32(round), None)
  )()
  x, y = toys.standard(rows)
  z = by_hand.walk(by_hand.arrays(net.params), by_hand.blocks(0), x)[-1]
  h = np.array([(y == c).mean() * z[y == c].mean(axis=0) for c in range(C)])
  v = ((z**2).sum(axis=1).mean() - (h**2).sum()) / len(y)
  np.testing.assert_allclose(half.memory.h, h, atol=1e-12)
  np.testing.assert_allclose(half.memory.v, v, rtol=1e-10)
  want = np.array([z[y == c].mean(axis=0) for c in range(C)])
  want[1] = 5.0
  np.testing.assert_allclose(anchors.mean, want, atol=1e-12)
  assert anchors.present.tolist() == [round > 0] * C


@pytest.mark.slow
def test_the_head_of_fedpac_descends_cross_entropy_alone():
  optimizer = Optimizer(lr=0.1, momentum=None, schedule="cosine", rounds=4)
  method = METHODS["fedpac"](backbone=NET, optimizer=optimizer)
  net, batch = toys.whole(NET, 1), toys.batch(0)
  anchors = Prototypes(jnp.zeros((C, D)), jnp.ones(C, bool))
  head, body = method.at(jnp.int32(2)).stages()
  half, server = method.optimizer.start(net), Half(net=NO_BLOCKS, slots={})
  step = (half, server, anchors, (batch,), None)
  w = by_hand.arrays(net.params)
  _, grads = by_hand.whole_step(w, by_hand.data(batch))
  moved, _, losses = head.step(*step)
  want = w | by_hand.plus(
    {"head": w["head"]}, by_hand.scaled(-0.05, {"head": grads["head"]})
  )
  toys.assert_close(by_hand.arrays(moved.net.params), want, 1e-12)
  assert set(losses) == {"client"}
  moved, _, losses = body.step(*step)
  assert toys.distance(moved.net.params["head"], net.params["head"]) == 0
  assert losses["align"] > 0


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
    a = np.asarray(fedpac.minimise(jnp.asarray(q), jnp.ones(5, bool)))
    assert a @ q @ a <= best.fun + 1e-7


def test_where_the_program_fails_the_own_head_stays():
  h, v = np.ones((3, C, D)), np.array([0.1, np.nan, 0.2])
  got = np.asarray(jax.jit(head_weights)(h, v, np.ones(3, bool)))
  np.testing.assert_array_equal(got[1], [0, 1, 0])
  assert got[0, 1] == got[2, 1] == 0 and np.isfinite(got).all()
  # Features whose square overflows cost the other heads nothing.
  large = np.array(h)
  large[1] = 1e200
  np.testing.assert_array_equal(
    jax.jit(head_weights)(large, np.nan_to_num(v), np.ones(3, bool)), got
  )


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


@pytest.mark.parametrize("mean", ["size", "uniform"])
def test_clients_with_a_class_may_count_alike(mean):
  """By their samples of the class, or with the same weight."""
  method = METHODS["fedproto"](**PARTS, mean=mean)
  net = toys.whole(NET)
  half = Half(net=net, slots={})
  # Three samples of class 1 and one of class 2; one of class 1 and two of class
  # 0; four of class 2, of a client that does not count.
  label = toys.stock()[1]
  rows = [np.flatnonzero(label == c)[:4] for c in range(C)]
  parts = [(*rows[1][:3], *rows[2][:1]), (*rows[1][:1], *rows[0][:2]), rows[2]]
  means, shares = [], []
  for part, weight in zip(parts, (4.0, 3.0, 0.0), strict=True):
    data = toys.samples(NET, [int(row) for row in part])
    _, sent = method.send(half, half, None, data, jnp.asarray(weight), None)
    shares.append(sent)
    means.append(np.asarray(prototypes.class_stats(NET, net, data).mean))
  old = Prototypes(jnp.full((C, D), 7.0), jnp.zeros(C, bool))
  server = Server(net=NO_BLOCKS, common=Net(params={}, stats={}), memory=old)
  sums = jax.tree.map(lambda *x: sum(x), *shares)
  server, _ = method.merge(server, sums, (), ())
  share = 3 / 4 if mean == "size" else 1 / 2
  want = share * means[0][1] + (1 - share) * means[1][1]
  np.testing.assert_allclose(server.memory.mean[1], want, rtol=1e-12)
  np.testing.assert_allclose(server.memory.mean[2], means[0][2], rtol=1e-12)
  np.testing.assert_allclose(server.memory.mean[0], means[1][0], rtol=1e-12)
