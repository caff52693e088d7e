"""Gradients and logits of networks that compute in bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax import models
from splitjax.models import BACKBONES, Conv, Dense, Style

HALF = Style("bfloat16")
LAYERS = {
  "conv": (Conv(4, style=HALF), (8, 28, 28, 3)),
  "dense": (Dense(4, style=HALF), (2000, 3)),
  "heads": (Dense((2, 3), style=HALF), (40, 50, 6)),
  "from heads": (Dense(4, 2, style=HALF), (40, 50, 2, 3)),
}


def test_a_bias_gradient_counts_every_sample():
  """In bfloat16 a running sum of ones stays at 256."""
  x = {name: jnp.ones(shape) for name, (_, shape) in LAYERS.items()}
  key = jax.random.key(0)
  params = {
    name: jax.tree.map(
      lambda like: jnp.zeros(like.shape, like.dtype),
      jax.eval_shape(layer.init, key, x[name]),
    )
    for name, (layer, _) in LAYERS.items()
  }

  def total(params):
    out = [layer.apply(params[n], x[n]) for n, (layer, _) in LAYERS.items()]
    return sum(y.astype(jnp.float32).sum() for y in out)

  grads = jax.jit(jax.grad(total))(params)
  for name, (layer, _) in LAYERS.items():
    found = grads[name]["params"]["bias"]
    rows = jax.eval_shape(layer.apply, params[name], x[name]).size / found.size
    np.testing.assert_array_equal(found, np.full(found.shape, rows))


@pytest.mark.slow
def test_gradients_stay_close_and_logits_are_float32():
  x = jax.random.normal(jax.random.key(1), (16, 32, 32, 3))
  passes = {}
  for dtype in ("float32", "bfloat16"):
    style = Style(dtype)
    net = BACKBONES["cnn8"]((32, 32, 3), 10, width=1 / 16, style=style)
    full = models.init(net, jax.random.key(0))

    def loss(params, net=net, full=full):
      segment = full._replace(params=params)
      names = (*net.names(), "head")
      logits, _ = models.run(net, segment, x, names, train=True)
      return -jax.nn.log_softmax(logits)[:, 0].mean(), logits

    grads, logits = jax.jit(jax.grad(loss, has_aux=True))(full.params)
    leaves = jax.tree.leaves((logits, grads))
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    row = np.concatenate([np.ravel(g) for g in jax.tree.leaves(grads)])
    passes[dtype] = np.asarray(logits), row
  (exact, b), (rough, a) = passes["float32"], passes["bfloat16"]
  # Not rounded to 8 bits: the classifier itself computes in float32.
  assert (rough.astype(jnp.bfloat16).astype(np.float32) != rough).any()
  np.testing.assert_allclose(rough, exact, atol=0.1)
  # 8 bits a product: the direction must hold.
  assert np.linalg.norm(a - b) < 0.4 * np.linalg.norm(b)
  assert a @ b > 0.93 * np.linalg.norm(a) * np.linalg.norm(b)
