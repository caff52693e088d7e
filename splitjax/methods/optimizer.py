"""The optimiser of both sides, applied block by block, and its learning rate.

>>> import optax, splitjax
>>> splitjax.OPTIMIZERS["lion"] = lambda momentum: optax.scale_by_lion(momentum)
>>> splitjax.SCHEDULES["linear"] = lambda s: optax.linear_schedule(
...   1.0, 0.1, s.length
... )
>>> c = splitjax.default()
>>> c.optimizer.name = "lion"
>>> c.optimizer.schedule = "linear"
>>> splitjax.Config.from_dict(c).optimizer.schedule
'linear'
>>> del splitjax.OPTIMIZERS["lion"], splitjax.SCHEDULES["linear"]
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from splitjax import trees
from splitjax.fields import (
  COUNT,
  NOT_NEGATIVE,
  POSITIVE,
  SHARE,
  Bounds,
  unknown,
)
from splitjax.parameters import STATIC, pytree
from splitjax.types import Half, Net, Tree, UserError


def _beta(momentum: Any) -> Any:
  return 0.0 if momentum is None else momentum


OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
  "sgd": lambda m: optax.identity() if m is None else optax.trace(m),
  "adam": lambda m: optax.scale_by_adam(_beta(m)),
  "adamw": lambda m: optax.scale_by_adam(_beta(m)),
  "adamax": lambda m: optax.scale_by_adamax(_beta(m)),
  "nadam": lambda m: optax.scale_by_adam(_beta(m), nesterov=True),
}
"""Name -> (momentum or None) -> optax transformation, without learning rate and
weight decay. Add your own before a config names it."""

DECOUPLED = {"adamw"}
"""Rules whose weight decay is not added to the gradient."""


class Settings(NamedTuple):
  """The numbers that a schedule is made of, as in `Optimizer`."""

  length: float = 1  #: rounds from the end of warm-up to that of the run
  decay: float = 0.993
  every: int = 1
  floor: float | Array = 0.0  #: the smallest factor, at most 1
  offset: float = 1.0


def _exponential(s: Settings, staircase: bool = False) -> optax.Schedule:
  floor = s.floor if s.decay < 1 else None  # to optax a ceiling if decay >= 1
  return optax.exponential_decay(
    1.0, s.every, s.decay, staircase=staircase, end_value=floor
  )


SCHEDULES: dict[str, Callable[[Settings], optax.Schedule]] = {
  "constant": lambda s: lambda round: jnp.ones(jnp.shape(round)),
  "cosine": lambda s: optax.cosine_decay_schedule(1.0, s.length),
  "exponential": _exponential,
  "step": lambda s: _exponential(s, staircase=True),
  "inverse": lambda s: lambda round: s.offset / (s.offset + round),
}
"""Name -> (Settings -> optax schedule), which maps a round to a factor on the
learning rate; within a round that is constant."""


@pytree
class Optimizer:
  """An optax rule with weight decay, clipping and a schedule over rounds."""

  #: beta, the learning rate that the schedule multiplies
  lr: Annotated[float, POSITIVE]
  #: decay of SGD's buffer, beta_1 of Adam's relatives; None: neither
  momentum: Annotated[float | None, SHARE] = 0.9
  #: times the parameter, added to the gradient, or, for DECOUPLED rules, to the
  #: step; None: none
  weight_decay: Annotated[float | None, NOT_NEGATIVE] = None
  #: learning rate of the server's side; None: lr
  server_lr: Annotated[float | None, POSITIVE] = None
  #: largest norm of a side's gradient over all its blocks, before weight decay
  #: is added; None: no limit
  clip: Annotated[float | None, POSITIVE] = None
  name: str = "sgd"  #: key of OPTIMIZERS
  #: key of SCHEDULES: "constant"; "cosine", from lr to 0 over `rounds` R;
  #: "exponential", max(lr decay^(round / every), floor) (Hydra, MergeSFL);
  #: "step", the same with round / every rounded down; "inverse", eta_0 / (a +
  #: round) with the `offset` a and eta_0 = a lr (SplitGP, Theorem 1)
  schedule: str = "constant"
  rounds: Annotated[int, COUNT] = 1
  #: rounds w of a warm-up before the schedule, by (1 + t) / (1 + w)
  warmup: Annotated[float, NOT_NEGATIVE, STATIC] = 0.0
  decay: Annotated[float, Bounds(above=0, below=1), STATIC] = 0.993
  every: Annotated[int, COUNT] = 1
  #: the smallest learning rate, at most lr; for the server's side it is
  #: multiplied by server_lr / lr
  floor: Annotated[float, NOT_NEGATIVE, STATIC] = 0.0
  offset: Annotated[float, POSITIVE, STATIC] = 1.0

  def __post_init__(self) -> None:
    for field, registry in (
      ("name", OPTIMIZERS),
      ("schedule", SCHEDULES),
    ):
      value = getattr(self, field)
      if value not in registry:
        raise UserError(unknown(field, value, registry, "name"))

  def at(self, round: Array) -> "Optimizer":
    """Returns the optimiser with the learning rates of a round."""
    warmup = self.warmup
    settings = Settings(
      length=max(self.rounds - warmup if warmup else self.rounds, 1),
      decay=self.decay,
      every=self.every,
      floor=jnp.minimum(self.floor / self.lr, 1.0),
      offset=self.offset,
    )
    rule = SCHEDULES[self.schedule](settings)
    if warmup:
      rise = optax.linear_schedule(1 / (1 + warmup), 1.0, warmup)
      rule = optax.join_schedules([rise, rule], [warmup])
    factor = rule(round)
    server_lr = None if self.server_lr is None else self.server_lr * factor
    rates: Any = {"lr": self.lr * factor, "server_lr": server_lr}
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
    """Makes a side with fresh slots; a copy of the server marks its moves."""
    slots = {name: self.rule.init(tree) for name, tree in net.params.items()}
    never = dict.fromkeys(net.params, jnp.bool_(False)) if copied else {}
    touched = Net(params=never, stats=never)
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
    a zero gradient would let momentum and weight decay move it.
    """
    if self.clip is not None:
      grads = clipped(grads, self.clip, passed)
    params, slots = dict(half.net.params), dict(half.slots)
    for name, grad in grads.items():
      update, slot = self.rule.update(grad, slots[name], params[name])
      moved = optax.apply_updates(params[name], update), slot
      if passed is not None:
        moved = trees.where(passed[name], moved, (params[name], slots[name]))
      params[name], slots[name] = moved
    net, touched = Net(params, half.net.stats | stats), half.touched
    if touched.params:  # a copy's other blocks are left out of their means
      moves = dict(touched.params)
      for name in grads:
        moves[name] |= True if passed is None else passed[name]
      writes = touched.stats | dict.fromkeys(stats, jnp.bool_(True))
      touched = Net(params=moves, stats=writes)
    return half._replace(net=net, slots=slots, touched=touched)


def clipped(
  grads: dict[str, Tree],
  limit: Array | float,
  passed: dict[str, Array] | None = None,
) -> dict[str, Tree]:
  """Scales gradients down to a joint norm of `limit` if theirs is larger.

  Blocks with a false entry in `passed` (block name -> [] bool) do not count.
  """
  counted = grads
  if passed is not None:
    counted = {
      name: trees.where(passed[name], grad, trees.zeros(grad))
      for name, grad in grads.items()
    }
  squares = [jnp.sum(x * x) for x in jax.tree.leaves(counted)]
  norm = jnp.sqrt(sum(squares, jnp.zeros(())))
  return trees.scale(limit / jnp.maximum(norm, limit), grads)
