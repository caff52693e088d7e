"""The contract of every network, checked in seconds.

`check_backbone` tests your own network as the test suite tests BACKBONES. The
outcome does not depend on the processor: matrix products are taken in full
float32, and the errors that checks look for are far larger than rounding.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax.errors import InvalidRngError

from splitjax.models import network, sizes
from splitjax.models.build import axes_of
from splitjax.models.network import Backbone
from splitjax.registry import options
from splitjax.types import Net, Tree, UserError

SHAPES = {1: (16,), 2: (64, 9), 3: (32, 32, 3)}
"""Number of axes of an input -> the shape that a network is tried with."""
CLASSES, VOCABULARY, BATCH = 4, 20, 6
TOLERANCE = 1e-3
"""Tolerance of comparisons, relative to an output's largest absolute value."""


class Broken(AssertionError):
  """A network or method breaks its contract; the message says which part."""


def check_backbone(
  factory: Callable[..., Backbone],
  *,
  shape: tuple[int, ...] | None = None,
  classes: int = CLASSES,
) -> list[str]:
  """Checks the contract of a network.

  Args:
    factory: as in BACKBONES, (shape, classes, *, options) -> Backbone. To test
      it with other options than its defaults, bind them by functools.partial.
    shape: shape of the data's inputs. By default a network is tried on what its
      first argument's annotation says: tuple[int, int] are series.
    classes: C, the number of classes to try it with.

  Returns:
    One sentence for each part of the contract, and one on convolutions that
    are slow on this machine, if there are any.

  Raises:
    Broken: a part of the contract does not hold. Exceptions of the network
      itself pass unchanged.

  Example:
    >>> import splitjax
    >>> sentences = splitjax.check_backbone(splitjax.BACKBONES["toy"])
    >>> sentences[1]
    'it is a Backbone, equal to another of the same options'
  """
  try:
    known = options(factory)
    if shape is None:
      shape = SHAPES.get(axes_of(factory) or 3, SHAPES[3])
    net = _network(factory, known, shape, classes)
    check_forms(net)
    numbers = check_numbers(net)
  except UserError as error:
    raise Broken(str(error)) from None
  slow = sizes.slow_convolutions(net)
  return [
    f"its options are {', '.join(known) or 'none'}",
    "it is a Backbone, equal to another of the same options",
    "blocks map batches to batches, exits and head to logits",
    "blocks take batches of any size, as an export does",
    *numbers,
    *([slow] if slow else []),
  ]


def _network(
  factory: Callable[..., Backbone],
  known: Mapping[str, tuple[Any, Any]],
  shape: tuple[int, ...],
  classes: int,
) -> Backbone:
  """Makes a network twice, and checks that it is the one that was asked for.

  `known` are the factory's options: name -> (annotation, default).
  """
  if "depths" not in known:
    raise UserError("it has no option depths, the cuts in use")
  text = inspect.signature(factory).parameters.get("vocabulary")
  if text is not None and text.default in (0, text.empty):
    factory = functools.partial(factory, vocabulary=VOCABULARY)
  net = factory(shape, classes)
  if not isinstance(net, Backbone):
    raise UserError(f"its factory returns no Backbone, but {net!r:.60}")
  where = f"backbone.name={net.name!r}"
  for parts, key in ((net.blocks, str), (net.exits, Integral)):
    if not isinstance(parts, Mapping) or not all(
      isinstance(name, key) for name in parts
    ):
      raise UserError(
        f"{where}: blocks and exits must be dicts, name -> block and cut's"
        " depth -> block"
      )
  exits = {f"exit{depth}": block for depth, block in net.exits.items()}
  for name, block in {**net.blocks, **exits, "head": net.head}.items():
    methods = (getattr(block, method, None) for method in ("init", "apply"))
    if isinstance(block, type) or not all(map(callable, methods)):
      raise UserError(
        f"{where}: {name} is {block!r:.60}; it must be a block, a linen module"
        " such as MyModule(16) (one of flax.nnx by flax.nnx.bridge.to_linen)"
      )
    try:
      hash(block)
    except TypeError as error:
      raise UserError(
        f"{where}: {name} has an attribute that is not hashable, a list or an"
        " array: make it a tuple, or build it in __call__"
      ) from error
  other = factory(shape, classes)
  if net != other or hash(net) != hash(other):
    raise UserError(
      f"{where}: made twice with the same options it is not equal: give blocks"
      " that are hashable and equal, as linen modules are; a program would be"
      " compiled for each"
    )
  depths = getattr(factory, "keywords", {}).get("depths", known["depths"][1])
  pairs = {
    "inputs": (tuple(shape), tuple(net.shape)),
    "classes": (classes, net.classes),
    "exits": (sorted(depths), sorted(net.exits)),
  }
  for what, (wanted, present) in pairs.items():
    if wanted != present:
      raise UserError(
        f"{where}: asked for {what} {wanted}, its factory makes {present}: pass"
        " shape, classes and depths on to Backbone"
      )
  return net


