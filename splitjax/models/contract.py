"""The contract of every network, checked in seconds.

`check_backbone` tests your own network as the test suite tests BACKBONES. The
outcome does not depend on the processor: matrix products are taken in full
float32, and the errors that checks look for are far larger than rounding.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax.errors import InvalidRngError
from jax import Array

from splitjax.models import network, sizes
from splitjax.models.build import axes_of
from splitjax.models.network import Backbone
from splitjax.options import declared
from splitjax.types import Net, Tree, UserError

_SHAPES = {1: (16,), 2: (64, 9), 3: (32, 32, 3), None: (32, 32, 3)}
"""Number of axes of an input -> the shape that a network is tried with."""
_VOCABULARY = 20
_BATCH = 6
_REAL = 4  # samples of the batch before those of padding
_TOLERANCE = 1e-3  # of comparisons, relative to an output's largest value


class Broken(AssertionError):
  """A network or method breaks its contract; the message says which part."""


def check_backbone(
  factory: Callable[..., Backbone],
  *,
  shape: tuple[int, ...] | None = None,
  classes: int = 4,
) -> list[str]:
  """Checks the contract of a network.

  Args:
    factory: as in BACKBONES, (shape, classes, *, options) -> Backbone; bind
      options that are not the defaults by functools.partial.
    shape: of the data's inputs; None: what the annotation of the factory's
      first argument says, as tuple[int, int] for series.
    classes: C, the number of classes to try it with.

  Returns:
    A sentence for each part, and one if convolutions are slow on this machine.

  Raises:
    Broken: a part does not hold. Exceptions of the network pass unchanged.

  Example:
    >>> import splitjax
    >>> sentences = splitjax.check_backbone(splitjax.BACKBONES["toy"])
    >>> sentences[1]
    'it is a Backbone, equal to another of the same options'
  """
  try:
    options = declared(factory)
    bound = getattr(factory, "keywords", {})  # of a functools.partial
    if "depths" not in {*options, *bound}:
      raise UserError("it has no option depths, the cuts in use")
    depths = bound["depths"] if "depths" in bound else options["depths"].default
    axes = axes_of(factory)
    shape = shape or _SHAPES.get(axes, (4,) * (axes or 0))
    backbone = _backbone(factory, shape, classes, depths)
    check_forms(backbone)
  except UserError as error:
    raise Broken(str(error)) from None
  with jax.default_matmul_precision("highest"):
    net = _jit(lambda key: network.init(backbone, key))(jax.random.key(0))
    _learns(backbone, net)
    _leaves_padding_out(backbone, net)
    _keeps_apart(backbone, net)
  slow = sizes.slow_convolutions(backbone)
  return [
    f"its options are {', '.join(options)}",
    "it is a Backbone, equal to another of the same options",
    "blocks map batches to batches, exits and head to logits",
    "blocks take batches of any size, as an export does",
    "every parameter has a finite gradient",
    "samples of padding change no other and no statistics",
    "at inference samples do not depend on each other",
    *([slow] if slow else []),
  ]


def _backbone(
  factory: Callable[..., Backbone],
  shape: tuple[int, ...],
  classes: int,
  depths: tuple[int, ...],
) -> Backbone:
  """Makes a network twice, and checks that it is the one that was asked for."""
  ids = inspect.signature(factory).parameters.get("vocabulary")
  if ids is not None and ids.default in (0, ids.empty):
    factory = functools.partial(factory, vocabulary=_VOCABULARY)
  backbone = factory(shape, classes)
  twin = factory(shape, classes)
  if not isinstance(backbone, Backbone):
    raise UserError(f"its factory returns no Backbone, but {backbone!r:.60}")
  field = f"backbone.name={backbone.name!r}"
  try:
    equal = backbone == twin and hash(backbone) == hash(twin)
  except (TypeError, ValueError):  # arrays do not compare
    equal = False
  if not equal:
    raise UserError(
      f"{field}: made twice with the same options it is not equal: give blocks"
      " that are hashable and equal, without lists and arrays as attributes"
    )
  wanted = tuple(shape), classes, sorted(depths)
  present = tuple(backbone.shape), backbone.classes, sorted(backbone.exits)
  if wanted != present:
    raise UserError(
      f"{field}: asked for inputs, classes and exits {wanted}, its factory"
      f" makes {present}: pass shape, classes and depths on to Backbone"
    )
  return backbone


def check_forms(backbone: Backbone) -> None:
  """Checks names, exits, shapes and variables, for batches of any size.

  Nothing is computed. A UserError names what fails.
  """
  field = f"backbone.name={backbone.name!r}"
  ends = {"head", *map(network.exit_name, backbone.exits)}
  inside = all(1 <= k < backbone.length for k in backbone.exits)
  if not backbone.exits or not inside or ends & set(backbone.blocks):
    raise UserError(
      f"{field}: exits after blocks {sorted(backbone.exits)} of"
      f" {list(backbone.blocks)}; it needs one at least, all in"
      f" 1..{backbone.length - 1}, and no block with the name of an exit or the"
      " head"
    )
  net = sizes.shapes(backbone)
  (any_size,) = jax.export.symbolic_shape("b")  # as in an export
  for batch, train in ((_BATCH, True), (any_size, False)):
    check = functools.partial(_output, backbone, net, train)
    network.walk(backbone, check, backbone.inputs(batch))


def _output(
  backbone: Backbone, net: Net, train: bool, name: str, x: Any
) -> Any:
  """Returns shape and dtype of a block's output, after checking the block."""
  field = f"backbone.name={backbone.name!r}: {name}"

  def run(segment: Net, x: Any) -> tuple[Any, Any]:
    key = jax.random.key(0)
    return network.run(backbone, segment, x, (name,), train=train, key=key)

  try:
    out, stats = jax.eval_shape(run, network.select(net, (name,)), x)
  except InvalidRngError:
    raise UserError(
      f"{field} draws random numbers in training; give it the attribute"
      " `random = True`"
    ) from None
  except Exception as error:  # whatever a block raises
    if train:
      raise
    text = " ".join(str(error).split())[:100]
    raise UserError(
      f"{field} cannot take a batch of any size, as an export does ({text}):"
      " take x.shape[0] instead of len(x)"
    ) from error
  batch = x.shape[0]
  if name not in backbone.blocks:
    wanted = (batch, backbone.classes)
  elif name == backbone.names()[-1]:
    wanted = (batch, out.shape[-1])
  else:
    wanted = (batch, *out.shape[1:])
  default = jnp.result_type(float)
  if out.shape != wanted or out.dtype != default:
    raise UserError(
      f"{field} gives {out.dtype} {list(out.shape)} of a batch of {batch}:"
      f" blocks keep the samples' axis and hand {default} on, the last one"
      f" [B, D], and exits and head give logits [B, {backbone.classes}]"
    )
  if stats != {name: net.stats[name]}:
    raise UserError(
      f"{field} changes the form of its running statistics (batch_stats)"
    )
  return out


