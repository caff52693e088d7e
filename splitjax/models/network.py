"""Networks that can be cut: what they are, how they are drawn, run and cut.

A network is an ordered list of named blocks; its parameters are a dict from
block name to pytree. A client of depth K holds the first K blocks and the exit
at depth K. The server holds the other blocks and the head.
"""

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses
from splitjax.types import Batch, Net, Tree, UserError

Draws = Literal["he", "torch"]
"""Distribution of kernels and biases, see `redraw`."""


class Block(Protocol):
  """Any object whose methods init and apply work like those of a linen module.

  A block maps (x [B, ...], train, real [B] bool) to [B, ...]. It is hashable
  and equals every block that computes the same function. A block that draws
  random numbers in training, from flax's generator "dropout", says so by one of
  two attributes: `random` is true, or `dropout` is above 0. A first block with
  the attribute `vocabulary`, V, takes token ids 0 to V - 1.
  """

  @property
  def init(self) -> Callable[..., Any]:
    """Maps (key, x, train, real) to a dict of "params" and "batch_stats"."""

  @property
  def apply(self) -> Callable[..., Any]:
    """Maps (what `init` returns, x, train, real) to the output [B, ...].

    With mutable=["batch_stats"] it also returns the new statistics; a block
    that draws random numbers gets rngs={"dropout": key} in training.
    """

  def __hash__(self) -> int:
    """Hashes the block; equal blocks have equal hashes."""


@dataclasses.dataclass(frozen=True)
class Pretrained:
  """Parameters of a checkpoint, which replace randomly initialised ones.

  `params` maps block names to parameters on the host; `note` is a sentence on
  their origin, for the report; the file's digest is part of a run's identity.
  """

  params: dict[str, Tree] = dataclasses.field(compare=False)
  note: str = dataclasses.field(compare=False)
  digest: str

  def into(self, full: Net) -> Net:
    """Puts them into `full`, outside of jit: inside they would be constants."""
    params = jax.tree.map(lambda x: jnp.asarray(x, float), self.params)
    return full._replace(params=full.params | params)


@dataclasses.dataclass(frozen=True, eq=False)
class Backbone:
  """An ordered list of blocks, a head, and an exit at every cut in use.

  Attributes:
    name: its name in BACKBONES.
    shape: of an image (H, W, c), series (T, c), row (F,) or token ids (T,).
    classes: C.
    blocks: name -> block, in order.
    exits: cut depth -> the client's classifier there.
    head: the last classifier.
    start: the distribution of initial kernels and biases, see `redraw`, or
      pretrained parameters, which replace those that `init` draws.
    loss: the task's loss of each sample: logits [B, C], label [B] -> [B].

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
  start: Draws | Pretrained = "he"
  loss: Callable[[Array, Array], Array] = losses.each_cross_entropy

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

  @property
  def vocabulary(self) -> int:
    """Returns V, if inputs are int32 token ids 0 to V - 1; otherwise 0."""
    return getattr(next(iter(self.blocks.values()), None), "vocabulary", 0)

  @property
  def random(self) -> bool:
    """Tells whether any part of the network is random in training."""
    parts = (*self.blocks.values(), *self.exits.values(), self.head)
    return any(map(_is_random, parts))

  def inputs(self, batch: Any) -> jax.ShapeDtypeStruct:
    """Returns the inputs' shape and dtype; the batch size may be symbolic."""
    dtype = jnp.int32 if self.vocabulary else jnp.result_type(float)
    return jax.ShapeDtypeStruct((batch, *self.shape), dtype)

  def names(self, start: int = 0, stop: int | None = None) -> tuple[str, ...]:
    """Lists the names of blocks[start:stop]."""
    return tuple(self.blocks)[start:stop]

  def block(self, name: str) -> Block:
    """Finds a block, an exit or the head by name."""
    if name == "head":
      return self.head
    if name in self.blocks:
      return self.blocks[name]
    return self.exits[int(name.removeprefix("exit"))]

  def mean_loss(self, logits: Array, label: Array, real: Array) -> Array:
    """Computes sum_i real_i l_i / max(sum_i real_i, 1), [], of a batch.

    l is the task's loss, by default cross-entropy. Logits are [B, C], `label`
    is [B] int32, `real` [B] bool.
    """
    return losses.masked_mean(self.loss(logits, label), real)


def exit_name(depth: int) -> str:
  """Names the exit after block `depth`, as in "exit2"."""
  return f"exit{depth}"


def is_exit(name: str) -> bool:
  """Tells whether a block is an exit, by its name."""
  return name.rpartition("/")[2].startswith("exit")


def is_norm(path: str, kind: str = "BatchNorm") -> bool:
  """Tells whether a leaf's path names a layer, "block1/BatchNorm_0/scale"."""
  return any(part.startswith(kind) for part in path.split("/"))


