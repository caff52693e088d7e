"""Arithmetic on pytrees, and their places along a leading client axis."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.types import Tree


def where(flag: Array, new: Tree, old: Tree) -> Tree:
  """Takes `new` where `flag`, bool [] or [N], is true, and `old` elsewhere."""

  def select(a, b):
    shape = flag.shape + (1,) * (jnp.ndim(a) - flag.ndim)
    return jnp.where(flag.reshape(shape), a, b)

  return jax.tree.map(select, new, old)


def scale(factor: Array | float, tree: Tree) -> Tree:
  """Multiplies every leaf by `factor` [] float."""
  return jax.tree.map(lambda x: factor * x, tree)


def add(a: Tree, b: Tree) -> Tree:
  """Adds two pytrees leaf by leaf."""
  return jax.tree.map(jnp.add, a, b)


def norm(tree: Tree) -> Array:
  """Computes the Euclidean norm over all leaves, [] float."""
  _, scale, length = _within_range(tree)
  return scale * length


def clipped(tree: Tree, limit: Array | float) -> Tree:
  """Scales a tree down to norm `limit` if its norm is larger."""
  divided, scale, length = _within_range(tree)
  factor = limit / jnp.maximum(length, limit / scale)
  return jax.tree.map(lambda x: factor * x, divided)


def _within_range(tree: Tree) -> tuple[Tree, Array, Array]:
  """Divides by a scale -> the quotients, the scale, the quotients' norm.

  Squares of numbers above 1e19 overflow in float32. The scale is a power of
  two, so that the division changes no digit but of numbers that are 1e38 times
  smaller than the largest; it is 1 for numbers up to 8.
  """
  leaves = jax.tree.leaves(tree)
  peaks = [jnp.ones(()), *(jnp.abs(x).max(initial=0) for x in leaves)]
  # A quarter, since 1 / scale must not be subnormal, which is taken for 0.
  quarter = jnp.stack(peaks).max() / 4
  bits = jnp.finfo(quarter.dtype).nexp
  scale = jax.lax.reduce_precision(quarter, bits, 0)
  divided = jax.tree.map(lambda x: x / scale, tree)
  squares = [jnp.sum(x * x) for x in jax.tree.leaves(divided)]
  return divided, scale, jnp.sqrt(sum(squares, jnp.zeros(())))


def repeat(tree: Tree, n: int) -> Tree:
  """Stacks n equal copies: [...] -> [n, ...]."""
  return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), tree)


def take(tree: Tree, rows: Array | np.ndarray | int | slice) -> Tree:
  """Indexes all leaves: [N, ...] -> [len(rows), ...], or [...] for an int."""
  return jax.tree.map(lambda x: x[rows], tree)


def put(tree: Tree, rows: Array | slice, new: Tree) -> Tree:
  """Sets x[rows] to `new` in every leaf x [N, ...]; drops rows from N on."""
  return jax.tree.map(lambda x, y: x.at[rows].set(y), tree, new)


def zeros(shapes: Tree) -> Tree:
  """Makes zeros with the shapes and dtypes of the leaves of `shapes`."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def num_bytes(tree: Tree) -> int:
  """Counts the bytes of a pytree of arrays or ShapeDtypeStructs."""
  return sum(int(x.size) * x.dtype.itemsize for x in jax.tree.leaves(tree))