# Names, shapes and dtypes; nothing is computed.


def check_forms(net: Backbone) -> None:
  """Checks names, exits, shapes and variables, for batches of any size.

  Raises:
    UserError: a check fails; the message names the block.
  """
  where = f"backbone.name={net.name!r}"
  taken = {"head", *map(network.exit_name, net.exits)} & set(net.blocks)
  if taken:
    raise UserError(f"{where}: a block is named {taken.pop()!r}, as an exit is")
  if not net.exits or not all(1 <= k < net.length for k in net.exits):
    raise UserError(
      f"{where}: exits after blocks {sorted(net.exits)}; it needs one at least,"
      f" and all in 1..{net.length - 1}"
    )
  full, default = sizes.shapes(net), jnp.result_type(float)
  for path, leaf in jax.tree_util.tree_leaves_with_path(full.params):
    if leaf.dtype != default:
      name = jax.tree_util.keystr(path, simple=True, separator="/")
      raise UserError(
        f"{where}: {name} is {leaf.dtype}; parameters are {default}, whatever"
        " blocks compute in"
      )
  (symbol,) = jax.export.symbolic_shape("b")
  for batch, train in ((BATCH, True), (symbol, False)):
    check = functools.partial(_output, net, full, train)
    network.walk(net, check, net.inputs(batch))


def _output(net: Backbone, full: Net, train: bool, name: str, x: Any) -> Any:
  """Returns shape and dtype of a block's output, after checking the block."""
  where = f"backbone.name={net.name!r}: {name}"
  segment, batch = network.select(full, (name,)), x.shape[0]

  def run(segment: Net, x: Any) -> tuple[Any, Any]:
    key = jax.random.key(0)
    return network.run(net, segment, x, (name,), train=train, key=key)

  try:
    out, stats = jax.eval_shape(run, segment, x)
  except InvalidRngError:
    raise UserError(
      f"{where} draws random numbers in training; give it the attribute"
      " `random = True`"
    ) from None
  except Exception as error:  # whatever a block raises
    if train:
      raise
    text = " ".join(str(error).split())[:100]
    raise UserError(
      f"{where} cannot take a batch of any size, as an export does ({text}):"
      " take x.shape[0] instead of len(x)"
    ) from error
  rule = ""
  if out.shape[:1] != (batch,):
    rule = "the first axis must stay the samples'"
  elif out.dtype != jnp.result_type(float):
    rule = f"blocks hand {jnp.result_type(float)} on, whatever they compute in"
  elif name == net.names()[-1] and len(out.shape) != 2:
    rule = "the last block must give the embedding, [B, D]"
  elif name not in net.blocks and out.shape != (batch, net.classes):
    rule = f"it must give logits [B, {net.classes}]"
  if rule:
    raise UserError(
      f"{where} gives {out.dtype} {list(out.shape)} of a batch of {batch}:"
      f" {rule}"
    )
  forms = [
    jax.tree.map(lambda s: (s.shape, s.dtype), tree[name])
    for tree in (full.stats, stats)
  ]
  if forms[0] != forms[1]:
    raise UserError(
      f"{where} changes the form of its running statistics (batch_stats)"
    )
  return out


# Numbers.

_jit = functools.partial(
  jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)
"""Jits without XLA's optimisations, which would take longer than they save."""


def check_numbers(net: Backbone) -> list[str]:
  """Checks gradients, padding, inference and random draws of a network.

  Returns:
    One sentence for each check.

  Raises:
    Broken: a check fails.
  """
  with jax.default_matmul_precision("highest"):
    full = _jit(lambda key: network.init(net, key))(jax.random.key(0))
    parts = [learns, leaves_padding_out, keeps_apart, draws_by_key]
    return [part(net, full) for part in parts[: 3 + net.random]]


