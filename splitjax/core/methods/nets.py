"""Networks as dicts of blocks: joined, shared out among clients, averaged."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.core.records import Net, Share, Tree


def select(net: Net, wanted: Callable[[str], bool]) -> Net:
  """Replaces by None all leaves but those whose path is `wanted`.

  The path of a leaf is that of its block and of flax, as in
  "block1/BatchNorm_0/scale"; parameters and statistics have the same.
  """

  def choose(path, leaf):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    return leaf if wanted(name) else None

  return Net(*(jax.tree_util.tree_map_with_path(choose, part) for part in net))


def join(kept: Net, common: Net) -> Net:
  """Completes the blocks of `kept`: a leaf that is None comes from `common`."""
  return Net(
    *(
      {
        name: _fill(tree, common_part.get(name))
        for name, tree in kept_part.items()
      }
      for kept_part, common_part in zip(kept, common, strict=True)
    )
  )


def _fill(kept: Tree, common: Tree) -> Tree:
  if not jax.tree.leaves(common):
    return kept
  return jax.tree.map(
    lambda leaf, other: other if leaf is None else leaf,
    kept,
    common,
    is_leaf=lambda x: x is None,
  )


def shares(net: Net, weight: Array | Net) -> Net:
  """Turns every block into the Share of a mean over clients.

  `weight` [] is that of the client, or a Net with a weight for each block.
  """
  if not isinstance(weight, Net):
    weight = Net(*(dict.fromkeys(part, weight) for part in net))
  return Net(
    *(
      {name: share(tree, weights[name]) for name, tree in part.items()}
      for part, weights in zip(net, weight, strict=True)
    )
  )


def share(tree: Tree, weight: Array) -> Share:
  """Makes a share; a weight of 0 turns even NaN into 0."""
  total = jax.tree.map(lambda x: jnp.where(weight > 0, weight * x, 0.0), tree)
  return Share(total, weight)


def means(shared: Net, old: Net) -> Net:
  """Averages block by block; one of which nobody has a share stays `old`."""
  return Net(
    *(
      {
        name: sums[name].mean(tree) if name in sums else tree
        for name, tree in part.items()
      }
      for sums, part in zip(shared, old, strict=True)
    )
  )


def union(a: Tree, b: Tree) -> Tree:
  """Adds two trees of sums; keeps a dict's entry that only one of them has."""
  if isinstance(a, dict):
    both = {name: union(a[name], b[name]) for name in a if name in b}
    return a | b | both
  if isinstance(a, tuple):
    parts = map(union, a, b)
    return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
  return None if a is None else a + b


def combine(weights: Array, tree: Tree) -> Tree:
  """Combines clients' arrays linearly, in full precision on any device.

  Args:
    weights: [M, N] for M combinations, or [N] for one.
    tree: arrays [N, ...].

  Returns:
    A tree of arrays [M, ...], or [...] for one combination.
  """
  exact = jax.lax.Precision.HIGHEST
  return jax.tree.map(
    lambda x: jnp.tensordot(weights, x, 1, precision=exact), tree
  )
