"""Numerical checks of a network: gradients, padding, inference, random draws.

Each check returns a sentence that says what holds. The outcome of a check does
not depend on the processor: matrix products are taken in full float32, and the
errors that the checks look for are far larger than rounding errors.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.models import backbones, drawing
from splitjax.models.backbones import Backbone
from splitjax.types import Net, Tree

BATCH = 6
TOLERANCE = 1e-3
"""Tolerance of comparisons, relative to an output's largest absolute value."""


_jit = functools.partial(
  jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)
"""Jits without XLA's optimisations, which would take longer than they save."""


class Broken(AssertionError):
  """A network or method breaks its contract; the message says which part."""


def check_numbers(net: Backbone) -> list[str]:
  """Checks gradients, padding, inference and random draws of a network.

  Returns:
    One sentence for each check.

  Raises:
    Broken: a check fails.
  """
  with jax.default_matmul_precision("highest"):
    full = _jit(lambda key: drawing.init(net, key))(jax.random.key(0))
    parts = [learns, leaves_padding_out, keeps_apart, draws_by_key]
    return [part(net, full) for part in parts[: 3 + net.random]]


def _images(net: Backbone, seed: int) -> jax.Array:
  key, shape = jax.random.key(seed), (BATCH, *net.shape)
  if net.vocabulary:
    return jax.random.randint(key, shape, 0, net.vocabulary)
  return jax.random.normal(key, shape)


def _paths(net: Backbone) -> list[tuple[str, ...]]:
  """Lists the paths of block names from the input to each exit and the head."""
  return [
    (*net.names(0, k), backbones.classifier_at(net, k))
    for k in (*net.cuts, net.length)
  ]


def _run(
  net: Backbone, full: Net, x: jax.Array, **how: Any
) -> list[tuple[jax.Array, Tree]]:
  """Calls `backbones.run` on each path of `_paths` and lists the results."""
  return [backbones.run(net, full, x, names, **how) for names in _paths(net)]


def learns(net: Backbone, full: Net) -> str:
  """Checks that gradients are finite and that parameters influence the outputs.

  Gradients are taken near the initial values, not at them, because a gate that
  starts at zero hides the branch behind it. If a parameter other than a bias
  has the gradient 0 (it may be frozen), the check changes this parameter, and
  an output must then change too.
  """

  def outputs(params: Tree) -> list[Any]:
    segment, key = full._replace(params=params), jax.random.key(2)
    every = _run(net, segment, _images(net, 0), train=True, key=key)
    return [out for out, _ in every]

  def loss(params: Tree) -> jax.Array:
    return sum(((out**2).mean() for out in outputs(params)), jnp.zeros(()))

  # Gradients at a point off the initial values.
  flat, form = jax.tree.flatten(full.params)
  draw = np.random.default_rng(0).standard_normal
  noise = [draw(x.shape, np.float32) for x in flat]
  moved = [np.asarray(x) + 0.02 * z for x, z in zip(flat, noise, strict=True)]
  params = jax.tree.unflatten(form, moved)
  grads, before = _jit(lambda p: (jax.grad(loss)(p), outputs(p)))(params)
  grads = jax.device_get(grads)
  paths = jax.tree_util.tree_leaves_with_path(grads)
  for path, leaf in paths:
    if not np.isfinite(leaf).all():
      name = jax.tree_util.keystr(path, simple=True, separator="/")
      raise Broken(f"the gradient of {name} is not finite")
  # Does a parameter whose gradient is 0 change an output?
  for i, (path, leaf) in enumerate(paths):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
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
  one, far = _images(net, 0), 0 if net.vocabulary else 9.0
  counts = real.reshape(-1, *[1] * (one.ndim - 1))
  two = jnp.where(counts, one, far + _images(net, 1))

  def outputs(x):
    return _run(net, full, x, train=True, real=real, key=jax.random.key(2))

  again = _jit(outputs)
  a, b = again(one), again(two)
  for names, (out, stats), (other, others) in zip(
    _paths(net), a, b, strict=True
  ):
    if not _close((out[:-2], stats), (other[:-2], others)):
      raise Broken(
        f"up to {names[-1]} samples of padding change the others: take batch"
        " statistics over `real` alone (`models.layers.normalise`)"
      )
  return "samples of padding change no other and no statistics"


def keeps_apart(net: Backbone, full: Net) -> str:
  """Checks that a sample's inference logits do not depend on other samples."""
  x = _images(net, 0)

  def outputs(x):
    return [out for out, _ in _run(net, full, x, train=False)]

  every, alone = (_jit(outputs)(each) for each in (x, x[:1]))
  for names, out, single in zip(_paths(net), every, alone, strict=True):
    if not _close(out[:1], single):
      raise Broken(
        f"at inference the logits of {names[-1]} depend on other samples"
      )
  return "at inference samples do not depend on each other"


def draws_by_key(net: Backbone, full: Net) -> str:
  """Checks that outputs are equal for equal keys and differ for other keys."""

  def outputs(seed):
    key = jax.random.key(seed)
    every = _run(net, full, _images(net, 0), train=True, key=key)
    return [out for out, _ in every]

  again = _jit(outputs)
  one, same, other = again(0), again(0), again(1)
  if not all(map(np.array_equal, one, same)):
    raise Broken("in training its blocks draw from another source than the key")
  if all(map(np.array_equal, one, other)):
    raise Broken(
      "a block is `random` or has a `dropout`, and in training no key matters:"
      " draw by self.make_rng('dropout'), as nn.Dropout does"
    )
  return "in training random blocks draw from the batch's key"


def _close(one: Tree, other: Tree) -> bool:
  return all(
    np.allclose(
      x, y, rtol=0, atol=TOLERANCE * float(np.max(np.abs(y), initial=0))
    )
    for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True)
  )