def init(backbone: Backbone, key: Array) -> Net:
  """Initialises all blocks, all exits and the head at random from a key []."""
  params = dict[str, Tree]()
  stats = dict[str, Tree]()

  def draw(name: str, x: Array) -> Array:
    # Keyed by name, so that the choice of exits changes no other block.
    seed = jax.random.fold_in(key, zlib.crc32(name.encode()))
    x, params[name], stats[name] = draw_block(backbone.block(name), seed, x)
    if backbone.start == "torch":
      params[name] = redraw(params[name], seed)
    return x

  form = backbone.inputs(1)
  walk(backbone, draw, jnp.zeros(form.shape, form.dtype))
  return Net(params, stats)


def walk(backbone: Backbone, visit: Callable[[str, Any], Any], x: Any) -> None:
  """Visits all blocks, exits and the head, in order.

  `visit` maps a name and its input to its output; x is the input [B, ...] of
  the first block, or its shape and dtype.
  """
  for depth, name in enumerate(backbone.names(), start=1):
    x = visit(name, x)
    if depth in backbone.exits:
      visit(exit_name(depth), x)
  visit("head", x)


def draw_block(block: Block, key: Array, x: Array) -> tuple[Array, Tree, Tree]:
  """Initialises one block at random for an input x [1, ...].

  Returns its output, its parameters and its running statistics.
  """
  real = jnp.ones((1,), bool)
  variables = block.init(key, x, False, real)
  # flax draws statistics in float32 even where the default float is float64.
  stats = variables.get("batch_stats", {})
  stats = jax.tree.map(lambda x: x.astype(float), stats)
  out = block.apply(variables, x, False, real)
  return out, variables.get("params", {}), stats


def redraw(params: Tree, key: Array) -> Tree:
  """Draws new kernels and biases from PyTorch's default distributions.

  Both are uniform in +- 1 / sqrt(fan_in), kernels sqrt(6) times smaller than
  with "he". A dict that has a "kernel" [..., inputs, outputs] is a layer, with
  the "bias" in it; other parameters, as of normalisation, are kept.
  """
  out = dict(params)
  if "kernel" not in params:
    for i, (name, tree) in enumerate(sorted(params.items())):
      if isinstance(tree, dict):
        out[name] = redraw(tree, jax.random.fold_in(key, i))
    return out
  bound = 1 / math.sqrt(math.prod(params["kernel"].shape[:-1]))
  for i, name in enumerate(("kernel", "bias")):
    if name in params:
      seed = jax.random.fold_in(key, i)
      out[name] = jax.random.uniform(
        seed, params[name].shape, minval=-bound, maxval=bound
      )
  return out


def select(segment: Net, names: Collection[str]) -> Net:
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
  if with_exit:
    names = (*names, classifier_at(backbone, depth))
  return select(full, names)


def suffix(backbone: Backbone, full: Net, depth: int) -> Net:
  """Selects the server's part: theta (blocks[depth:] and the head)."""
  return select(full, (*backbone.names(depth), "head"))


def classifier_at(backbone: Backbone, depth: int) -> str:
  """Names a client's classifier: the head at depth L, otherwise an exit."""
  return "head" if depth == backbone.length else exit_name(depth)


def classifier(backbone: Backbone, client: Net) -> str | None:
  """Names the exit or head that a client holds; None if it holds neither."""
  names = (name for name in client.params if name not in backbone.blocks)
  return next(names, None)


def depth_of(backbone: Backbone, client: Net) -> int:
  """Reads the cut depth of a client's segment from its block names."""
  return sum(name in client.params for name in backbone.blocks)


def run(
  backbone: Backbone, segment: Net, x: Array, names: Iterable[str], *,
  train: bool, real: Array | None = None, key: Tree = (),
) -> tuple[Array, dict[str, Tree]]:  # fmt: skip
  """Runs blocks one after another.

  Args:
    backbone: the network.
    segment: parameters and statistics of the blocks to run; it may hold more.
    x: [B, ...] input of the first block.
    names: blocks (or an exit, or the head) in order.
    train: whether to normalise by batch statistics, not by running ones.
    real: [B] bool, samples that batch statistics are taken over; None: all.
    key: [] key for blocks that draw random numbers in training (Batch.key); the
      name of a block is folded into it, so that it draws the same numbers in
      the whole network and in a part.

  Returns:
    The output [B, ...] and the new running statistics of `names`.

  Raises:
    UserError: a block draws random numbers and there is no key.
  """
  if real is None:
    real = jnp.ones(x.shape[0], bool)
  stats = dict[str, Tree]()
  for name in names:
    block = backbone.block(name)
    seed = None
    if train and _is_random(block):
      if isinstance(key, tuple):
        raise UserError(
          f"backbone.name={backbone.name!r}: {name} draws random numbers in"
          " training: call network.run_batch, which has the batch's key"
        )
      seed = jax.random.fold_in(key, zlib.crc32(name.encode()))
    parts = segment.params[name], segment.stats[name]
    x, stats[name] = _apply(block, *parts, x, train, real, seed)
  return x, stats


