"""The optimiser of both sides, applied block by block.

>>> import optax, splitjax
>>> splitjax.OPTIMIZERS["lion"] = lambda momentum: optax.scale_by_lion(momentum)
>>> c = splitjax.default()
>>> c.optimizer.name = "lion"
>>> splitjax.Config.from_dict(c).optimizer.name
'lion'
>>> del splitjax.OPTIMIZERS["lion"]
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from splitjax import trees
from splitjax.core.methods import schedules
from splitjax.core.pytree import STATIC, pytree
from splitjax.core.records import NO_BLOCKS, Half, Net, Tree
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Bounds

Momentum = float | Array | None


def _adam(momentum: Momentum, **options: Any) -> optax.GradientTransformation:
  beta: Any = 0.0 if momentum is None else momentum
  return optax.scale_by_adam(b1=beta, **options)


def _sgd(momentum: Momentum) -> optax.GradientTransformation:
  return optax.identity() if momentum is None else optax.trace(momentum)


def _adamax(momentum: Momentum) -> optax.GradientTransformation:
  beta: Any = 0.0 if momentum is None else momentum
  return optax.scale_by_adamax(b1=beta)


OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
  "sgd": _sgd,
  "adam": _adam,
  "adamw": _adam,
  "adamax": _adamax,
  "nadam": lambda momentum: _adam(momentum, nesterov=True),
}
"""Name -> (momentum or None) -> optax transformation, without learning rate and
weight decay. Add your own before a config names it."""

DECOUPLED = {"adamw"}
"""Optimisers whose weight decay is not added to the gradient."""


@pytree
class Optimizer:
  """An optax rule with weight decay, clipping and a schedule over rounds.

  Attributes:
    lr: beta, the learning rate that the schedule multiplies.
    momentum: decay of SGD's buffer, beta_1 of Adam's relatives; None: neither.
    weight_decay: times the parameter, added to the gradient, or, for DECOUPLED
      rules, to the step; None: none.
    server_lr: learning rate of the server's side; None: lr.
    clip: largest norm of a side's gradient over all its blocks, before weight
      decay is added; None: no limit.
    name: key of OPTIMIZERS.
    schedule: key of SCHEDULES. "constant"; "cosine": from lr to 0 over the
      rounds; "exponential": max(lr decay^(round / every), floor) (Hydra,
      MergeSFL); "step": the same with round / every rounded down; "inverse":
      eta_0 / (a + round) with eta_0 = a lr (SplitGP, Theorem 1).
    rounds: R, length of the schedule.
    warmup: rounds of a linear warm-up before the schedule.
    decay, every: "exponential" and "step" decay by this factor in so many
      rounds.
    floor: the smallest learning rate of "exponential" and "step", at most lr;
      for the server's side it is multiplied by server_lr / lr.
    offset: a of the schedule "inverse", in rounds.
  """

  lr: Annotated[float, POSITIVE]
  momentum: Annotated[float | None, SHARE] = 0.9
  weight_decay: Annotated[float | None, NOT_NEGATIVE] = None
  server_lr: Annotated[float | None, POSITIVE] = None
  clip: Annotated[float | None, POSITIVE] = None
  name: str = "sgd"
  schedule: str = "constant"
  rounds: Annotated[int, COUNT] = 1
  warmup: Annotated[float, NOT_NEGATIVE, STATIC] = 0.0
  decay: Annotated[float, Bounds(above=0, below=1), STATIC] = 0.993
  every: Annotated[int, COUNT] = 1
  floor: Annotated[float, NOT_NEGATIVE, STATIC] = 0.0
  offset: Annotated[float, POSITIVE, STATIC] = 1.0

  def at(self, round: Array) -> "Optimizer":
    """Returns the optimiser with the learning rates of a round."""
    settings = schedules.Settings(
      decay=self.decay,
      every=self.every,
      floor=jnp.minimum(self.floor / self.lr, 1.0),
      offset=self.offset,
    )
    factor = schedules.factor(
      self.schedule, settings, self.rounds, self.warmup, round
    )
    rates: dict[str, Any] = {"lr": self.lr * factor}
    if self.server_lr is not None:
      rates["server_lr"] = self.server_lr * factor
    return dataclasses.replace(self, **rates)

  @property
  def at_server(self) -> "Optimizer":
    """The optimiser of the server's side."""
    if self.server_lr is None:
      return self
    return dataclasses.replace(self, lr=self.server_lr, server_lr=None)

  @property
  def rule(self) -> optax.GradientTransformation:
    """The optax transformation of a block."""
    parts = [OPTIMIZERS[self.name](self.momentum)]
    if self.weight_decay is not None:
      decay = optax.add_decayed_weights(self.weight_decay)
      parts.insert(len(parts) if self.name in DECOUPLED else 0, decay)
    return optax.chain(*parts, optax.scale_by_learning_rate(self.lr))

  def start(self, net: Net, memory: Tree = (), *, copied: bool = False) -> Half:
    """Makes a side at the start of a round, with fresh slots.

    `copied` tells that the side is a copy of the server, which marks what its
    steps touch.
    """
    slots = {name: self.rule.init(tree) for name, tree in net.params.items()}
    never = dict.fromkeys(net.params, jnp.bool_(False)) if copied else {}
    touched = Net(params=never, stats=never) if copied else NO_BLOCKS
    return Half(net=net, slots=slots, touched=touched, memory=memory)

  def step(
    self,
    half: Half,
    grads: dict[str, Tree],
    stats: dict[str, Tree],
    passed: dict[str, Array] | None = None,
  ) -> Half:
    """Moves the blocks that have a gradient; `stats` replace the old ones.

    A block that features did not pass (`passed` is false) stays as it is: even
    a zero gradient would let momentum and weight decay move it. Statistics
    replace the old ones in any case.
    """
    if self.clip is not None:
      grads = clipped(grads, self.clip, passed)
    params = dict(half.net.params)
    slots = dict(half.slots)
    for name, grad in grads.items():
      update, slot = self.rule.update(grad, slots[name], params[name])
      moved = optax.apply_updates(params[name], update), slot
      if passed is not None:
        moved = trees.where(passed[name], moved, (params[name], slots[name]))
      params[name], slots[name] = moved
    net = Net(params=params, stats=half.net.stats | stats)
    half = half._replace(net=net, slots=slots)
    if not half.touched.params:
      return half
    # The copy of a block that nothing has touched is left out of its mean.
    moves = dict(half.touched.params)
    for name in grads:
      moves[name] |= True if passed is None else passed[name]
    writes = half.touched.stats | dict.fromkeys(stats, jnp.bool_(True))
    return half._replace(touched=Net(params=moves, stats=writes))


def clipped(
  grads: dict[str, Tree],
  limit: Array | float,
  passed: dict[str, Array] | None = None,
) -> dict[str, Tree]:
  """Scales gradients down to a joint norm of `limit` if theirs is larger.

  The norm is the l2 norm of all blocks as one vector, without those that have a
  false entry in `passed` (block name -> [] bool).
  """
  squares = [
    jnp.where(True if passed is None else passed[name], jnp.sum(x * x), 0.0)
    for name, grad in grads.items()
    for x in jax.tree.leaves(grad)
  ]
  norm = jnp.sqrt(sum(squares, jnp.zeros(())))
  return trees.scale(limit / jnp.maximum(norm, limit), grads)
