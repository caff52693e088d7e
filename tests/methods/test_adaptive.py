"""FedALA and FedFomo: their formulas in plain NumPy."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds as toys

from splitjax import wire
from splitjax.methods import METHODS
from splitjax.methods.mixing import Memory, Mixing, choose
from splitjax.methods.optimizer import Optimizer
from splitjax.types import NO_BLOCKS, Client, Server

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
PARTS = {"backbone": NET, "optimizer": Optimizer(lr=0.1)}
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
  return Client(net=net, memory=memory), Server(net=NO_BLOCKS, common=mean)


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
  server = Server(net=NO_BLOCKS, common=NO_BLOCKS, memory=stock)
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
