"""A block of a network, and how one of them or a row of equals is run."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from splitjax.types import Array, Tree


class Block(Protocol):
  """Anything with init and apply in the manner of a linen module.

  It is called as (x [B, ...], train, real [B] bool) and returns [B, ...]. It is
  hashable and equal to every block that computes the same. One whose attribute
  `scanned` is true returns x's shape and has no running statistics: a row of
  its equals is run by one scan.
  """

  @property
  def init(self) -> Callable[..., Any]:
    """(key, x, train, real) -> {"params", "batch_stats"}, either may lack."""

  @property
  def apply(self) -> Callable[..., Any]:
    """({"params", "batch_stats"}, x, train, real) -> the output [B, ...].

    With mutable=["batch_stats"] also the new statistics.
    """


@functools.partial(jax.jit, static_argnames=("block", "train"))
def apply(
  block: Block, params: Tree, stats: Tree, x: Array, train: bool, real: Array
) -> tuple[Array, Tree]:
  """Runs one block; returns its output and its new running statistics.

  Jitted for the sake of the program around it: a block is traced and lowered
  once, however many are equal to it and however often each is run. XLA then
  puts the body in place of every call, so it costs nothing at run time.
  """
  if not stats:
    return block.apply({"params": params}, x, train, real), stats
  variables = {"params": params, "batch_stats": stats}
  if not train:
    return block.apply(variables, x, train, real), stats
  x, new = block.apply(variables, x, train, real, mutable=["batch_stats"])
  return x, new["batch_stats"]


def scan(
  block: Block, params: list[Tree], x: Array, train: bool, real: Array
) -> Array:
  """Runs equal blocks without statistics, each on the output of the last.

  Args:
    block: any of them.
    params: of each, in order.
    x: [B, ...] input of the first, and the shape of every output.
    train: as in `run`.
    real: as in `run`.
  """

  def step(x, own):
    return block.apply({"params": own}, x, train, real), None

  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
  return jax.lax.scan(step, x, stacked)[0]


def is_norm(path: tuple, kind: str = "BatchNorm") -> bool:
  """Whether the leaf at this path is a normalisation layer's of one kind.

  Layers keep flax's names: one whose name begins with the kind, as BatchNorm_0
  does, is of that kind, and all below it, running statistics too, is its own.

  Args:
    path: as jax.tree_util.tree_map_with_path gives it.
    kind: "BatchNorm", "GroupNorm" or "LayerNorm".
  """
  return any(str(getattr(k, "key", k)).startswith(kind) for k in path)


def norm_free(tree: Tree) -> Tree:
  """A tree whose batch-normalisation leaves are None, and so no leaves.

  Group and layer normalisation stay: FedBN is about batches alone.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, x: None if is_norm(path) else x, tree
  )
