"""The test by which a client's update is left out of the means."""

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.types import Tree

SMALL = 2**14
"""Largest leaf that `finite` joins with other leaves."""

LARGEST = 1e30
"""Absolute values that sum to this count as infinite: a weighted sum over
clients might overflow."""


def finite(tree: Tree) -> Array:
  """Tells whether all floats are finite and not too large to sum: [] bool."""
  floats = [
    x.astype(float)
    for x in jax.tree.leaves(tree)
    if jnp.issubdtype(x.dtype, jnp.floating)
  ]
  # Small leaves are joined first: reducing each by itself took a twelfth of the
  # compile time of HARMONY's round. Joining large ones would cost memory.
  joined = [jnp.zeros(1), *(x.ravel() for x in floats if x.size <= SMALL)]
  parts = [jax.lax.optimization_barrier(jnp.concatenate(joined))]
  parts += [x for x in floats if x.size > SMALL]
  # A sum, because on a CPU a maximum would pass over NaN.
  fits = jnp.stack([jnp.abs(x).sum() for x in parts]) < LARGEST
  # A loop: XLA would duplicate a plain reduction in front of every leaf that
  # depends on the result, and compile time would grow with leaves squared.
  return jax.lax.scan(lambda a, b: (a & b, None), fits[0], fits)[0]
