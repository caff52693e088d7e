"""The cut: two halves and a wire give the gradient of the uncut network."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_world as toys
from marks import slow

from splitjax import trees
from splitjax.methods import base
from splitjax.methods.split_pass import split_pass
from splitjax.models import backbones
from splitjax.wire import Channel, Wire, forms

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

NET = toys.network()
BATCH = toys.batch(1, 5, (True, True, False, True, False))
TIGHT = {"tol": 1e-11, "rtol": 1e-10}
"""Two programs of one formula in float64; the gradients are of order 1."""


def narrow(form):
  """The network whose features go up in a form."""
  return dataclasses.replace(NET, wire=Wire(features=Channel(form)))


def halves(depth):
  full = toys.fresh(NET)
  return backbones.prefix(NET, full, depth), backbones.suffix(NET, full, 1)


def apply(params, names, x):
  """Runs blocks without the package's walk."""
  for name in names:
    x = NET.block(name).apply({"params": params[name]}, x, True, None)
  return x


def mean_ce(logits, batch):
  log_p = jax.nn.log_softmax(logits)
  each = log_p[jnp.arange(len(batch.label)), batch.label]
  return -(each * batch.real).sum() / batch.real.sum()


@functools.cache
def uncut(depth):
  """(params, gamma) -> gradients and losses of a network never cut."""

  def loss(both, gamma):
    phi, theta = both
    z = apply(phi, NET.names(0, depth), BATCH.image)
    own = mean_ce(apply(phi, (f"exit{depth}",), z), BATCH)
    far = mean_ce(apply(theta, (*NET.names(depth), "head"), z), BATCH)
    return gamma * own + (1 - gamma) * far, (own, far)

  return jax.jit(jax.grad(loss, has_aux=True))


@functools.cache
def cut(depth):
  def run(client, server, gamma):
    return split_pass(NET, client, server, BATCH, gamma=gamma)

  return jax.jit(run)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("depth", NET.cuts)
def test_split_pass_is_the_gradient_of_the_uncut_network(depth, gamma):
  client, server = halves(depth)
  got = cut(depth)(client, server, gamma)
  (phi, theta), (own, far) = uncut(depth)((client.params, server.params), gamma)
  toys.assert_close(got.client, phi, **TIGHT)
  # The blocks before the entry have no gradient, and none is reported.
  bypassed = NET.names(1, depth)
  assert not any(x.any() for k in bypassed for x in jax.tree.leaves(theta[k]))
  rest = {k: v for k, v in theta.items() if k not in bypassed}
  toys.assert_close(got.server, rest, **TIGHT)
  np.testing.assert_allclose(got.losses["client"], own, rtol=1e-11)
  np.testing.assert_allclose(got.losses["server"], far, rtol=1e-11)


def test_a_client_without_exit_trains_on_the_server_loss_alone():
  client, server = halves(2)
  bare = backbones.select(client, NET.names(0, 2))
  got = jax.jit(lambda c, s: split_pass(NET, c, s, BATCH, gamma=0.0))(
    bare, server
  )
  (phi, _), _ = uncut(2)((client.params, server.params), 0.0)
  toys.assert_close(got.client, {k: phi[k] for k in bare.params}, **TIGHT)
  assert float(got.losses["client"]) == 0


def on_a_grid(tree):
  """Multiples of 1/32: blocks 1 and 2 then compute without any rounding, so
  no two programs disagree on which side of a step of the wire a feature is."""
  return jax.tree.map(lambda x: np.round(x * 32) / 32, tree)


