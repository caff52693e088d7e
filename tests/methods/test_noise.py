"""Noise on messages: clipped rows, Gaussian noise, nothing where there is none.

Where a batch and its keys come from is the engine's.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax import models, trees, wire
from splitjax.methods import METHODS
from splitjax.simulation import sandbox
from splitjax.types import Batch
from splitjax.wire import Channel, Wire

BATCH = Batch((), (), jnp.array([True, True, False]), jax.random.key(3))
FEATURES, GRADIENT = "up/features", "down/feature_gradient"
X = np.random.default_rng(0).normal(size=(3, 2, 4)) * [[[0.1]], [[5]], [[1]]]


def send(x, channel, name=FEATURES, batch=BATCH):
  channels = Wire(features=channel, gradients=channel)
  return wire.send(channels, name, jnp.asarray(x), batch)


def clipped(x, clip):
  norm = np.sqrt((x.reshape(len(x), -1) ** 2).sum(axis=1))
  return x * np.minimum(1, clip / norm).reshape(-1, 1, 1)


@pytest.mark.numeric
@pytest.mark.parametrize("name", [FEATURES, GRADIENT])
def test_rows_are_clipped_to_a_norm_one_by_one(name, float64):
  got = send(X, Channel(clip=1.0), name)
  np.testing.assert_allclose(got, clipped(X, 1.0), rtol=1e-12)
  np.testing.assert_array_equal(got[0], X[0])  # shorter than the clip
  large = send(X * 1e200, Channel(clip=1.0), name)  # whose square overflows
  np.testing.assert_allclose(large, clipped(X, 1e-9) * 1e9, rtol=1e-9)
  assert not send(0 * X, Channel(clip=1.0), name).any()


@pytest.mark.numeric
def test_noise_is_gaussian_with_the_deviation_asked_for(float64):
  n, channel = 4000, Channel(clip=0.5, noise=3.0)

  @jax.jit
  @jax.vmap
  def draw(key):
    return send(X, channel, batch=BATCH._replace(key=key))

  got = draw(jax.random.split(jax.random.key(1), n)) - clipped(X, 0.5)
  z = np.asarray(got).reshape(n, -1) / 1.5
  assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(n)
  # Of a standard normal: the variance of squares is 2, of 4th powers 96.
  assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / n)
  assert np.abs((z**4).mean(axis=0) - 3).max() < 5 * np.sqrt(96 / n)
  # Numbers of a row and rows of a batch are independent.
  cross = z.T @ z / n - np.eye(z.shape[1])
  assert np.abs(cross - np.diag(np.diag(cross))).max() < 5 / np.sqrt(n)


def test_noise_comes_before_the_form():
  noise = {"clip": 0.5, "noise": 3.0}
  plain = send(X, Channel(**noise))
  for form in ("float16", "int8", "topk", "random"):
    want = send(plain, Channel(form=form))
    np.testing.assert_array_equal(send(X, Channel(form=form, **noise)), want)


@pytest.mark.parametrize("form", ["float32", "random"])
def test_rows_draw_the_same_in_a_longer_batch(form):
  # Batches are as long as those of the largest client.
  channel = Channel(form=form, clip=0.5, noise=1.0)
  longer = np.concatenate([X, X, X[:1]])
  batch = BATCH._replace(real=jnp.arange(7) < 2)
  got = send(longer, channel, batch=batch)
  np.testing.assert_array_equal(got[:3], send(X, channel))


def test_a_clip_beyond_all_rows_is_nothing():
  for form in ("float16", "int8"):
    far = send(X, Channel(form=form, clip=1e30))
    np.testing.assert_array_equal(far, send(X, Channel(form=form)))


def world(channels):
  """The sandbox of SplitGP, whose messages travel by these channels."""
  return sandbox.small(METHODS["splitgp"], channels=channels)


def test_without_noise_nothing_is_drawn():
  def text(channel):
    channels = Wire(features=channel)
    sent = jax.jit(wire.send, static_argnums=1)
    return sent.lower(channels, FEATURES, jnp.asarray(X), BATCH).as_text()

  plain = text(Channel())
  assert text(Channel(form="float32", share=0.7)) == plain
  assert "shift" not in plain  # of random bits
  assert "shift" not in text(Channel(clip=1.0)) != plain
  # One program for all clips and deviations.
  noisy = text(Channel(clip=1.0, noise=1.0))
  assert "shift" in noisy and noisy == text(Channel(clip=0.1, noise=2.0))


@pytest.mark.numeric
def test_the_server_predicts_from_clipped_features(float64):
  made = world(Wire(features=Channel(clip=0.5, noise=1.0)))
  plain, state = world(Wire()).method, made.state()
  method, server = made.method, state.server
  client = method.model(trees.take(state.clients[0], 0), server)
  image = jax.random.normal(jax.random.key(1), (3, *method.backbone.shape))
  got = method.predict(client, server.net, image)
  other = plain.predict(client, server.net, image)
  np.testing.assert_array_equal(got.client, other.client)

  # The server's blocks on features of norm 0.5 at most.
  z, _ = models.client_logits(method.backbone, client, image)
  norm = np.sqrt((np.asarray(z).reshape(3, -1) ** 2).sum(axis=1))
  assert (norm > 0.5).all()
  short = z * (0.5 / norm).reshape(3, *[1] * (z.ndim - 1))
  depth = method.depth(client)
  want = models.server_logits(plain.backbone, server.net, short, depth)
  np.testing.assert_allclose(got.server, want, rtol=1e-10)
