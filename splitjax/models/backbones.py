"""The algebra of cutting a network: prefix, suffix, run.

A network is an ordered list of named blocks; its parameters are a dict from
block name to pytree. A client of depth K holds the first K blocks and the exit
at depth K. The server holds the other blocks and the head.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from splitjax import losses
from splitjax.models.block import (
  Block,
  Draws,
  Pretrained,
  apply,
  exit_name,
  is_random,
)
from splitjax.types import Array, Batch, Net, Tree, UserError


@dataclasses.dataclass(frozen=True, eq=False)
class Backbone:
  """An ordered list of blocks, a head, and an exit at every cut in use.

  At a cut of depth K the client runs blocks[:K] and its exit; the server runs
  blocks[K:] and the head. In a fleet the server holds all blocks after the
  shallowest cut.

  Attributes:
    name: its name in BACKBONES.
    shape: shape of one input: (H, W, c) of an image, (T, c) of a series, (F,)
      of a table's row, (T,) of token ids.
    classes: C.
    blocks: name -> block, in order.
    exits: cut depth -> the client's classifier there.
    head: the last classifier.
    start: pretrained parameters, which replace the random ones of
      `drawing.init`; None: all parameters are initialised at random.
    draws: the distribution of initial kernels and biases, see `block.redraw`.
    loss: the task's loss of each sample: logits [B, C], label [B] -> [B].
    vocabulary: V, if inputs are int32 token ids 0 to V - 1; otherwise 0.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["cnn8"]((28, 28, 1), classes=10, depths=(2, 4))
    >>> net.cuts, net.length
    ((2, 4), 7)
  """

  name: str
  shape: tuple[int, ...]
  classes: int
  blocks: Mapping[str, Block]
  exits: Mapping[int, Block]
  head: Block
  start: Pretrained | None = None
  draws: Draws = "he"
  loss: Callable[[Array, Array], Array] = losses.each_cross_entropy
  vocabulary: int = 0

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Backbone) and self._fields == other._fields

  def __hash__(self) -> int:
    return hash(self._fields)

  @property
  def _fields(self) -> tuple:
    """Collects all fields in a form that can be hashed."""
    fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    # A network is its blocks in their order; exits lie at depths.
    fields["blocks"] = tuple(self.blocks.items())
    fields["exits"] = frozenset(self.exits.items())
    return tuple(fields.values())

  @property
  def length(self) -> int:
    """Returns L, the number of blocks."""
    return len(self.blocks)

  @property
  def cuts(self) -> tuple[int, ...]:
    """Lists the cut depths in use, shallowest first."""
    return tuple(sorted(self.exits))

  def inputs(self, batch: Any) -> jax.ShapeDtypeStruct:
    """Returns the inputs' shape and dtype; the batch size may be symbolic."""
    dtype = jnp.int32 if self.vocabulary else jnp.result_type(float)
    return jax.ShapeDtypeStruct((batch, *self.shape), dtype)

  def names(self, start: int = 0, stop: int | None = None) -> tuple[str, ...]:
    """Lists the names of blocks[start:stop]."""
    return tuple(self.blocks)[start:stop]

  def mean_loss(self, logits: Array, label: Array, real: Array) -> Array:
    """Computes the task's loss of a batch, the mean over its real samples.

    Args:
      logits: [B, C] float.
      label: [B] int32.
      real: [B] bool.

    Returns:
      [] float, nats.
    """
    return losses.masked_mean(self.loss(logits, label), real)

  @property
  def random(self) -> bool:
    """Tells whether any part of the network is random in training."""
    every = (*self.blocks.values(), *self.exits.values(), self.head)
    return any(map(is_random, every))

  def block(self, name: str) -> Block:
    """Finds a block, an exit or the head by name."""
    if name == "head":
      return self.head
    if name in self.blocks:
      return self.blocks[name]
    return self.exits[int(name.removeprefix("exit"))]


def select(segment: Net, names: Iterable[str]) -> Net:
  """Selects blocks of a segment by name."""
  return Net(
    {name: segment.params[name] for name in names},
    {name: segment.stats[name] for name in names},
  )


def prefix(
  backbone: Backbone, full: Net, depth: int, *, with_exit: bool = True
) -> Net:
  """Selects the client's part: phi (blocks[:depth]) and h (its exit).

  A client of depth L holds the whole network, with the head as its exit.
  with_exit=False leaves h out, as for clients of SplitFed, which have no exit.
  """
  names = backbone.names(0, depth)
  own = classifier_at(backbone, depth)
  return select(full, (*names, own) if with_exit else names)


def classifier_at(backbone: Backbone, depth: int) -> str:
  """Names a client's classifier: the head at depth L, otherwise an exit."""
  return "head" if depth == backbone.length else exit_name(depth)


def suffix(backbone: Backbone, full: Net, depth: int) -> Net:
  """Selects the server's part: theta (blocks[depth:] and the head)."""
  return select(full, (*backbone.names(depth), "head"))


def depth_of(backbone: Backbone, client: Net) -> int:
  """Reads the cut depth of a client's segment from its block names."""
  return sum(name in client.params for name in backbone.blocks)


def classifier(backbone: Backbone, client: Net) -> str | None:
  """Names the exit or head that a client holds; None if it holds neither."""
  own = [name for name in client.params if name not in backbone.blocks]
  return own[0] if own else None


def run(
  backbone: Backbone,
  segment: Net,
  x: Array,
  names: Iterable[str],
  *,
  train: bool,
  real: Array | None = None,
  key: Tree = (),
) -> tuple[Array, dict[str, Tree]]:
  """Runs blocks one after another.

  Args:
    backbone: the network.
    segment: parameters and statistics of the blocks to run; it may hold more.
    x: [B, ...] input of the first block.
    names: blocks (or an exit, or the head) in order.
    train: normalise by batch statistics if True, by running statistics if
      False.
    real: [B] bool, samples that batch statistics are taken over; None: all.
    key: [] key for blocks that draw random numbers in training, such as
      Batch.key. `run` folds each block's name into the key, so a block draws
      the same numbers whether the whole network or a part of it is run. The
      default, (), is enough for inference and for networks without such blocks.

  Returns:
    The output [B, ...] and the new running statistics of `names`.

  Raises:
    UserError: a block draws random numbers and there is no key.
  """
  if real is None:
    real = jnp.ones(x.shape[0], bool)
  stats: dict[str, Tree] = {}

  def drawn(name):
    if not train or not is_random(backbone.block(name)):
      return None
    if isinstance(key, tuple):
      raise UserError(
        f"backbone.name={backbone.name!r}: {name} draws random numbers in"
        " training: call backbones.run_batch, which has the batch's key"
      )
    return jax.random.fold_in(key, zlib.crc32(name.encode()))

  for name in names:
    held = segment.params[name], segment.stats[name]
    x, stats[name] = apply(
      backbone.block(name), *held, x, train, real, drawn(name)
    )
  return x, stats


def run_batch(
  backbone: Backbone,
  segment: Net,
  x: Array,
  names: Iterable[str],
  batch: Batch,
) -> tuple[Array, dict[str, Tree]]:
  """Calls `run` in training mode, with `real` and `key` of a batch."""
  real, key = batch.real, batch.key
  return run(backbone, segment, x, names, train=True, real=real, key=key)
