"""Whole rounds with aggregation against whole rounds in plain NumPy."""

import itertools

import by_hand
import jax
import numpy as np
import pytest
import toy_world as toys

from splitjax.methods import optimizers as optimizers_
from splitjax.methods.splitgp import splitgp

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network()
OUTER = 0.1, 0.9, 0.05
"""Learning rate, momentum, weight decay."""
EPOCHS, GAMMA = 2, 0.5
TOL = 1e-10
"""After a few steps; parameters are of order 1."""


def local(phi, theta, depth, rows, descend):
  """A client's round, each epoch being one batch of all its data."""
  x, label = toys.standard(rows)
  batch = x, label, np.ones(len(label), bool)
  for _ in range(EPOCHS):
    _, _, d_phi, d_theta = by_hand.split_step(phi, theta, depth, batch, GAMMA)
    phi, theta = descend[0](phi, d_phi), descend[1](theta, d_theta)
  return phi, theta


def optimizers():
  return by_hand.Sgd(*OUTER), by_hand.Sgd(*OUTER)


def everyone(place, state):
  """All clients and the server, as NumPy has them."""
  clients = [
    by_hand.arrays(place.client(state, n).params)
    for n in range(len(place.depths))
  ]
  return clients, by_hand.arrays(state.server.segment.params)


def round_by_hand(place, phis, theta, who, lam):
  """A round of SplitGP in which `who` took part; lam > 0."""
  after = {
    n: local(phis[n], theta, place.depths[n], place.parts[n], optimizers())
    for n in who
  }
  size = {n: len(place.parts[n]) for n in who}

  def blend(own, mean):
    return lam * own + (1 - lam) * mean

  new = list(phis)
  for n in who:
    new[n] = {}
    for name, own in after[n][0].items():
      owners = [i for i in who if name in phis[i]]
      mean = by_hand.averaged([(size[i], after[i][0][name]) for i in owners])
      new[n][name] = jax.tree.map(blend, own, mean)
  server = {}
  for name, old in theta.items():
    passed = [
      (size[i], after[i][1][name])
      for i in who
      if name not in by_hand.blocks(1, place.depths[i])
    ]
    server[name] = by_hand.averaged(passed) or old
  return new, server


@pytest.mark.slow
def test_rounds_in_which_some_take_part():
  # The engine does not say who was drawn: exactly one subset must explain
  # what every client and the server hold. Of depth 1 there are more clients
  # than take part, of depths 2 and 3 fewer.
  place = toys.world(
    NET,
    (1, 2, 1, 3, 1, 1),
    toys.parts_of((9, 5, 7, 8, 4, 6)),
    batch_size=9,
    epochs=EPOCHS,
    participants=3,
  )
  method = splitgp(NET, optimizers_.sgd(*OUTER), gamma=GAMMA, lam=0.2)
  state, drawn = toys.start(place, method), set()
  step = toys.compiled(place, method, state)
  for _ in range(4):
    phis, theta = everyone(place, state)
    state, metrics = step(state, place.shards)
    assert int(metrics.participants) == 3
    got = everyone(place, state)
    gap = {
      who: toys.distance(got, round_by_hand(place, phis, theta, who, 0.2))
      for who in itertools.combinations(range(6), 3)
    }
    fits = [who for who in gap if gap[who] < TOL]
    assert len(fits) == 1, gap
    drawn.add(fits[0])
  assert len(drawn) > 1


def alone(optimizer):
  """Two rounds of a client of depth 3 and its server, among cuts 1, 2, 3."""
  place = toys.world(
    NET, (3,), toys.parts_of((9,)), batch_size=9, epochs=EPOCHS
  )
  method = splitgp(NET, optimizer, gamma=GAMMA)
  (phi,), theta = everyone(place, toys.start(place, method))
  state, _ = toys.train(place, method, 2)
  return place, phi, theta, state


@pytest.mark.slow
def test_momentum_is_forgotten_after_a_round():
  place, phi, theta, state = alone(optimizers_.sgd(*OUTER))
  for _ in range(2):
    phi, theta = local(phi, theta, 3, place.parts[0], optimizers())
  toys.assert_close(everyone(place, state), ([phi], theta), TOL)
  assert state.server.opt == () and state.clients[0].opt == ()


def test_momentum_may_be_kept():
  place, phi, theta, state = alone(optimizers_.sgd(*OUTER, keep_state=True))
  first, descend = theta, optimizers()
  for _ in range(2):
    phi, theta = local(phi, theta, 3, place.parts[0], descend)
  toys.assert_close(everyone(place, state), ([phi], theta), TOL)
  # Blocks that no one passed: not even weight decay moved them.
  new, slots = state.server.segment.params, state.server.opt
  for name in theta:
    rests = name in ("block2", "block3")
    gap = toys.distance(by_hand.arrays({name: new[name]})[name], first[name])
    assert (gap == 0) is rests
    buffers = jax.tree.leaves(slots[name])
    assert any(np.any(x) for x in buffers) is not rests
