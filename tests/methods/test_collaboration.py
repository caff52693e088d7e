"""FedAMP, FedGH, FedPAC, FedALA, FedFomo: their formulas in plain NumPy."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import worlds as toys

from splitjax import trees, wire
from splitjax.methods import METHODS, fedpac, mixing, prototypes
from splitjax.methods.fedpac import head_weights
from splitjax.methods.mixing import Memory, Mixing, choose
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.prototypes import Prototypes
from splitjax.types import NO_BLOCKS, Client, Half, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
PARTS = {"backbone": NET, "optimizer": Optimizer(lr=0.1)}
C, D = toys.CLASSES, toys.WIDTHS[-1]
SERVER = Server(net=NO_BLOCKS, common=NO_BLOCKS)


def clouds(method, networks, memory, on):
  """The memories of FedAMP's clients after a round of those that are on."""
  clients = (Client(net=networks, memory=memory),)
  _, (cohort,) = jax.jit(method.merge)(SERVER, {}, clients, (np.array(on),))
  return cohort.memory


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
  on = [True, True, False, True]
  memory = jax.tree.map(lambda x: x + 7.0, networks)
  method = METHODS["fedamp"](**PARTS, sigma=sigma, alpha_k=alpha_k)
  after = clouds(method, networks, memory, on)
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
    cloud = toys.flat(trees.take(after.params, i))
    np.testing.assert_allclose(cloud, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sigma", [None, 60.0])
def test_a_network_too_large_to_be_squared_costs_fedamp_itself(sigma):
  """The others' clouds are those of a round without it."""
  networks = toys.stack(NET, 4)
  large = jax.tree.map(lambda x: x.at[1].multiply(1e200), networks)
  method = METHODS["fedamp"](**PARTS, sigma=sigma, alpha_k=18.0)
  got = clouds(method, large, large, [True] * 4)
  want = clouds(method, networks, networks, [True, False, True, True])
  others = np.array([0, 2, 3])
  toys.assert_close(trees.take(got, others), trees.take(want, others), 1e-12)
  assert toys.distance(trees.take(got, 0), trees.take(networks, 0)) > 1e-6
  assert toys.same_bits(trees.take(got, 1), trees.take(large, 1))


def test_fedamp_descends_towards_its_cloud_model(lam=0.6, alpha_k=2.0):
  """CE + lam / (2 alpha_k) |w - u|^2, from u on (eq. 7)."""
  method = METHODS["fedamp"](**PARTS, alpha_k=alpha_k, lam=lam)
  net, cloud, batch = toys.whole(NET, 1), toys.whole(NET, 2), toys.batch(0)
  client = Client(net=net, memory=cloud)
  half, _, context = method.receive(client, SERVER, None, 0, None)
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
    best = scipy.optimize.minimize(
      lambda a, q=q: a @ q @ a,
      np.full(5, 1 / 5),
      jac=lambda a, q=q: 2 * q @ a,
      bounds=[(0, 1)] * 5,
      constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
      method="SLSQP",
      options={"ftol": 1e-14, "maxiter": 1000},
    )
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
  server = SERVER._replace(memory=old)
  sums = jax.tree.map(lambda *x: sum(x), *shares)
  server, _ = method.merge(server, sums, (), ())
  share = 3 / 4 if mean == "size" else 1 / 2
  want = share * means[0][1] + (1 - share) * means[1][1]
  np.testing.assert_allclose(server.memory.mean[1], want, rtol=1e-12)
  np.testing.assert_allclose(server.memory.mean[2], means[0][2], rtol=1e-12)
  np.testing.assert_allclose(server.memory.mean[0], means[1][0], rtol=1e-12)


KEY = jax.random.key(0)


def begun(method, client, server, data, round):
  """A client as it begins a round, and what it downloads."""

  def receive():
    with wire.ledger() as sent:
      half, _, _ = method.receive(client, server, data, jnp.int32(round), KEY)
    return half, sent

  return jax.jit(receive)()


def batch_of(rows):
  """All of these rows as one batch of `by_hand`."""
  x, label = toys.standard(rows)
  return x, label, np.ones(len(label), bool)


def ala(weight, learned):
  """A client of FedALA with equal weights W of the head, and its server."""
  net, mean = toys.whole(NET, 1), toys.whole(NET, 2)
  weights = jax.tree.map(
    lambda x: jnp.full_like(x, weight), {"head": net.params["head"]}
  )
  memory = Mixing(weights=weights, learned=jnp.bool_(learned))
  return Client(net=net, memory=memory), SERVER._replace(common=mean)


def test_fedala_learns_its_mixing_as_printed(size=9, share=40.0, taken=3):
  # One epoch: the second learning, after round 1.
  eta, data = 0.7, toys.samples(NET, range(size))
  method = METHODS["fedala"](**PARTS, eta=eta, share=share)
  client, server = ala(0.6, learned=True)
  trained, mean = client.net.params, server.common.params
  half, _ = begun(method, client, server, data, round=2)
  # By hand, on so many samples in the order of the epoch.
  rows, real = data.epoch(KEY)
  rows = np.asarray(rows)[np.asarray(real)][:taken]
  mixed = by_hand.arrays(method.model(client, server).params)
  for name in NET.names():
    toys.assert_close(mixed[name], by_hand.arrays(mean)[name], 0.0)
  _, grads = by_hand.whole_step(mixed, batch_of(rows))
  (name,) = mean["head"]
  for key, grad in zip(("kernel", "bias"), grads["head"], strict=True):
    a, b = (np.asarray(w["head"][name][key]) for w in (trained, mean))
    w = np.clip(0.6 - eta * grad * (b - a), 0, 1)
    assert np.ptp(w) > 0.01
    learned = half.memory.weights["head"][name][key]
    np.testing.assert_allclose(learned, w, atol=1e-12)
    received = half.net.params["head"][name][key]
    np.testing.assert_allclose(received, a + (b - a) * w, atol=1e-12)


@pytest.mark.slow
def test_fedala_first_learns_until_the_loss_settles():
  data = toys.samples(NET, range(12))

  def learned(round, before=False, **options):
    method = METHODS["fedala"](**PARTS, eta=0.05, **options)
    half, _ = begun(method, *ala(1.0, before), data, round)
    assert bool(half.memory.learned) == (round > 0)
    return half.memory.weights

  ones = ala(1.0, learned=False)[0].memory.weights
  assert toys.distance(learned(0), ones) == 0
  once = learned(2, before=True)
  assert toys.distance(learned(1, most_epochs=1), once) == 0
  settled = learned(1, threshold=1e9)  # as soon as there are more than ten
  assert toys.distance(settled, learned(1, most_epochs=11, threshold=0.0)) == 0
  assert toys.distance(settled, learned(1, most_epochs=10)) > 1e-4
  assert toys.distance(settled, once) > 1e-3


def test_fedala_is_judged_by_what_the_next_round_begins_with():
  data = toys.samples(NET, range(6))
  client, server = ala(1.0, learned=False)
  method = METHODS["fedala"](**PARTS, most_epochs=12)
  shown = jax.jit(lambda: method.personalise(client, server, data, KEY))()
  half, _ = begun(method, client, server, data, round=3)
  toys.assert_close(shown, half.net, 1e-12)
  for name in NET.names():
    assert toys.distance(shown.params[name], server.common.params[name]) == 0
  assert toys.distance(shown.params["head"], client.net.params["head"]) > 1e-3


def test_the_last_parts_of_fedala_are_mixed():
  parts = [*NET.names(), "head"]
  for count in (0, 1, 2, 5):
    method = METHODS["fedala"](**PARTS, mixed_blocks=count)
    client = method.first_client(toys.whole(NET), 3)
    assert [*client.memory.weights] == parts[len(parts) - count :]


def test_fedala_mixes_no_normalisation_that_is_local():
  """Neither parameters nor statistics: they are not sent."""
  net = toys.network((1, 2), batch_norm=True)
  method = METHODS["fedala"](
    backbone=net, optimizer=PARTS["optimizer"], local_norm=True, mixed_blocks=2
  )
  client = method.first_client(toys.whole(net, 1), 3)
  server = method.first_server(toys.fresh(net, 2), toys.whole(net, 2), 3)
  mixed = method.model(client, server)
  toys.assert_close(mixed.stats, client.net.stats, 0.0)
  for name in net.names():
    for layer, leaves in mixed.params[name].items():
      source = client.net if layer == "BatchNorm_0" else server.common
      toys.assert_close(leaves, source.params[name][layer], 1e-12)


def descended(net, data, steps):
  """A network after steps of gradient descent with rate 0.1."""
  for _ in range(steps):
    net = by_hand.Sgd(0.1, 0, 0)(net, by_hand.whole_step(net, data)[1])
  return net


def as_net(arrays):
  """The network of arrays of `by_hand`."""
  params = {
    name: {"Dense_0": {"kernel": jnp.asarray(w), "bias": jnp.asarray(b)}}
    for name, (w, b) in arrays.items()
  }
  return toys.whole(NET)._replace(params=params)


HELD = (20, 21, 22, 23, 24)
AFFINITY = (9.0, 1.0, 2.0, 0.0)
"""Of client 0 to all four: it downloads 2 and 1, never itself."""


@pytest.mark.parametrize("better", [True, False])
def test_fedfomo_weighs_its_own_training_by_hand(better):
  held = batch_of(HELD)
  stock = toys.stack(NET, 4)
  others = [by_hand.arrays(toys.whole(NET, seed).params) for seed in range(4)]
  # The trained network is far better than where it began, and the best of the
  # others better still; or the start has no better network.
  start = by_hand.arrays(toys.whole(NET, 5).params)
  trained = descended(start, held, 40)
  if not better:
    start, trained = descended(trained, held, 400), start
  candidates = [trained, others[2], others[1]]

  def loss(net):
    return by_hand.whole_step(net, held)[0]

  def apart(net):
    return np.linalg.norm(toys.flat(net) - toys.flat(start))

  slopes = np.array([(loss(start) - loss(n)) / apart(n) for n in candidates])
  w = np.maximum(slopes, 0)
  assert (w[0] > 0) == better and (sum(w) > 0) == better
  assert (slopes[1:] < 0).any()  # a network that hurts
  w = [x / sum(w) if better else 0.0 for x in w]
  want = jax.tree.map(
    lambda old, *new: old + np.tensordot(w, np.stack(new) - old, 1),
    start, *candidates,
  )  # fmt: skip
  method = METHODS["fedfomo"](**PARTS, models=3, epsilon=0.0)
  memory = Memory(affinity=jnp.asarray(AFFINITY), start=as_net(start))
  client = Client(net=as_net(trained), memory=memory)
  server = SERVER._replace(memory=stock)
  data = toys.samples(NET, range(6), held=(*HELD, -1))
  half, sent = begun(method, client, server, data, round=3)
  toys.assert_close(by_hand.arrays(half.net.params), want, 1e-12)
  # What it remembers: slopes of others, and where its training begins.
  affinity = np.array(AFFINITY)
  affinity[[2, 1]] += slopes[1:] / abs(slopes.sum())
  np.testing.assert_allclose(half.memory.affinity, affinity, atol=1e-12)
  toys.assert_close(half.memory.start, half.net, 0.0)
  # Its own network is no download.
  assert sent == {"down/model": 2 * toys.flat(client.net.params).nbytes}


def test_fedfomos_epsilon_falls_in_every_round(monkeypatch):
  told, method = [], METHODS["fedfomo"](**PARTS, epsilon=0.3, decay=0.1)

  def spied(affinity, number, count, epsilon, key):
    told.append(float(epsilon))
    raise InterruptedError  # what follows is of no interest

  monkeypatch.setattr(mixing, "choose", spied)
  client = method.first_client(toys.whole(NET), 4)
  server = SERVER._replace(memory=toys.stack(NET, 4))
  data = toys.samples(NET, range(6), held=HELD)
  for round in (0, 2, 5):
    with pytest.raises(InterruptedError):
      method.receive(client, server, data, jnp.int32(round), KEY)
  assert told == pytest.approx([0.3, 0.1, 0.0])


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
