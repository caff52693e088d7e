"""Gradients and logits of networks that compute in bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_networks import TINY

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
@pytest.mark.parametrize("name", ["cnn8", "vit_s16"])
def test_gradients_stay_close_and_logits_are_float32(name):
  options = {**TINY[name], "width": 1 / 16}
  x = jax.random.normal(jax.random.key(1), (16, 32, 32, 3))
  found = {}
  for dtype in ("float32", "bfloat16"):
    net = BACKBONES[name]((32, 32, 3), 10, style=Style(dtype), **options)
    full = jax.jit(lambda k, net=net: models.init(net, k))(jax.random.key(0))

    def loss(params, net=net, full=full):
      segment = full._replace(params=params)
      names = (*net.names(), "head")
      logits, stats = models.run(net, segment, x, names, train=True)
      leaves = jax.tree.leaves((logits, stats))
      assert all(leaf.dtype == jnp.float32 for leaf in leaves)
      return -jax.nn.log_softmax(logits)[:, 0].mean(), logits

    (_, logits), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(
      full.params
    )
    found[dtype] = np.asarray(logits), jax.tree.leaves(grads)
  exact, rough = found["float32"], found["bfloat16"]
  # Not rounded to 8 bits: the classifier itself computes in float32.
  rounded = rough[0].astype(jnp.bfloat16).astype(np.float32)
  assert (rounded != rough[0]).any()
  np.testing.assert_allclose(rough[0], exact[0], atol=0.1)
  assert all(g.dtype == jnp.float32 for g in rough[1])
  a, b = (
    np.concatenate([np.ravel(g) for g in side]) for side in (rough[1], exact[1])
  )
  # 8 bits a product through layers of batch norm: the direction must hold.
  assert np.linalg.norm(a - b) < 0.4 * np.linalg.norm(b)
  assert a @ b > 0.93 * np.linalg.norm(a) * np.linalg.norm(b)
