"""Blocks of a network: drawing, applying, and scanning over equal blocks."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from splitjax.types import Array, Segment, Tree

SCAN = 3
"""The smallest number of equal consecutive blocks that are run by a scan."""

Draws = Literal["he", "torch"]
"""Distribution of kernels and biases, see `redraw`."""


class Block(Protocol):
  """Anything with init and apply like a linen module's.

  It maps (x [B, ...], train, real [B] bool) to [B, ...]. It is hashable and
  equals every block that computes the same function. A block whose attribute
  `scanned` is true keeps x's shape and has no running statistics: consecutive
  equal blocks are run by one scan. A block that draws random numbers in
  training, from flax's generator "dropout", has an attribute `random` that is
  true or `dropout` that is above 0.
  """

  @property
  def init(self) -> Callable[..., Any]:
    """Maps (key, x, train, real) to "params" and "batch_stats", if any."""

  @property
  def apply(self) -> Callable[..., Any]:
    """Maps ({"params", "batch_stats"}, x, train, real) to an output [B, ...].

    With mutable=["batch_stats"] it also returns the new statistics; a random
    block gets rngs={"dropout": key} in training.
    """

  def __hash__(self) -> int:
    """Hashes the block; equal blocks have equal hashes."""


def draw_block(block: Block, key: Array, x: Array) -> tuple[Array, Tree, Tree]:
  """Draws one block for x [1, ...]: output, parameters, running statistics."""
  real = jnp.ones((1,), bool)
  variables = block.init(key, x, False, real)
  # flax draws statistics in float32 even where the default float is float64.
  drawn = variables.get("batch_stats", {})
  stats = jax.tree.map(lambda x: x.astype(float), drawn)
  out = block.apply(variables, x, False, real)
  return out, variables.get("params", {}), stats


class Pretrained(NamedTuple):
  """Parameters of a checkpoint, which replace drawn ones.

  Attributes:
    params: block name -> its parameters, on the host.
    note: a sentence on their origin, for the report.
    digest: of the tensors, hexadecimal; part of the identity of a run.
  """

  params: dict[str, Tree]
  note: str
  digest: str

  def into(self, full: Segment) -> Segment:
    """Puts these parameters into a network instead of the drawn ones.

    Call it outside of jit: inside, the arrays would be program constants.
    """
    given = jax.tree.map(lambda x: jnp.asarray(x, float), self.params)
    return full._replace(params=full.params | given)


def redraw(params: Tree, key: Array) -> Tree:
  """Draws kernels and biases again, as PyTorch's layers do by default.

  Both are uniform in +- 1 / sqrt(fan_in). These kernels are sqrt(6) = 2.45
  times narrower than those of "he", which draws with variance 2 / fan_in and
  sets biases to 0. Other leaves, such as those of normalisation, stay.

  Args:
    params: parameters of one block; a dict with a "kernel" [..., inputs,
      outputs] is a layer, with the bias beside it.
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

  `key` [] is for the block's random numbers; None if it draws none.

  The function is jitted so that equal blocks are traced and lowered once,
  however often they run. XLA inlines the calls: no cost at run time.
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


def scan(
  block: Block,
  params: list[Tree],
  x: Array,
  train: bool,
  real: Array,
  keys: list[Array] | None = None,
) -> Array:
  """Runs equal blocks without statistics one after another, by one scan.

  `block` is any of them, `params` the parameters of each, in order. The
  input x [B, ...] has the shape of every output; real is [B] bool; `keys` has a
  key for each block, or is None if they draw no random numbers.
  """

  def step(x, inputs):
    own, key = inputs
    return apply(block, own, {}, x, train, real, key)[0], None

  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
  drawn = None if keys is None else jnp.stack(keys)
  return jax.lax.scan(step, x, (stacked, drawn))[0]


def stretches(
  block_of: Callable[[str], Block], segment: Segment, names: Iterable[str]
) -> list[tuple[str, ...]]:
  """Groups consecutive equal blocks for a scan; other blocks stay alone."""

  def kind(name):
    block = block_of(name)
    if segment.stats[name] or not getattr(block, "scanned", False):
      return name
    return block, jax.tree.map(jnp.shape, segment.params[name])

  out: list[tuple[str, ...]] = []
  for _, alike in itertools.groupby(names, kind):
    equal = tuple(alike)
    out += [equal] if len(equal) >= SCAN else [(name,) for name in equal]
  return out


def exit_name(depth: int, family: str = "") -> str:
  """Names the exit after block `depth`, with its family before it if given."""
  return f"{family}/exit{depth}" if family else f"exit{depth}"


def is_exit(name: str) -> bool:
  """Tells whether a block is an exit, by its name."""
  return name.rpartition("/")[2].startswith("exit")


def is_norm(path: tuple, kind: str = "BatchNorm") -> bool:
  """Tells whether the leaf at a path belongs to normalisation of a kind.

  Layers have flax's names, such as BatchNorm_0: the path of the layer's
  parameters and running statistics has a key that begins with its kind.

  Args:
    path: as jax.tree_util.tree_map_with_path gives it.
    kind: "BatchNorm", "GroupNorm" or "LayerNorm".
  """
  return any(str(getattr(k, "key", k)).startswith(kind) for k in path)


def norm_free(tree: Tree) -> Tree:
  """Replaces the batch-normalisation leaves of a tree by None.

  Group and layer normalisation stay: FedBN concerns batch normalisation.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, x: None if is_norm(path) else x, tree
  )


def own_norm(local: bool, new: Tree, own: Tree) -> Tree:
  """Returns `new`; if `local`, with the batch normalisation leaves of `own`."""
  if not local:
    return new
  return jax.tree_util.tree_map_with_path(
    lambda path, x, mine: mine if is_norm(path) else x, new, own
  )
