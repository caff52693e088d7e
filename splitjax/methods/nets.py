"""Networks as dicts of blocks: parted leaf by leaf, joined, added, combined."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.types import Net, Tree, UserError

LARGEST = 1e30
"""What is added up over clients must be smaller, or counts as infinite: sums
of absolute values of an update, squared distances."""


def select(net: Net, wanted: Callable[[str], bool]) -> Net:
  """Replaces by None all leaves but those whose path is `wanted`.

  A path is that of the block and of flax, "block1/BatchNorm_0/scale".
  """

  def choose(path, leaf):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return leaf if wanted(name) else None

  return Net._make(
    jax.tree_util.tree_map_with_path(choose, part) for part in net
  )


def map_blocks(function: Callable[..., Any], net: Net, *nets: Net) -> Net:
  """Maps each block of `net`, with those of its name in `nets`, or None."""

  def of_part(part, *parts):
    return {
      name: function(tree, *(blocks.get(name) for blocks in parts))
      for name, tree in part.items()
    }

  return Net._make(map(of_part, net, *nets))


def join(partial: Net, common: Net) -> Net:
  """Completes `partial`: a leaf that is None comes from `common`."""

  def missing(leaf):
    return leaf is None

  def leaf_of(leaf, mean):
    return mean if leaf is None else leaf

  def fill(tree, means):
    if jax.tree.leaves(means):
      tree = jax.tree.map(leaf_of, tree, means, is_leaf=missing)
    return tree

  net = map_blocks(fill, partial, common)
  for path, leaf in jax.tree_util.tree_leaves_with_path(net, is_leaf=missing):
    if leaf is None:
      name = jax.tree_util.keystr(path[1:], simple=True, separator="/")
      raise UserError(
        f"{name}: a client neither keeps this leaf nor sends it, so that nobody"
        " has it: let `keeps` or `sends` be true"
      )
  return net


def add(a: Tree, b: Tree) -> Tree:
  """Adds two trees of sums; keeps a dict's entry that only one of them has."""
  if isinstance(a, dict):
    both = {name: add(a[name], b[name]) for name in a if name in b}
    return a | b | both
  if isinstance(a, tuple):
    parts = map(add, a, b)
    return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
  return None if a is None else a + b


def combine(weights: Array, tree: Tree) -> Tree:
  """Sums clients' [N, ...] by weights [M, N] -> [M, ...], or [N] -> [...]."""
  exact = jax.lax.Precision.HIGHEST  # full on any device
  return jax.tree.map(
    lambda x: jnp.tensordot(weights, x, 1, precision=exact), tree
  )
