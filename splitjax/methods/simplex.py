"""Convex quadratic programs on the simplex {a >= 0, sum a = 1}."""

import jax
import jax.numpy as jnp
from jax import Array
from optax.projections import projection_simplex

STEPS = 1000
"""Number of steps of `minimise`; a test compares its result with scipy's."""


def minimise(q: Array, allowed: Array) -> Array:
  """Minimises a^T Q a over the simplex, by accelerated projected gradient.

  Q [N, N] is symmetric and positive semidefinite. Coordinates that are not
  `allowed` [N] are 0. Returns a [N].
  """
  q = jnp.where(allowed[:, None] & allowed, q, 0.0)
  # The largest row sum bounds the largest eigenvalue.
  slope = 2 * jnp.maximum(jnp.abs(q).sum(axis=1).max(), 1e-12)

  def step(carry, _):
    a, y, t = carry
    moved = jnp.where(allowed, y - 2 * (q @ y) / slope, -jnp.inf)
    new = projection_simplex(moved)
    # Momentum starts again where it points uphill (O'Donoghue and Candes).
    t = jnp.where((y - new) @ (new - a) > 0, 1.0, t)
    after = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
    return (new, new + (t - 1) / after * (new - a), after), None

  start = allowed / jnp.maximum(allowed.sum(), 1)
  return jax.lax.scan(step, (start, start, jnp.ones(())), length=STEPS)[0][0]
