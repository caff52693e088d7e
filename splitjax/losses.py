"""Terms of losses, one function per formula, for one client's batch.

Every mean is over the real samples of the batch. Padding has weight zero, and
a batch of padding alone gives 0 and a zero gradient.

Logits and embeddings of 16 bits are cast to jax's default float first: float32,
or float64 under `jax.enable_x64`.
"""

import jax
import jax.numpy as jnp
import optax
from jax import Array


def masked_mean(x: Array, real: Array) -> Array:
  """Mean of x [B] over the samples that are `real` [B] bool; 0 if none is."""
  return jnp.where(real, x, 0.0).sum() / jnp.maximum(real.sum(), 1)


def each_cross_entropy(logits: Array, label: Array) -> Array:
  """Cross-entropy [B] of each sample, nats; logits [B, C], label [B] int32."""
  # One-hot labels: the gradient of indexing is a scatter, slow on a GPU and
  # added in no fixed order.
  target = jax.nn.one_hot(label, logits.shape[-1])
  return optax.softmax_cross_entropy(logits.astype(float), target)


def entropy(logits: Array) -> Array:
  """Shannon entropy E = -sum_c p_c log p_c of softmax(logits), nats.

  Of logits [..., C]; the result [...] is between 0 and log C.
  """
  log_p = jax.nn.log_softmax(logits.astype(float))
  return -(jnp.exp(log_p) * log_p).sum(axis=-1)


def distance(a: Array, b: Array) -> Array:
  """Distance ||a - b|| [B] of rows [B, D], with gradient 0 at equal rows.

  The plain norm has gradient NaN at 0, and equal embeddings do occur: the early
  features of two blank images are equal.
  """
  square = jnp.square(a - b).sum(axis=-1)
  apart = square > 0
  return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


def unit(x: Array) -> Array:
  """Scales rows [B, D] to length 1; zero rows stay, with a finite gradient."""
  square = jnp.square(x).sum(axis=-1, keepdims=True)
  return x * jax.lax.rsqrt(jnp.maximum(square, 1e-12))
