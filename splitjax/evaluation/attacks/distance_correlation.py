"""Distance correlation: how much of the inputs' geometry the features keep.

References:
  Székely, Rizzo and Bakirov, Measuring and Testing Dependence by Correlation of
    Distances, Annals of Statistics 35, 2007.
  Vepakomma et al., NoPeek: Information Leakage Reduction to Share Activations
    in Distributed Deep Learning, ICDM Workshops 2020: its use at the cut.
"""

import jax
import jax.numpy as jnp

from splitjax.evaluation.attacks.contract import (
  Attack,
  Messages,
  Public,
  Scores,
)
from splitjax.types import Array


def distance_correlation() -> Attack:
  """Measures the distance correlation of inputs and features sent up.

  The score `permuted` is the correlation after the features are permuted among
  samples. It shows how large the correlation is by chance: far above 0 for few
  samples in many dimensions.
  """

  def run(messages: Messages, public: Public, key: Array) -> Scores:
    del public
    x, z = messages.truth.image, messages.sent["up/features"]
    real = messages.real
    # Permute the real samples; padding stays last.
    order = jnp.argsort(jnp.where(real, jax.random.uniform(key, real.shape), 2))
    mixed = jnp.zeros_like(order).at[jnp.argsort(~real, stable=True)].set(order)
    return {
      "correlation": correlation(x, z, real),
      "permuted": correlation(x, z[mixed], real),
    }

  numbers = {"correlation": "", "permuted": ""}
  return Attack(run, ("up/features",), numbers, inputs="numbers")


def correlation(x: Array, z: Array, real: Array) -> Array:
  """Distance correlation of two sets of rows (Székely et al., eq. 2.8-2.10).

  sqrt(V(x, z) / sqrt(V(x, x) V(z, z))) with V(x, z) = mean_kl A_kl B_kl

  A_kl is the distance |x_k - x_l|, minus its mean over k, minus its mean over
  l, plus its mean over both. B_kl is computed from z in the same way.

  Args:
    x: [n, ...] float.
    z: [n, ...] float.
    real: [n] bool.

  Returns:
    [] float in 0..1; 1 if z is x, scaled, rotated and moved; 0 if one of them
    is constant.
  """
  a, b = _centred(x, real), _centred(z, real)
  variance = jnp.sqrt((a * a).sum() * (b * b).sum())
  share = (a * b).sum() / jnp.where(variance > 0, variance, 1.0)
  return jnp.sqrt(jnp.maximum(share, 0.0))


def _centred(x: Array, real: Array) -> Array:
  """Doubly centred distances [n, n] of the real rows of x; 0 elsewhere."""
  x = x.reshape(len(x), -1).astype(float)
  both = real[:, None] & real[None, :]
  # Row by row: [n, n, D] exceeds memory, and |x|^2 + |y|^2 - 2 xy loses digits.
  apart = jax.lax.map(lambda row: jnp.linalg.norm(x - row, axis=-1), x)
  apart = jnp.where(both, apart, 0.0)
  count = jnp.maximum(real.sum(), 1)
  row = apart.sum(axis=0) / count
  centred = apart - row - row[:, None] + row.sum() / count
  return jnp.where(both, centred, 0.0)
