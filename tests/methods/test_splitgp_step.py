"""SplitGP's local step against a second one, in plain NumPy."""

import by_hand
import jax
import numpy as np
import pytest
import toy_world as toys
from marks import slow

from splitjax.methods import optimizers
from splitjax.methods.splitgp import splitgp

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network()
LR, MOMENTUM, DECAY = 0.1, 0.9, 0.05
MASKS = {"full": (True,) * 6, "part": (True, False, True, True, False, True)}


@pytest.mark.parametrize(
  ("depth", "gamma"), [(1, 0.3), (3, 0.3), (2, 0.0), *slow((2, 0.3))]
)
def test_two_steps(depth, gamma):
  optimizer = optimizers.sgd(LR, MOMENTUM, DECAY)
  step = jax.jit(splitgp(NET, optimizer, gamma=gamma).stages[0].step)
  for mask in MASKS.values():
    client, server = toys.pair(NET, depth, optimizer)
    phi = by_hand.arrays(client.segment.params)
    theta = by_hand.arrays(server.segment.params)
    first = theta
    descend = [by_hand.Sgd(LR, MOMENTUM, DECAY) for _ in range(2)]
    for t in range(2):
      batch = toys.batch(t, 6, mask)
      client, server, told, _ = step(client, server, (batch,), None)
      own, far, d_phi, d_theta = by_hand.split_step(
        phi, theta, depth, by_hand.data(batch), gamma
      )
      phi, theta = descend[0](phi, d_phi), descend[1](theta, d_theta)
      assert float(told["client"]) == pytest.approx(own, rel=1e-10)
      assert float(told["server"]) == pytest.approx(far, rel=1e-10)
      toys.assert_close(by_hand.arrays(client.segment.params), phi)
      toys.assert_close(by_hand.arrays(server.segment.params), theta)
    passed = {name: name not in NET.names(1, depth) for name in theta}
    assert {k: bool(v) for k, v in server.opt.touched.items()} == passed
    for name, on in passed.items():
      assert (toys.distance(theta[name], first[name]) > 1e-3) is on


def test_the_learning_rate_follows_the_schedule():
  # Cosine over 4 rounds: in round 1 the factor is (1 + cos(pi / 4)) / 2.
  optimizer = optimizers.sgd(LR, 0.0, 0.0, schedule="cosine", rounds=4)
  step = jax.jit(splitgp(NET, optimizer, gamma=0.3).stages[0].step)
  client, server = toys.pair(NET, 2, optimizer)
  phi, theta = (
    by_hand.arrays(half.segment.params) for half in (client, server)
  )
  client, server = (
    optimizers.begin_round(half, optimizer, np.int32(1))
    for half in (client, server)
  )
  batch = toys.batch(0)
  client, server, *_ = step(client, server, (batch,), None)
  _, _, d_phi, d_theta = by_hand.split_step(
    phi, theta, 2, by_hand.data(batch), 0.3
  )
  lr = LR * (1 + np.cos(np.pi / 4)) / 2
  descend = by_hand.Sgd(lr, 0.0, 0.0)
  got = by_hand.arrays(client.segment.params)
  toys.assert_close(got, descend(phi, d_phi))
  got = by_hand.arrays(server.segment.params)
  toys.assert_close(got, descend(theta, d_theta))
