"""Convex quadratic programs on the simplex, on the device."""

import jax
import jax.numpy as jnp
from jax import Array

STEPS = 1000
"""Number of steps of `minimise`; a test compares its result with scipy's."""


def project(x: Array, allowed: Array) -> Array:
  """Finds the point of the simplex {a >= 0, sum a = 1} nearest to x [N].

  A coordinate is 0 if its entry in `allowed` [N] is false. At least one entry
  must be true.
  """
  x = jnp.where(allowed, x, -jnp.inf)
  falling = -jnp.sort(-x)
  total = jnp.cumsum(jnp.where(jnp.isfinite(falling), falling, 0.0))
  rank = jnp.arange(1, len(x) + 1)
  count = (falling - (total - 1) / rank > 0).sum()
  shift = (total[count - 1] - 1) / count
  return jnp.maximum(x - shift, 0.0)


def minimise(q: Array, allowed: Array) -> Array:
  """Minimises a^T Q a over the simplex, by accelerated projected gradient.

  Q [N, N] is symmetric and positive semidefinite. Coordinates that are not
  `allowed` [N] are 0. Returns a [N].
  """
  q = jnp.where(allowed[:, None] & allowed, q, 0.0)
  # The largest row sum bounds the largest eigenvalue.
  slope = 2 * jnp.maximum(jnp.abs(q).sum(axis=1).max(), 1e-12)
  start = allowed / jnp.maximum(allowed.sum(), 1)

  def step(carry, _):
    a, y, t = carry
    new = project(y - 2 * (q @ y) / slope, allowed)
    # Momentum starts again where it points uphill (O'Donoghue and Candes).
    t = jnp.where((y - new) @ (new - a) > 0, 1.0, t)
    after = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
    return (new, new + (t - 1) / after * (new - a), after), None

  (a, *_), _ = jax.lax.scan(step, (start, start, jnp.ones(())), length=STEPS)
  return a
