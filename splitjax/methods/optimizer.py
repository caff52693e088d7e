"""The outer optimiser, applied block by block: bypassed blocks do not move."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from splitjax import trees
from splitjax.types import Array, Half, Opt, Segment, Tree


class Optimizer(NamedTuple):
  """The outer optimiser of both halves.

  Attributes:
    tx: optax transformation, applied block by block.
    rate: round [] int32 -> factor on the learning rate.
    keep: whether its slots (momentum) live on between rounds.
    clip: the largest norm of a half's gradient; None for no limit.
  """

  tx: optax.GradientTransformation
  rate: Callable[[Array], Array]
  keep: bool = False
  clip: float | None = None


def sgd(
  lr: float,
  momentum: float = 0.9,
  weight_decay: float = 0.0,
  *,
  schedule: str = "constant",
  rounds: int = 1,
  decay: float = 0.993,
  floor: float = 0.0,
  keep_state: bool = False,
  clip: float | None = None,
) -> Optimizer:
  """SGD with momentum and coupled L2 weight decay, reset in every round.

  Args:
    lr: beta, the learning rate of round 0.
    momentum: of the buffer, which starts at zero in each round.
    weight_decay: added to the gradient as weight_decay * parameter.
    schedule: "constant", "cosine" from lr to 0 over the rounds, or
      "exponential", max(lr decay^round, floor) (Hydra, MergeSFL).
    rounds: length of the schedule.
    decay: of the exponential schedule.
    floor: the learning rate at which the exponential schedule ends, at most
      lr.
    keep_state: keep the buffers between rounds: each client its own, the
      server the mean of its copies.
    clip: scale the gradient of a half down to this norm where it is larger,
      before weight decay is added; None for no limit.
  """
  tx = optax.chain(
    optax.add_decayed_weights(weight_decay)
    if weight_decay
    else (optax.identity()),
    optax.trace(momentum) if momentum else optax.identity(),
    optax.scale(-lr),
  )
  schedules = {
    "constant": lambda r: jnp.ones(()),
    "cosine": optax.cosine_decay_schedule(1.0, max(rounds, 1)),
    "exponential": optax.exponential_decay(
      1.0, 1, decay, end_value=min(floor / lr, 1.0)
    ),
  }
  return Optimizer(tx, schedules[schedule], keep_state, clip)


def slots(
  tx: optax.GradientTransformation, segment: Segment
) -> dict[str, Tree]:
  """Fresh optimiser slots, block name -> optax state."""
  return {name: tx.init(params) for name, params in segment.params.items()}


def begin_round(half: Half, optimizer: Optimizer, round: Array) -> Half:
  """Gives a half its optimiser state: slots kept or fresh, no block touched."""
  kept = half.opt if optimizer.keep else slots(optimizer.tx, half.segment)
  untouched = {name: jnp.bool_(False) for name in half.segment.params}
  opt = Opt(optimizer.rate(round), kept, untouched, untouched)
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
  """One optimiser step on the blocks that have a gradient.

  A block without a gradient, or with `passed` false, keeps its parameters,
  statistics and slots: neither momentum nor weight decay moves it.

  Args:
    half: within a round.
    grads: block name -> gradient.
    stats: block name -> new running statistics.
    optimizer: `clip` limits the joint norm of the gradients that count.
    passed: block name -> [] bool, whether features passed the block; None: all.
  """
  segment, opt = half.segment, half.opt
  params, kept = dict(segment.params), dict(opt.slots)
  touched, wrote = dict(opt.touched), dict(opt.wrote)
  # Gradients: clipped jointly, then one optax update per block.
  if optimizer.clip is not None:
    grads = clipped(grads, optimizer.clip, passed)
  for name, grad in grads.items():
    step, slot = optimizer.tx.update(grad, kept[name], params[name])
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