def learns(net: Backbone, full: Net) -> str:
  """Checks that gradients are finite and that parameters influence the outputs.

  Gradients are taken near the initial values, not at them, because a gate that
  starts at zero hides the branch behind it. If a parameter other than a bias
  has the gradient 0 (it may be frozen), the check changes this parameter, and
  an output must then change too.
  """

  def outputs(params: Tree) -> list[Any]:
    return _outputs(net, full._replace(params=params), _inputs(net, 0), True)

  def loss(params: Tree) -> jax.Array:
    return sum(((out**2).mean() for out in outputs(params)), jnp.zeros(()))

  flat, form = jax.tree.flatten(full.params)
  draw = np.random.default_rng(0).standard_normal
  noise = [draw(x.shape, np.float32) for x in flat]
  moved = [np.asarray(x) + 0.02 * z for x, z in zip(flat, noise, strict=True)]
  params = jax.tree.unflatten(form, moved)
  grads, before = _jit(lambda p: (jax.grad(loss)(p), outputs(p)))(params)
  leaves = {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(grads))
  }
  for name, leaf in leaves.items():
    if not np.isfinite(leaf).all():
      raise Broken(f"the gradient of {name} is not finite")
  for i, (name, leaf) in enumerate(leaves.items()):
    if leaf.any() or name.endswith("bias"):
      continue
    other = [*moved[:i], moved[i] + noise[i], *moved[i + 1 :]]
    after = _jit(outputs)(jax.tree.unflatten(form, other))
    if all(map(np.array_equal, before, after)):
      raise Broken(f"{name} has no effect")
  return "every parameter has a finite gradient"


def leaves_padding_out(net: Backbone, full: Net) -> str:
  """Checks that padding changes no statistics and no real sample's output."""
  real = jnp.arange(BATCH) < BATCH - 2
  x, far = _inputs(net, 0), 0 if net.vocabulary else 9.0
  mask = real.reshape(-1, *[1] * (x.ndim - 1))
  junk = jnp.where(mask, x, far + _inputs(net, 1))

  @_jit
  def outputs(x: Any) -> list[Any]:
    passes = _passes(net, full, x, train=True, real=real)
    return [(out[:-2], stats) for out, stats in passes]

  for path, clean, padded in zip(
    _paths(net), outputs(x), outputs(junk), strict=True
  ):
    if not _close(clean, padded):
      raise Broken(
        f"up to {path[-1]} samples of padding change the others: take batch"
        " statistics over `real` alone (`models.layers.normalise`)"
      )
  return "samples of padding change no other and no statistics"


def keeps_apart(net: Backbone, full: Net) -> str:
  """Checks that a sample's inference logits do not depend on other samples."""
  x, outputs = _inputs(net, 0), _jit(lambda x: _outputs(net, full, x, False))
  for path, many, single in zip(
    _paths(net), outputs(x), outputs(x[:1]), strict=True
  ):
    if not _close(many[:1], single):
      raise Broken(
        f"at inference the logits of {path[-1]} depend on other samples"
      )
  return "at inference samples do not depend on each other"


def draws_by_key(net: Backbone, full: Net) -> str:
  """Checks that outputs are equal for equal keys and differ for other keys."""
  outputs = _jit(lambda seed: _outputs(net, full, _inputs(net, 0), True, seed))
  before, same, other = outputs(0), outputs(0), outputs(1)
  if not all(map(np.array_equal, before, same)):
    raise Broken("in training its blocks draw from another source than the key")
  if all(map(np.array_equal, before, other)):
    raise Broken(
      "a block is `random` or has a `dropout`, and in training no key matters:"
      " draw by self.make_rng('dropout'), as nn.Dropout does"
    )
  return "in training random blocks draw from the batch's key"


def _inputs(net: Backbone, seed: int) -> jax.Array:
  key, shape = jax.random.key(seed), (BATCH, *net.shape)
  if net.vocabulary:
    return jax.random.randint(key, shape, 0, net.vocabulary)
  return jax.random.normal(key, shape)


def _paths(net: Backbone) -> list[tuple[str, ...]]:
  """Lists the paths of block names from the input to each exit and the head."""
  return [
    (*net.names(0, k), network.classifier_at(net, k))
    for k in (*net.cuts, net.length)
  ]


def _passes(
  net: Backbone, full: Net, x: jax.Array, *, train: bool, real: Any = None,
  seed: Any = 2,
) -> list[tuple[jax.Array, Tree]]:  # fmt: skip
  """Calls `network.run` on each path of `_paths` and lists the results."""
  options = {"train": train, "real": real, "key": jax.random.key(seed)}
  return [network.run(net, full, x, path, **options) for path in _paths(net)]


def _outputs(
  net: Backbone, full: Net, x: jax.Array, train: bool, seed: Any = 2
) -> list[jax.Array]:
  passes = _passes(net, full, x, train=train, seed=seed)
  return [out for out, _ in passes]


def _close(tree: Tree, other: Tree) -> bool:
  return all(
    np.allclose(
      x, y, rtol=0, atol=TOLERANCE * float(np.max(np.abs(y), initial=0))
    )
    for x, y in zip(*map(jax.tree.leaves, (tree, other)), strict=True)
  )
