"""FedALA and FedFomo: their formulas in plain NumPy."""

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods
from splitjax.methods import METHODS, Memory, choose
from splitjax.types import Half, Segment

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network((1, 2))
SGD = methods.sgd(0.1)
KEY = jax.random.key(0)


def batch_of(rows):
  """All of these rows as one batch of `by_hand`."""
  x, label = toys.standard(rows)
  return x, label, np.ones(len(label), bool)


def ala(own, shared, weights, learned):
  """A client of FedALA, and its server."""
  client = Half(own, (), methods.Mixing(weights, jnp.bool_(learned)))
  return client, Half(Segment({}, {}), (), shared)


def test_fedala_learns_its_mixing_as_printed(size=9, share=40.0, taken=3):
  # One epoch: the second learning, after round 1.
  eta, data = 0.7, toys.samples(NET, range(size))
  method = METHODS["fedala"](NET, SGD, eta=eta, share=share)
  own, shared = toys.whole(NET, 1), toys.whole(NET, 2)
  start = jax.tree.map(
    lambda x: jnp.full_like(x, 0.6), {"head": own.params["head"]}
  )
  client, server = ala(own, shared, start, True)
  new, *_ = jax.jit(
    lambda: method.begin(client, server, data, jnp.int32(2), KEY)
  )()
  # By hand, on so many samples in the order of the epoch.
  rows, real = data.epoch(KEY)
  rows = np.asarray(rows)[np.asarray(real)][:taken]
  mixed = methods.mix(own.params, shared.params, start)
  for name in NET.names():
    assert toys.distance(mixed[name], shared.params[name]) == 0
  _, grads = by_hand.whole_step(by_hand.arrays(mixed), batch_of(rows))
  (name,) = own.params["head"]
  for key, grad in zip(("kernel", "bias"), grads["head"], strict=True):
    a, b = (np.asarray(s.params["head"][name][key]) for s in (own, shared))
    w = np.clip(0.6 - eta * grad * (b - a), 0, 1)
    assert np.ptp(w) > 0.01
    np.testing.assert_allclose(
      new.memory.weights["head"][name][key], w, atol=1e-12
    )
    np.testing.assert_allclose(
      new.segment.params["head"][name][key], a + (b - a) * w, atol=1e-12
    )


@pytest.mark.slow
def test_fedala_first_learns_until_the_loss_settles():
  data = toys.samples(NET, range(12))
  own, shared = toys.whole(NET, 1), toys.whole(NET, 2)
  ones = jax.tree.map(jnp.ones_like, {"head": own.params["head"]})

  def learned(round, before=False, **options):
    method = METHODS["fedala"](NET, SGD, eta=0.05, **options)
    client, server = ala(own, shared, ones, before)
    new, *_ = jax.jit(
      lambda: method.begin(client, server, data, jnp.int32(round), KEY)
    )()
    assert bool(new.memory.learned) == (round > 0)
    return new.memory.weights

  assert toys.distance(learned(0), ones) == 0
  one = learned(2, before=True)
  assert toys.distance(learned(1, most_epochs=1), one) == 0
  settled = learned(1, threshold=1e9)  # as soon as there are more than ten
  assert toys.distance(settled, learned(1, most_epochs=11, threshold=0.0)) == 0
  assert toys.distance(settled, learned(1, most_epochs=10)) > 1e-4
  assert toys.distance(settled, one) > 1e-3


def test_fedala_is_judged_by_what_the_next_round_begins_with(learned=False):
  data = toys.samples(NET, range(6))
  own, shared = toys.whole(NET, 1), toys.whole(NET, 2)
  ones = jax.tree.map(jnp.ones_like, {"head": own.params["head"]})
  client, server = ala(own, shared, ones, learned)
  mixed = METHODS["fedala"](NET, SGD, most_epochs=12)
  assert [row.personal for row in mixed.traits.rows] == [True]
  # Not "tuned": it waits for no last round.
  assert not mixed.traits.rows[0].tuned
  shown = jax.jit(lambda: mixed.personalise(client, server, data, KEY))()
  begun, *_ = jax.jit(
    lambda: mixed.begin(client, server, data, jnp.int32(3), KEY)
  )()
  toys.assert_close(shown.segment, begun.segment, 1e-12)
  for name in NET.names():
    same = toys.distance(shown.segment.params[name], shared.params[name])
    assert same == 0
  assert toys.distance(shown.segment.params["head"], own.params["head"]) > 1e-3


def descended(net, data, steps):
  """A network after steps of gradient descent with rate 0.1."""
  for _ in range(steps):
    net = by_hand.Sgd(0.1, 0, 0)(net, by_hand.whole_step(net, data)[1])
  return net


def as_segment(net):
  """The segment of a network of `by_hand`."""
  params = {
    name: {"Dense_0": {"kernel": jnp.asarray(w), "bias": jnp.asarray(b)}}
    for name, (w, b) in net.items()
  }
  return toys.whole(NET)._replace(params=params)


HELD = (20, 21, 22, 23, 24)
AFFINITY = (9.0, 1.0, 2.0, 0.0)
"""Of client 0 to all four: it downloads 2 and 1, never itself."""


@pytest.mark.parametrize("better", [True, False])
def test_fedfomo_weighs_its_own_training_by_hand(better):
  held = batch_of(HELD)
  stock = toys.stack(NET, 4)
  each = [by_hand.arrays(toys.whole(NET, seed).params) for seed in range(4)]
  # The trained network is far better than where it began, and the best of the
  # others better still; or the start has no better network.
  start = by_hand.arrays(toys.whole(NET, 5).params)
  trained = descended(start, held, 40)
  if not better:
    start, trained = descended(trained, held, 400), start
  candidates = [trained, each[2], each[1]]

  def loss(net):
    return by_hand.whole_step(net, held)[0]

  def apart(net):
    return np.linalg.norm(toys.flat(net) - toys.flat(start))

  w = [max(0, loss(start) - loss(net)) / apart(net) for net in candidates]
  assert (w[0] > 0) == better and (sum(w) > 0) == better
  w = [x / sum(w) if better else 0.0 for x in w]
  want = jax.tree.map(
    lambda old, *new: old + np.tensordot(w, np.stack(new) - old, 1),
    start, *candidates,
  )  # fmt: skip
  method = METHODS["fedfomo"](NET, SGD, models=3, epsilon=0.0)
  memory = Memory(jnp.asarray(AFFINITY), as_segment(start))
  client = Half(as_segment(trained), (), memory)
  server = Half(Segment({}, {}), (), stock)
  data = toys.samples(NET, range(6), held=(*HELD, -1))
  new, _, ledger = jax.jit(
    lambda: method.begin(client, server, data, jnp.int32(3), KEY)
  )()
  toys.assert_close(by_hand.arrays(new.segment.params), want, 1e-12)
  # What it remembers: weights of others, and where its training begins.
  affinity = np.array(AFFINITY)
  affinity[[2, 1]] += w[1:]
  np.testing.assert_allclose(new.memory.affinity, affinity, atol=1e-12)
  toys.assert_close(new.memory.start, new.segment, 0.0)
  # Its own network is no download.
  size = toys.flat(client.segment.params).nbytes
  assert ledger == {"down/model": 2 * size}


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
