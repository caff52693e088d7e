"""SplitGP's local step against a second one, in plain NumPy; padding, bytes."""

import dataclasses

import by_hand
import jax
import numpy as np
import pytest
import toy_world as toys

from splitjax import methods, models, split_pass
from splitjax.methods import splitgp
from splitjax.wire import Channel, Wire

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network()
BATCH = toys.batch(1, 5, (True, True, False, True, False))
OUTER = 0.1, 0.9, 0.05
"""Learning rate, momentum, weight decay."""
MASKS = (True,) * 6, (True, False, True, True, False, True)


def narrow(form):
  """The network whose features go up in a form."""
  return dataclasses.replace(NET, wire=Wire(features=Channel(form)))


@pytest.mark.parametrize(
  ("depth", "gamma", "form"),
  [(1, 0.3, "float32"), (3, 1.0, "float32"), (2, 0.0, "float16")],
)
def test_two_steps(depth, gamma, form):
  """The uncut network's gradient; a rounding of features has slope 1."""
  optimizer = methods.sgd(*OUTER)
  step = jax.jit(splitgp(narrow(form), optimizer, gamma=gamma).stages[0].step)
  for mask in MASKS:
    client, server = toys.pair(NET, depth, optimizer)
    phi = by_hand.arrays(client.segment.params)
    theta = first = by_hand.arrays(server.segment.params)
    descend = [by_hand.Sgd(*OUTER) for _ in range(2)]
    for t in range(2):
      batch = toys.batch(t, 6, mask)
      client, server, told, _ = step(client, server, (batch,), None)
      own, far, d_phi, d_theta = by_hand.split_step(
        phi, theta, depth, by_hand.data(batch), gamma, form
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


def halves(depth):
  full = toys.fresh(NET)
  return models.prefix(NET, full, depth), models.suffix(NET, full, 1)


def test_a_client_without_exit_trains_on_the_server_loss_alone():
  client, server = halves(2)
  bare = models.select(client, NET.names(0, 2))
  got = jax.jit(lambda c, s: split_pass(NET, c, s, BATCH, gamma=0.0))(
    bare, server
  )
  phi, theta = (by_hand.arrays(half.params) for half in (client, server))
  _, far, want, _ = by_hand.split_step(phi, theta, 2, by_hand.data(BATCH), 0.0)
  want = {name: want[name] for name in bare.params}
  toys.assert_close(by_hand.arrays(got.client), want, 1e-11, 1e-10)
  np.testing.assert_allclose(got.losses["server"], far, rtol=1e-11)
  assert float(got.losses["client"]) == 0


def test_padding_is_as_if_it_were_not_there():
  # With batch norm, where samples see each other.
  net = toys.network((1, 2, 3), batch_norm=True)
  full = toys.fresh(net)
  args = models.prefix(net, full, 2), models.suffix(net, full, 1)
  rows = np.flatnonzero(BATCH.real)
  short = jax.tree.map(lambda x: x[rows], BATCH)

  def run(client, server):
    return [
      split_pass(net, client, server, batch, gamma=0.3)
      for batch in (BATCH, short)
    ]

  padded, plain = toys.hasty(run, *args)(*args)
  toys.assert_close(padded, plain)
  # One step of an average with momentum 0.9, over real samples.
  dense, stats = full.params["block1"], full.stats["block1"]["BatchNorm_0"]
  x = np.asarray(short.image).reshape(len(rows), -1)
  x = x @ dense["Dense_0"]["kernel"] + dense["Dense_0"]["bias"]
  new = padded.client_stats["block1"]["BatchNorm_0"]
  for old, got, now in (
    (stats["mean"], new["mean"], x.mean(0)),
    (stats["var"], new["var"], x.var(0)),
  ):
    np.testing.assert_allclose(got, 0.9 * old + 0.1 * now, rtol=1e-10)


def test_a_split_pass_survives_features_beyond_float16():
  client, server = halves(1)
  loud = BATCH._replace(image=BATCH.image * 1e6)
  got = jax.jit(
    lambda c, s: split_pass(narrow("float16"), c, s, loud, gamma=0.5)
  )(client, server)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))
  phi, theta = (by_hand.arrays(half.params) for half in (client, server))
  x, label, real = by_hand.data(loud)
  z = by_hand.walk(phi, ("block1",), x)[-1]
  assert z.max() > 65504
  z = by_hand.walk(theta, by_hand.blocks(1), np.clip(z, 0, 65504))[-1]
  far, *_ = by_hand.classify(theta, "head", z, label, real)
  # Features are rounded to 11 bits.
  np.testing.assert_allclose(got.losses["server"], far, rtol=2e-3)


def test_a_client_sends_what_it_does_not_keep_for_itself():
  client, _ = halves(2)
  block1, block2, exit2 = 16 * 5 + 5, 5 * 7 + 7, 7 * 3 + 3
  # NumPy's float64, sent as it is.
  full = {"up/prefix": (block1 + block2) * 8, "up/exit": exit2 * 8}
  for keep, want in (
    (0.0, full),
    (0.9, full),
    (1.0, {}),
    (lambda name: float(name == "exit2"), {"up/prefix": full["up/prefix"]}),
  ):
    assert methods.traffic(NET, "up", client, keep) == want


def test_normalisation_that_stays_with_its_client_costs_nothing():
  net = dataclasses.replace(toys.network((1, 2), True), local_norm=True)
  client, _ = toys.pair(net, 2, methods.sgd(0.1))
  blocks, last = 16 * 5 + 5 + 5 * 7 + 7, 7 * 3 + 3
  found = methods.traffic(net, "up", client.segment, 0.0)
  assert found == {"up/prefix": 8 * blocks, "up/exit": 8 * last}  # float64