# XLA's optimisations would take longer than they save.
_QUICK = {"xla_backend_optimization_level": 0}
_jit = functools.partial(jax.jit, compiler_options=_QUICK)


def _learns(backbone: Backbone, net: Net) -> None:
  """Checks that gradients are finite and that parameters influence the outputs.

  Parameters are perturbed at first: a scale that starts at 0 stops the
  gradients of the branch that it scales. A parameter of gradient 0 may be
  frozen: unless it is a bias, an output must change with it.
  """
  x = _inputs(backbone, 0)

  def outputs(params: Tree) -> list[Array]:
    passes = _passes(backbone, net._replace(params=params), x)
    return [out for out, _ in passes.values()]

  def loss(params: Tree) -> Array:
    return sum(((out**2).mean() for out in outputs(params)), jnp.zeros(()))

  flat, form = jax.tree.flatten(net.params)
  draw = np.random.default_rng(0).standard_normal
  noise = [draw(leaf.shape, np.float32) for leaf in flat]
  start = [np.asarray(p) + 0.02 * z for p, z in zip(flat, noise, strict=True)]
  params = jax.tree.unflatten(form, start)
  grads, plain = _jit(lambda p: (jax.grad(loss)(p), outputs(p)))(params)
  leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(grads))
  named = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
  for path, leaf in leaves:
    if not np.isfinite(leaf).all():
      raise Broken(f"the gradient of {named(path)} is not finite")
  for i, (path, leaf) in enumerate(leaves):
    name = named(path)
    if leaf.any() or name.endswith("bias"):
      continue
    changed = [*start[:i], start[i] + noise[i], *start[i + 1 :]]
    after = _jit(outputs)(jax.tree.unflatten(form, changed))
    if all(map(np.array_equal, plain, after)):
      raise Broken(f"{name} has no effect")


def _leaves_padding_out(backbone: Backbone, net: Net) -> None:
  """Checks that padding changes no statistics and no real sample's output."""
  real = jnp.arange(_BATCH) < _REAL
  x = _inputs(backbone, 0)
  # Unlike the samples, so that it would be seen in them.
  padding = _inputs(backbone, 1) + (0 if backbone.vocabulary else 9.0)
  padded = jnp.concatenate([x[:_REAL], padding[_REAL:]])
  passes = _jit(lambda x: _passes(backbone, net, x, real=real))
  rule = "up to {} samples of padding change the others: take batch statistics"
  rule += " over `real` alone (`models.layers.normalise`)"
  _compare(passes(x), passes(padded), _REAL, rule)


def _keeps_apart(backbone: Backbone, net: Net) -> None:
  """Checks that a sample's inference logits do not depend on other samples."""
  passes = _jit(lambda x: _passes(backbone, net, x, train=False))
  x = _inputs(backbone, 0)
  rule = "at inference the logits of {} depend on other samples"
  _compare(passes(x), passes(x[:1]), 1, rule)


def _inputs(backbone: Backbone, seed: int) -> Array:
  """Draws a batch: token ids, or numbers of a normal distribution."""
  key = jax.random.key(seed)
  shape = (_BATCH, *backbone.shape)
  if backbone.vocabulary:
    return jax.random.randint(key, shape, 0, backbone.vocabulary)
  return jax.random.normal(key, shape)


def _passes(
  backbone: Backbone, net: Net, x: Array, *, train: bool = True,
  real: Array | None = None,
) -> dict[str, tuple[Array, Tree]]:  # fmt: skip
  """Maps each exit and the head to its logits and the statistics up to it."""
  run = functools.partial(
    network.run, backbone, net, x, train=train, real=real, key=jax.random.key(2)
  )
  passes = {}
  for depth in (*backbone.cuts, backbone.length):
    name = network.classifier_at(backbone, depth)
    passes[name] = run((*backbone.names(0, depth), name))
  return passes


def _compare(plain: dict, after: dict, rows: int, rule: str) -> None:
  """Compares the first rows of logits, and statistics, of each classifier."""
  for name, (logits, stats) in plain.items():
    other_logits, other_stats = after[name]
    leaves = jax.tree.leaves((logits[:rows], stats))
    other_leaves = jax.tree.leaves((other_logits[:rows], other_stats))
    for x, y in zip(leaves, other_leaves, strict=True):
      tolerance = _TOLERANCE * float(np.max(np.abs(y), initial=0))
      if not np.allclose(x, y, rtol=0, atol=tolerance):
        raise Broken(rule.format(name))
