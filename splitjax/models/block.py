"""Blocks of a network: what a block is, and how it is initialised and run."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp

from splitjax.types import Array, Net, Tree

Draws = Literal["he", "torch"]
"""Distribution of kernels and biases, see `redraw`."""


class Block(Protocol):
  """Any object whose methods init and apply work like those of a linen module.

  A block maps (x [B, ...], train, real [B] bool) to [B, ...]. It is hashable
  and equals every block that computes the same function. A block that draws
  random numbers in training, from flax's generator "dropout", says so by one of
  two attributes: `random` is true, or `dropout` is above 0.
  """

  @property
  def init(self) -> Callable[..., Any]:
    """A function that makes the variables of the block from a key.

    It maps (key, x, train, real) to a dict with "params" and "batch_stats",
    without the entries that the block does not need.
    """

  @property
  def apply(self) -> Callable[..., Any]:
    """A function that computes the output of the block.

    It maps ({"params", "batch_stats"}, x, train, real) to [B, ...]. Called with
    mutable=["batch_stats"], it also returns the new statistics. A block that
    draws random numbers is called with rngs={"dropout": key} in training.
    """

  def __hash__(self) -> int:
    """Hashes the block; equal blocks have equal hashes."""


def draw_block(block: Block, key: Array, x: Array) -> tuple[Array, Tree, Tree]:
  """Initialises one block at random for an input x [1, ...].

  Returns:
    The output, the parameters and the running statistics.
  """
  real = jnp.ones((1,), bool)
  variables = block.init(key, x, False, real)
  # flax draws statistics in float32 even where the default float is float64.
  drawn = variables.get("batch_stats", {})
  stats = jax.tree.map(lambda x: x.astype(float), drawn)
  out = block.apply(variables, x, False, real)
  return out, variables.get("params", {}), stats


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """Parameters of a checkpoint, which replace randomly initialised ones.

  Two are equal if their digests are.

  Attributes:
    params: block name -> its parameters, on the host.
    note: a sentence on their origin, for the report.
    digest: hexadecimal digest of the tensors; part of the identity of a run.
  """

  params: dict[str, Tree] = dataclasses.field(compare=False)
  note: str = dataclasses.field(compare=False)
  digest: str

  def into(self, full: Net) -> Net:
    """Returns `full` with these parameters in place of the blocks' own.

    Call it outside of jit: inside, the arrays would be program constants.
    """
    given = jax.tree.map(lambda x: jnp.asarray(x, float), self.params)
    return full._replace(params=full.params | given)


def redraw(params: Tree, key: Array) -> Tree:
  """Draws new kernels and biases from PyTorch's default distributions.

  Both are uniform in +- 1 / sqrt(fan_in). The standard deviation of the kernels
  is sqrt(6) = 2.45 times smaller than with "he", which draws them with variance
  2 / fan_in and sets biases to 0. Other parameters, such as those of
  normalisation, are kept.

  Args:
    params: parameters of one block. Each dict in it that has a "kernel" [...,
      inputs, outputs] is taken for a layer; the layer's "bias", if it has one,
      is in the same dict.
    key: [] PRNG key.
  """
  if "kernel" not in params:
    return {
      name: redraw(tree, jax.random.fold_in(key, i))
      if isinstance(tree, dict)
      else tree
      for i, (name, tree) in enumerate(sorted(params.items()))
    }
  bound = 1 / math.sqrt(math.prod(params["kernel"].shape[:-1]))
  drawn = {
    name: jax.random.uniform(
      jax.random.fold_in(key, i),
      params[name].shape,
      minval=-bound,
      maxval=bound,
    )
    for i, name in enumerate(("kernel", "bias"))
    if name in params
  }
  return params | drawn


def is_random(block: Block) -> bool:
  """Tells whether a block draws random numbers in training."""
  return getattr(block, "random", False) or getattr(block, "dropout", 0) > 0


@functools.partial(jax.jit, static_argnames=("block", "train"))
def apply(
  block: Block,
  params: Tree,
  stats: Tree,
  x: Array,
  train: bool,
  real: Array,
  key: Array | None = None,
) -> tuple[Array, Tree]:
  """Runs one block on x [B, ...]; returns output and new running statistics.

  `key` [] is for blocks that draw random numbers; other blocks may get None.

  The function is jitted so that equal blocks are traced and lowered once,
  however often they run. XLA inlines the calls, so they cost no run time.
  """
  draws = {} if key is None else {"rngs": {"dropout": key}}
  if not stats:
    return block.apply({"params": params}, x, train, real, **draws), stats
  variables = {"params": params, "batch_stats": stats}
  if not train:
    return block.apply(variables, x, train, real), stats
  x, new = block.apply(
    variables, x, train, real, mutable=["batch_stats"], **draws
  )
  return x, new["batch_stats"]


def exit_name(depth: int) -> str:
  """Names the exit after block `depth`, as in "exit2"."""
  return f"exit{depth}"


def is_exit(name: str) -> bool:
  """Tells whether a block is an exit, by its name."""
  return name.rpartition("/")[2].startswith("exit")


def is_norm(path: tuple, kind: str = "BatchNorm") -> bool:
  """Tells whether the leaf at a path belongs to a normalisation layer.

  flax names a layer after its class, as in BatchNorm_0. The paths of its
  parameters and running statistics contain that name.

  Args:
    path: as jax.tree_util.tree_map_with_path gives it.
    kind: class of the layer, "BatchNorm", "GroupNorm" or "LayerNorm".
  """
  return any(str(getattr(k, "key", k)).startswith(kind) for k in path)
