"""Losses and their terms, one function per formula, for one client's batch.

Every mean is over the real samples of the batch. Padding has weight zero, and
a batch of padding alone gives 0 and a zero gradient.

Logits and embeddings of 16 bits are cast to jax's default float first: float32,
or float64 under `jax.enable_x64`.
"""

import jax
import jax.numpy as jnp
import optax

from splitjax.types import Array


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


def csa(
  early: Array,
  late: Array,
  same: Array,
  real: Array,
  *,
  margin: float = 1.0,
  normalize: bool = True,
) -> Array:
  """Contrastive semantic alignment, l_CSA (HARMONY eq. 7), mean over the batch.

  With d_i = ||z_i - z'_i||,
  mean_i { I_i d_i^2 / 2 + (1 - I_i) max(0, m - d_i)^2 / 2 }

  Args:
    early: [B, D] float, embeddings z of the early view (dagger).
    late: [B, D] float, embeddings z' of the full view (double dagger).
    same: [B] bool, I: whether the two samples of a pair share their class.
    real: [B] bool.
    margin: m, in the units of the embeddings.
    normalize: scale embeddings to length 1 first. Raw embeddings need a smaller
      weight and a larger margin, because their squared distance dominates the
      loss.

  References:
    HARMONY section 3.5; the pair loss of Motiian et al. 2017.
  """
  early, late = early.astype(float), late.astype(float)
  if normalize:
    early, late = unit(early), unit(late)
  d = distance(early, late)
  pull = 0.5 * jnp.square(d)
  push = 0.5 * jnp.square(jnp.maximum(margin - d, 0.0))
  return masked_mean(jnp.where(same, pull, push), real)
