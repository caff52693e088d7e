"""The outer optimiser, applied block by block: bypassed blocks do not move.

>>> import optax, splitjax
>>> splitjax.OPTIMIZERS["lion"] = lambda momentum: optax.scale_by_lion(momentum)
>>> c = splitjax.default()
>>> c.optimizer.name = "lion"
>>> splitjax.Config.from_dict(c).optimizer.name
'lion'
>>> del splitjax.OPTIMIZERS["lion"]
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from splitjax import trees
from splitjax.types import (
  Array,
  Half,
  Opt,
  Segment,
  ServerOpt,
  Tree,
  UserError,
)


class Optimizer(NamedTuple):
  """The outer optimiser of both halves.

  Attributes:
    tx: optax transformation, applied block by block.
    rate: round [] int32 -> factor on the learning rate.
    with_lr: learning rate -> tx with that rate; its slots have the same form.
    keep: whether its slots (momentum, moments) live on between rounds.
    clip: the largest norm of a half's gradient; None for no limit.
    server_tx: tx of the server's blocks; None: `tx`.
  """

  tx: optax.GradientTransformation
  rate: Callable[[Array], Array]
  with_lr: Callable[[float], optax.GradientTransformation]
  keep: bool = False
  clip: float | None = None
  server_tx: optax.GradientTransformation | None = None

  def rule(self, server: bool) -> optax.GradientTransformation:
    """Returns the transformation for the server's blocks, or a client's."""
    return self.server_tx if server and self.server_tx else self.tx


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


def make(
  name: str,
  lr: float,
  momentum: float = 0.9,
  weight_decay: float = 0.0,
  *,
  server_name: str | None = None,
  server_lr: float | None = None,
  schedule: str = "constant",
  rounds: int = 1,
  decay: float = 0.993,
  floor: float = 0.0,
  offset: float = 1.0,
  keep_state: bool = False,
  clip: float | None = None,
) -> Optimizer:
  """Makes an optimiser with weight decay and a schedule, reset every round.

  Args:
    name: key of OPTIMIZERS.
    lr: beta, the learning rate of round 0.
    momentum: decay of the buffer, which is zero at a round's start; beta_1 of
      Adam's relatives.
    weight_decay: added to the gradient as weight_decay * parameter; for
      DECOUPLED optimisers added to the step, times the learning rate.
    server_name: key of OPTIMIZERS for the server's half; None: name. The
      optimiser on the mean of a round is another, see `mean_optimizer`.
    server_lr: learning rate of the server's half; None: lr.
    schedule: "constant", "cosine" from lr to 0 over the rounds,
      "exponential", max(lr decay^round, floor) (Hydra, MergeSFL), or "inverse",
      eta_0 / (a + round) with eta_0 = a lr (SplitGP, Theorem 1).
    rounds: length of the schedule.
    decay: factor per round of the exponential schedule.
    floor: the learning rate at which the exponential schedule ends, at most
      lr.
    offset: a of the inverse schedule.
    keep_state: keep the slots between rounds: each client its own, the server
      the mean of its copies.
    clip: scale the gradient of a half down to this norm where it is larger,
      before weight decay is added; None for no limit.

  Raises:
    UserError: an entry of OPTIMIZERS makes no transformation.
  """

  def rule(name: str, lr: float) -> optax.GradientTransformation:
    tx = _checked(name, momentum)
    if weight_decay:
      parts = [optax.add_decayed_weights(weight_decay), tx]
      tx = optax.chain(*(parts[::-1] if name in DECOUPLED else parts))
    return with_float_counts(optax.chain(tx, optax.scale(-lr)))

  own = server_name is not None or server_lr is not None
  at_server = server_name or name, lr if server_lr is None else server_lr
  schedules = {
    "constant": lambda r: jnp.ones(()),
    "cosine": optax.cosine_decay_schedule(1.0, max(rounds, 1)),
    "exponential": optax.exponential_decay(
      1.0, 1, decay, end_value=min(floor / lr, 1.0)
    ),
    "inverse": lambda r: offset / (offset + r),
  }
  return Optimizer(
    rule(name, lr),
    schedules[schedule],
    functools.partial(rule, name),
    keep_state,
    clip,
    rule(*at_server) if own else None,
  )


sgd = functools.partial(make, "sgd")
"""SGD with momentum and coupled L2 weight decay."""


def _checked(name: str, momentum: float) -> optax.GradientTransformation:
  """Makes the transformation `name`; tries a user's own on two numbers.

  Raises:
    UserError: it is no transformation, or its step is not along the gradient.
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

  The server's slots are means over its copies, and a mean of counters may be no
  integer; the transformation sees it rounded.
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


