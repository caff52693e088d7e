"""OPTIMIZERS: the rules by which a gradient moves a block, by name.

>>> import optax, splitjax
>>> splitjax.OPTIMIZERS["lion"] = lambda momentum: optax.scale_by_lion(momentum)
>>> c = splitjax.default()
>>> c.optimizer.name = "lion"
>>> splitjax.Config.from_dict(c).optimizer.name
'lion'
>>> del splitjax.OPTIMIZERS["lion"]
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from splitjax.types import Tree, UserError


def _trace(momentum: float) -> optax.GradientTransformation:
  return optax.trace(momentum) if momentum else optax.identity()


OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
  "sgd": _trace,
  "adam": lambda momentum: optax.scale_by_adam(b1=momentum),
  "adamw": lambda momentum: optax.scale_by_adam(b1=momentum),
  "adamax": lambda momentum: optax.scale_by_adamax(b1=momentum),
  "nadam": lambda momentum: optax.scale_by_adam(b1=momentum, nesterov=True),
}
"""Name -> (momentum) -> optax transformation, without learning rate and weight
decay. Add your own before a config names it."""

_OURS = dict(OPTIMIZERS)

DECOUPLED = {"adamw"}
"""Optimisers whose weight decay is not added to the gradient."""


def weights(params: Tree) -> Tree:
  """Makes a mask: True for arrays of two or more dimensions, except biases."""
  return jax.tree_util.tree_map_with_path(
    lambda path, x: x.ndim > 1 and "bias" not in str(path[-1]), params
  )


def find(name: str, momentum: float) -> optax.GradientTransformation:
  """Makes the transformation `name`.

  If a user added it, it is first tried on two numbers.

  Raises:
    UserError: the entry makes no transformation, or the first step is not along
      the gradient.
  """
  make = OPTIMIZERS[name]
  if make is _OURS.get(name) or not isinstance(momentum, float):
    return make(momentum)
  remedy = (
    "it must map momentum to an optax transformation without a learning rate,"
    " as in `lambda momentum: optax.scale_by_lion(b1=momentum)`"
  )
  try:
    tx = make(momentum)
    with jax.ensure_compile_time_eval():
      grad = jnp.array([1.0, -2.0])
      state = tx.init(grad)
      step, again = tx.update(grad, state, grad)
      along = bool(step @ grad > 0)
    before, after = map(jax.tree.structure, (state, again))
    if str(before) != str(after):
      raise TypeError("its state changes its form")
    if not along:
      raise ValueError("its first step is not along the gradient")
  except Exception as error:  # whatever an entry raises
    said = " ".join(str(error).split())[:100]
    raise UserError(f"optimizer.name={name!r}: {said}; {remedy}") from error
  return tx


def with_float_counts(
  tx: optax.GradientTransformation,
) -> optax.GradientTransformation:
  """Stores the step counters of a transformation as floats.

  The server's slots are means over its copies, and a mean of counters may be a
  fraction. The transformation gets the counter rounded.
  """

  def counts(x):
    return not jnp.issubdtype(x.dtype, jnp.floating)

  def floats(state):
    return jax.tree.map(lambda x: x.astype(float) if counts(x) else x, state)

  def init(params):
    return floats(tx.init(params))

  def update(grads, state, params=None):
    counted = jax.tree.map(
      lambda x, kind: jnp.rint(x).astype(kind.dtype) if counts(kind) else x,
      state,
      jax.eval_shape(tx.init, params),
    )
    step, new = tx.update(grads, counted, params)
    return step, floats(new)

  return optax.GradientTransformation(init, update)