@pytest.mark.parametrize(
  "dtype, bits", [("float16", 11), *slow(("bfloat16", 8))]
)
def test_a_narrow_wire_rounds_features_straight_through(dtype, bits):
  client, server = on_a_grid(halves(2))
  image = on_a_grid(np.asarray(BATCH.image / 4))
  batch = BATCH._replace(image=jnp.asarray(image))
  gamma, front, rear = 0.3, NET.names(0, 2), (*NET.names(2), "head")
  theta = {name: server.params[name] for name in rear}

  def far(theta, z):
    return mean_ce(apply(theta, rear, z), batch)

  at = jax.jit(jax.value_and_grad(far, (0, 1)))

  def by_hand(phi, dz):
    z = apply(phi, front, batch.image)
    own = mean_ce(apply(phi, ("exit2",), z), batch)
    # Linear in z with slope dz: the rounding itself has slope 1.
    return gamma * own + (1 - gamma) * (z * dz).sum()

  z = np.asarray(apply(client.params, front, batch.image))
  arrived = z.astype(jnp.dtype(dtype)).astype(float)
  # p significant bits, rounded to nearest: at most 2^-p of the number itself.
  assert (np.abs(arrived - z) <= 2.0**-bits * np.abs(z)).all()
  loss, (d_theta, dz) = at(theta, arrived)
  exact, (d_exact, _) = at(theta, z)

  # The slope of CE at the logits is p - e_y, no longer than sqrt 2; a ReLU
  # lengthens nothing, a dense layer by no more than its largest singular value.
  slope = np.sqrt(2) * np.prod(
    [np.linalg.norm(theta[k]["Dense_0"]["kernel"], 2) for k in rear]
  )
  moved = np.linalg.norm(arrived - z, axis=1)[np.asarray(batch.real)].mean()
  assert abs(loss - exact) <= slope * moved + 1e-12

  got = jax.jit(
    lambda c, s: split_pass(narrow(dtype), c, s, batch, gamma=gamma)
  )(client, server)
  np.testing.assert_allclose(got.losses["server"], loss, rtol=1e-11)
  d_theta, d_exact = (trees.scale(1 - gamma, d) for d in (d_theta, d_exact))
  toys.assert_close(got.server, d_theta, **TIGHT)
  d_phi = jax.jit(jax.grad(by_hand))(client.params, dz)
  toys.assert_close(got.client, d_phi, **TIGHT)
  # A wire without rounding would have been seen.
  assert toys.distance(d_theta, d_exact) > 2e-5


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_too_large_a_feature_arrives_as_the_largest_number(dtype):
  limit = {"float16": 65504.0}.get(dtype, 3.38e38)
  x = jnp.array([[1e38, -1e38, 0.25]])
  got = forms.cast(x, dtype)
  assert got.dtype == x.dtype and np.isfinite(got).all()
  want = np.clip([[1e38, -1e38, 0.25]], -limit, limit)
  np.testing.assert_allclose(got, want, rtol=2.0**-8)
  assert dtype != "float16" or float(got[0, 0]) == limit


def test_padding_is_as_if_it_were_not_there():
  # With batch norm, where samples see each other.
  net = toys.network((1, 2, 3), batch_norm=True)
  full = toys.fresh(net)
  args = backbones.prefix(net, full, 2), backbones.suffix(net, full, 1)
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
  z = apply(client.params, ("block1",), loud.image)
  assert z.max() > 65504
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))
  theta = {k: server.params[k] for k in (*NET.names(1), "head")}
  far = mean_ce(apply(theta, theta, np.clip(z, 0, 65504)), loud)
  # Features are rounded to 11 bits.
  np.testing.assert_allclose(got.losses["server"], far, rtol=2e-3)


def test_ledger_of_a_split_pass():
  def run(client, server):
    return {
      dtype: split_pass(narrow(dtype), client, server, BATCH, gamma=0.5).ledger
      for dtype in ("float32", "float16")
    }

  ledger = jax.jit(run)(*halves(2))
  # 3 real samples of 5, features 7 wide; int32 labels.
  assert _numbers(ledger["float32"]) == {
    "up/features": 3 * 7 * 4, "up/labels": 3 * 4,
    "down/feature_gradient": 3 * 7 * 4,
  }  # fmt: skip
  assert _numbers(ledger["float16"]) == {
    "up/features": 3 * 7 * 2, "up/labels": 3 * 4,
    "down/feature_gradient": 3 * 7 * 4,
  }  # fmt: skip


def _numbers(ledger):
  return {name: float(size) for name, size in ledger.items()}


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
    assert _numbers(base.traffic(NET, "up", client, keep)) == want