def run_batch(
  backbone: Backbone, segment: Net, x: Array, names: Iterable[str],
  batch: Batch,
) -> tuple[Array, dict[str, Tree]]:  # fmt: skip
  """Calls `run` in training mode, with `real` and `key` of a batch."""
  return run(
    backbone, segment, x, names, train=True, real=batch.real, key=batch.key
  )


def _is_random(block: Block) -> bool:
  """Tells whether a block draws random numbers in training."""
  return getattr(block, "random", False) or getattr(block, "dropout", 0) > 0


@functools.partial(jax.jit, static_argnames=("block", "train"))
def _apply(
  block: Block, params: Tree, stats: Tree, x: Array, train: bool, real: Array,
  key: Array | None,
) -> tuple[Array, Tree]:  # fmt: skip
  """Runs one block on x [B, ...]; returns output and new running statistics.

  `block.apply` is its `__call__`, such as that of `layers.ConvBlock`. Equal
  blocks are traced and lowered once, however often they run: it is jitted. XLA
  inlines the calls, so they cost no run time.
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


def client_logits(
  backbone: Backbone, client: Net, image: Array
) -> tuple[Array, Array | None]:
  """Runs the client's part on inputs [B, ...] (Batch.image), for inference.

  Returns features [B, ...] after the client's last block, and the client's
  logits [B, C], which are None if it has no classifier.
  """
  names = backbone.names(0, depth_of(backbone, client))
  z, _ = run(backbone, client, image, names, train=False)
  exit = classifier(backbone, client)
  if exit is None:
    return z, None
  return z, run(backbone, client, z, (exit,), train=False)[0]


def server_logits(
  backbone: Backbone, server: Net, z: Array, depth: int
) -> Array:
  """Computes the server's logits [B, C] from features [B, ...] at a depth."""
  names = (*backbone.names(depth), "head")
  return run(backbone, server, z, names, train=False)[0]


def embedding(
  backbone: Backbone, client: Net, server: Net, image: Array
) -> Array:
  """Computes the input [B, D] of the head, without clipping the features."""
  depth = depth_of(backbone, client)
  z, _ = run(backbone, client, image, backbone.names(0, depth), train=False)
  z, _ = run(backbone, server, z, backbone.names(depth), train=False)
  return z.reshape(len(z), -1).astype(float)


def taps(
  backbone: Backbone, net: Net, x: Array, cuts: Iterable[int], *, train: bool,
  real: Array | None = None, key: Tree = (), last: Array | None = None,
) -> dict[int, Array]:  # fmt: skip
  """Computes activations at several cuts in one pass: cut depth -> [B, ...].

  `net` is a prefix as deep as the deepest cut; x, `train`, `real` and `key` are
  as in `run`. Behind the cut `last` [] int32, if there is one, no block is run,
  and activations are zeros. New running statistics are not returned.
  """
  out = dict[int, Array]()
  start = 0
  for cut in sorted(cuts):
    names = backbone.names(start, cut)

    def through(x, names=names):
      return run(backbone, net, x, names, train=train, real=real, key=key)[0]

    if last is None or not out:
      x = through(x)
    else:
      form = jax.eval_shape(through, x)
      x = jax.lax.cond(
        start < last, through, lambda x, z=form: jnp.zeros(z.shape, z.dtype), x
      )
    out[cut] = x
    start = cut
  return out


def inject(
  backbone: Backbone, server: Net, entries: dict[int, Array], depth: Array, *,
  train: bool, real: Array | None = None, key: Tree = (),
) -> tuple[Array, dict[str, Tree], dict[str, Array]]:  # fmt: skip
  """Runs the server's trunk from a *traced* depth (HARMONY eq. 6).

  Blocks before the entry are not run. Under a `vmap` over depths they are, but
  the features replace their output, so they get no gradient. `server` has the
  blocks after the shallowest entry; `entries` maps cut depths to features
  [B, ...]; `depth` [] int32, one of its keys, is the cut to enter.

  Returns:
    The embedding [B, D]; the running statistics, unchanged in bypassed blocks;
    and block name -> [] bool, whether the features went through the block.
  """
  cuts = sorted(entries)
  x = entries[cuts[0]]
  stats = dict[str, Tree]()
  passed = dict[str, Array]()
  for cut, end in itertools.zip_longest(cuts, cuts[1:]):
    names = backbone.names(cut, end)

    def through(x, names=names):
      return run(backbone, server, x, names, train=train, real=real, key=key)

    def entered(x, names=names, end=end):
      return entries[end], {name: server.stats[name] for name in names}

    on = jnp.bool_(True)
    if end is None:
      x, new = through(x)
    else:
      on = depth <= cut
      x, new = jax.lax.cond(on, through, entered, x)
    stats |= new
    passed |= dict.fromkeys(names, on)
  return x, stats, passed
