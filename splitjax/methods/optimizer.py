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
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Bounds
from splitjax.methods import schedules
from splitjax.parameters import STATIC, pytree
from splitjax.registry import unknown
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
    schedule: key of SCHEDULES: "constant"; "cosine", from lr to 0 over `rounds`
      R; "exponential", max(lr decay^(round / every), floor) (Hydra, MergeSFL);
      "step", the same with round / every rounded down; "inverse", eta_0 / (a +
      round) with the `offset` a and eta_0 = a lr (SplitGP, Theorem 1).
    warmup: rounds w of a warm-up before the schedule, by (1 + t) / (1 + w).
    floor: the smallest learning rate, at most lr; for the server's side it is
      multiplied by server_lr / lr.
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

  def __post_init__(self) -> None:
    for field, registry in (
      ("name", OPTIMIZERS),
      ("schedule", schedules.SCHEDULES),
    ):
      value = getattr(self, field)
      if value not in registry:
        raise UserError(unknown(field, value, registry, "name"))

  def at(self, round: Array) -> "Optimizer":
    """Returns the optimiser with the learning rates of a round."""
    warmup = self.warmup
    settings = schedules.Settings(
      length=max(self.rounds - warmup if warmup else self.rounds, 1),
      decay=self.decay,
      every=self.every,
      floor=jnp.minimum(self.floor / self.lr, 1.0),
      offset=self.offset,
    )
    rule = schedules.SCHEDULES[self.schedule](settings)
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
