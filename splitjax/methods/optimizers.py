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
from splitjax.methods import schedules
from splitjax.types import Array, Half, Opt, Segment, Tree


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

DECOUPLED = {"adamw"}
"""Optimisers whose weight decay is not added to the gradient."""


class Optimizer(NamedTuple):
  """The outer optimiser of both halves.

  Attributes:
    tx: optax transformation, applied block by block.
    rate: round -> factor on the learning rate.
    with_lr: learning rate -> `tx` with this rate; the slots keep their form.
    server_factor: a further factor on the rate of the server's half.
    clip: the largest norm of a half's gradient; None for no limit.
  """

  tx: optax.GradientTransformation
  rate: optax.Schedule
  with_lr: Callable[[float], optax.GradientTransformation]
  server_factor: float = 1.0
  clip: float | None = None


def make_optimizer(
  name: str,
  lr: float,
  momentum: float = 0.9,
  weight_decay: float = 0.0,
  *,
  server_lr: float | None = None,
  schedule: str = "constant",
  rounds: int = 1,
  warmup: float = 0.0,
  decay: float = 0.993,
  every: int = 1,
  floor: float = 0.0,
  offset: float = 1.0,
  clip: float | None = None,
) -> Optimizer:
  """Makes an optimiser with weight decay and a schedule.

  Args:
    name: key of OPTIMIZERS.
    lr: beta, the learning rate that the schedule multiplies.
    momentum: decay of the momentum buffer; beta_1 of Adam's relatives.
    weight_decay: factor of the decay. weight_decay * parameter is added to the
      gradient. For DECOUPLED optimisers it is added to the step instead, times
      the learning rate.
    server_lr: learning rate of the server's half; None: lr. The mean of a round
      has an optimiser of its own, see `mean_optimizer`.
    schedule: key of SCHEDULES (`schedules`). "constant"; "cosine": from lr to 0
      over the rounds; "exponential": max(lr decay^(round / every), floor)
      (Hydra, MergeSFL); "step": the same with round / every rounded down;
      "inverse": eta_0 / (a + round) with eta_0 = a lr (SplitGP, Theorem 1).
    rounds: R, length of the schedule.
    warmup: rounds of a linear warm-up before the schedule.
    decay: factor by which "exponential" and "step" decay in `every` rounds.
    every: number of rounds for one such decay.
    floor: the smallest learning rate of "exponential" and "step", at most lr.
      For the server's half it is multiplied by server_lr / lr.
    offset: a of the "inverse" schedule.
    clip: the largest norm of a half's gradient. A larger gradient is scaled
      down to this norm, before weight decay is added. None for no limit.
  """

  def rule(lr: float) -> optax.GradientTransformation:
    tx = OPTIMIZERS[name](momentum)
    if weight_decay:
      parts = [optax.add_decayed_weights(weight_decay), tx]
      tx = optax.chain(*(parts[::-1] if name in DECOUPLED else parts))
    return optax.chain(tx, optax.scale(-lr))

  numbers = schedules.Settings(1, decay, every, min(floor / lr, 1.0), offset)
  return Optimizer(
    tx=rule(lr),
    rate=schedules.make(schedule, numbers, rounds, warmup),
    with_lr=rule,
    server_factor=1.0 if server_lr is None else server_lr / lr,
    clip=clip,
  )


sgd = functools.partial(make_optimizer, "sgd")
"""SGD with momentum and coupled L2 weight decay."""


def begin_round(
  half: Half, optimizer: Optimizer, round: Array, *, server: bool = False
) -> Half:
  """Gives a half a new optimiser state at the start of a round.

  The state marks no block as touched. `server` tells that the half is the
  server's, which may have a learning rate of its own.
  """
  params = half.segment.params
  slots = {name: optimizer.tx.init(block) for name, block in params.items()}
  untouched = {name: jnp.bool_(False) for name in params}
  rate = optimizer.rate(round)
  if server:
    rate = rate * optimizer.server_factor
  return half._replace(opt=Opt(rate, slots, untouched, untouched))


def clipped(
  grads: dict[str, Tree], limit: float, passed: dict[str, Array] | None = None
) -> dict[str, Tree]:
  """Scales gradients down to a joint norm of `limit` if their norm is larger.

  The norm is the l2 norm of all blocks as one vector. If `passed` (block name
  -> [] bool) is given, the vector leaves out blocks with a false entry.
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

  A block without a gradient, or with a false entry in `passed`, keeps its
  parameters and slots: neither momentum nor weight decay moves it.

  Args:
    half: a half within a round.
    grads: block name -> gradient.
    stats: block name -> new running statistics. They replace the old ones, also
      in blocks that features did not pass.
    optimizer: takes the step. Its `clip` limits the joint norm of the gradients
      of all blocks that features passed.
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
