"""Networks as dicts of blocks: joined, shared out among clients, averaged.

The mean of a block begins with `shares`: of each client, in `Method.send` and
`Method.copies`, its weight times its leaves, and its weight. The round adds the
shares up, over all clients, chunks, cohorts and devices that have the block.
Then `means` divides (`engine.round.aggregate`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.types import Net, Tree, UserError

COMMON = "common"
THETA = "theta"
"""Names of the shares whose means are Server.common and Server.net."""

LARGEST = 1e30
"""What is added up over clients must be smaller, or counts as infinite: sums
of absolute values of an update, squared distances."""

Shares = dict[str, Tree]
"""Name -> a client's share of a sum over clients, or that sum."""


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


class Share(NamedTuple):
  """A client's share of a weighted mean; `add` adds shares up over clients.

  A weight is [] float, 0 for a client that does not count, or [L] for L means
  with totals [L, ...].
  """

  total: Tree  #: weight times the client's leaves
  weight: Array

  def mean(self, old: Tree) -> Tree:
    """Returns total / weight, or `old` if no client has a share."""
    if self.weight.ndim:
      return jax.vmap(Share.mean)(self, old)
    some = self.weight > 0
    weight = jnp.where(some, self.weight, 1.0)
    return jax.tree.map(
      lambda total, leaf: jnp.where(some, total / weight, leaf), self.total, old
    )


def shares(net: Net, weight: Array | Net) -> Net:
  """Turns blocks into Shares; `weight` is the client's, or a Net of weights."""
  if isinstance(weight, Net):
    return map_blocks(share, net, weight)
  return map_blocks(lambda tree: share(tree, weight), net)


def share(tree: Tree, weight: Array) -> Share:
  """Makes a share; a weight of 0 turns even NaN into 0."""
  total = jax.tree.map(lambda x: jnp.where(weight > 0, weight * x, 0.0), tree)
  return Share(total, weight)


def means(shared: Net, old: Net) -> Net:
  """Averages `shared` sums by block; one of which nobody has a share stays."""
  return map_blocks(
    lambda tree, share: tree if share is None else share.mean(tree), old, shared
  )


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