def slots(
  tx: optax.GradientTransformation, segment: Segment
) -> dict[str, Tree]:
  """Makes fresh optimiser slots, block name -> optax state."""
  return {name: tx.init(params) for name, params in segment.params.items()}


def begin_round(
  half: Half, optimizer: Optimizer, round: Array, *, server: bool = False
) -> Half:
  """Gives a half its optimiser state: slots kept or fresh, no block touched.

  `server` says whose half it is: `descend` takes its rule from then on.
  """
  fresh = slots(optimizer.rule(server), half.segment)
  kept = half.opt if optimizer.keep else fresh
  untouched = {name: jnp.bool_(False) for name in half.segment.params}
  kind = ServerOpt if server else Opt
  opt = kind(optimizer.rate(round), kept, untouched, untouched)
  return half._replace(opt=opt)


def clipped(
  grads: dict[str, Tree], limit: float, passed: dict[str, Array] | None = None
) -> dict[str, Tree]:
  """Scales gradients down to a joint norm of `limit` if theirs is larger.

  The norm is the l2 norm of all blocks as one vector. Only blocks that `passed`
  (block name -> [] bool) count; None: all.
  """
  squares = [
    jnp.where(True if passed is None else passed[name], jnp.sum(x * x), 0.0)
    for name, grad in grads.items()
    for x in jax.tree.leaves(grad)
  ]
  norm = jnp.sqrt(sum(squares, jnp.zeros(())))
  share = limit / jnp.maximum(norm, limit)  # exactly 1 up to the limit
  return {name: trees.scale(share, grad) for name, grad in grads.items()}


def descend(
  half: Half,
  grads: dict[str, Tree],
  stats: dict[str, Tree],
  optimizer: Optimizer,
  passed: dict[str, Array] | None = None,
) -> Half:
  """Takes an optimiser step on the blocks that have a gradient.

  A block without a gradient, or with `passed` false, keeps its parameters,
  statistics and slots: neither momentum nor weight decay moves it.

  Args:
    half: a half within a round.
    grads: block name -> gradient.
    stats: block name -> new running statistics.
    optimizer: the server's half takes its own rule; `clip` limits the joint
      norm of the gradients that count.
    passed: block name -> [] bool, whether features passed the block; None: all.
  """
  segment, opt = half.segment, half.opt
  rule = optimizer.rule(isinstance(opt, ServerOpt))
  params, kept = dict(segment.params), dict(opt.slots)
  touched, wrote = dict(opt.touched), dict(opt.wrote)
  # Gradients: clipped jointly, then one optax update per block.
  if optimizer.clip is not None:
    grads = clipped(grads, optimizer.clip, passed)
  for name, grad in grads.items():
    step, slot = rule.update(grad, kept[name], params[name])
    new = jax.tree.map(lambda p, s: p + opt.rate * s, params[name], step)
    on = jnp.bool_(True) if passed is None else passed[name]
    if passed is not None:
      new, slot = trees.where(on, (new, slot), (params[name], kept[name]))
    params[name], kept[name], touched[name] = new, slot, touched[name] | on
  # Running statistics replace the old ones.
  for name in stats:
    wrote[name] = jnp.bool_(True)
  return half._replace(
    segment=Segment(params, {**segment.stats, **stats}),
    opt=opt._replace(slots=kept, touched=touched, wrote=wrote),
  )
