"""The outer optimiser, applied block by block: bypassed blocks do not move."""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from splitjax import trees
from splitjax.methods import schedules, update_rules
from splitjax.methods.update_rules import OPTIMIZERS as OPTIMIZERS
from splitjax.types import (
  Array,
  Half,
  Opt,
  Segment,
  ServerOpt,
  Tree,
)


class Optimizer(NamedTuple):
  """The outer optimiser of both halves.

  Attributes:
    tx: optax transformation, applied block by block.
    schedule: name -> (time in rounds [] or [T] -> factor on a learning rate).
    rate: the schedule of the client's half.
    server_rate: the schedule of the server's half.
    with_lr: learning rate -> `tx` with this rate; the slots keep their form.
    keep: whether slots (momentum, moments) are kept between rounds.
    clip: the largest norm of a half's gradient; None for no limit.
    server_tx: optax transformation of the server's blocks; None: `tx`.
    by_step: whether the rate changes with every local step, not once a round.
  """

  tx: optax.GradientTransformation
  schedule: Callable[[str], optax.Schedule]
  rate: optax.Schedule
  server_rate: optax.Schedule
  with_lr: Callable[[float], optax.GradientTransformation]
  keep: bool = False
  clip: float | None = None
  server_tx: optax.GradientTransformation | None = None
  by_step: bool = False

  def rates(self, time: Array) -> tuple[Array, Array]:
    """Computes the rate factors of client and server half at `time`."""
    return self.rate(time), self.server_rate(time)

  def rule(self, server: bool) -> optax.GradientTransformation:
    """Returns the transformation for blocks of the server, or of a client."""
    return self.server_tx if server and self.server_tx else self.tx


def make(
  name: str,
  lr: float,
  momentum: float = 0.9,
  weight_decay: float = 0.0,
  *,
  server_name: str | None = None,
  server_lr: float | None = None,
  schedule: str = "constant",
  server_schedule: str | None = None,
  schedule_per: Literal["round", "step"] = "round",
  rounds: int = 1,
  warmup: float = 0.0,
  decay: float = 0.993,
  every: int = 1,
  floor: float = 0.0,
  offset: float = 1.0,
  decay_biases: bool = True,
  keep_state: bool = False,
  clip: float | None = None,
) -> Optimizer:
  """Makes an optimiser with weight decay and a schedule for each half.

  Args:
    name: key of OPTIMIZERS.
    lr: beta, the learning rate that the schedule multiplies.
    momentum: decay of the momentum buffer; beta_1 of Adam's relatives.
    weight_decay: factor of the decay. weight_decay * parameter is added to the
      gradient. For DECOUPLED optimisers it is added to the step instead, times
      the learning rate.
    server_name: key of OPTIMIZERS for the server's half; None: name. The mean
      of a round has an optimiser of its own, see `mean_optimizer`.
    server_lr: learning rate of the server's half; None: lr.
    schedule: key of SCHEDULES (`schedules`). "constant"; "cosine": from lr to 0
      over the rounds; "exponential": max(lr decay^(round / every), floor)
      (Hydra, MergeSFL); "step": the same with round / every rounded down;
      "inverse": eta_0 / (a + round) with eta_0 = a lr (SplitGP, Theorem 1).
    server_schedule: the same for the server's half; None: schedule.
    schedule_per: "round": the rate changes only between rounds; "step": it
      changes with every local step, see `schedules`.
    rounds: R, length of the schedule.
    warmup: rounds of a linear warm-up before the schedule.
    decay: factor by which "exponential" and "step" decay in `every` rounds.
    every: number of rounds for one such decay.
    floor: the smallest learning rate of "exponential" and "step", at most lr.
      For the server's half it is multiplied by server_lr / lr.
    offset: a of the "inverse" schedule.
    decay_biases: whether weight decay also applies to biases and to all other
      parameters of less than two dimensions, such as those of normalisation.
    keep_state: whether slots are kept between rounds. Each client then keeps
      its own slots, and the server keeps the mean of its copies' slots. False:
      slots are zero at a round's start.
    clip: the largest norm of a half's gradient. A larger gradient is scaled
      down to this norm, before weight decay is added. None for no limit.

  Raises:
    UserError: an entry of OPTIMIZERS makes no transformation.
  """

  def rule(name: str, lr: float) -> optax.GradientTransformation:
    tx = update_rules.find(name, momentum)
    if weight_decay:
      mask = None if decay_biases else update_rules.weights
      parts = [optax.add_decayed_weights(weight_decay, mask), tx]
      decoupled = name in update_rules.DECOUPLED
      tx = optax.chain(*(parts[::-1] if decoupled else parts))
    return update_rules.with_float_counts(optax.chain(tx, optax.scale(-lr)))

  at_server = server_name or name, lr if server_lr is None else server_lr
  own = server_name is not None or server_lr is not None
  numbers = schedules.Settings(1, decay, every, min(floor / lr, 1.0), offset)

  @functools.cache  # a user's schedule is tried once
  def of_name(name: str) -> optax.Schedule:
    return schedules.make(name, numbers, rounds, warmup)

  return Optimizer(
    rule(name, lr),
    of_name,
    of_name(schedule),
    of_name(server_schedule or schedule),
    functools.partial(rule, name),
    keep_state,
    clip,
    rule(*at_server) if own else None,
    schedule_per == "step",
  )


sgd = functools.partial(make, "sgd")
"""SGD with momentum and coupled L2 weight decay."""


def slots(
  tx: optax.GradientTransformation, segment: Segment
) -> dict[str, Tree]:
  """Makes fresh optimiser slots, block name -> optax state."""
  return {name: tx.init(params) for name, params in segment.params.items()}


def begin_round(
  half: Half, optimizer: Optimizer, round: Array, *, server: bool = False
) -> Half:
  """Gives a half its optimiser state at the start of a round.

  The state has the slots of the last round, or fresh ones, and marks no block
  as touched. `server` tells that the half is the server's, so that `descend`
  takes the server's rule.
  """
  fresh = slots(optimizer.rule(server), half.segment)
  kept = half.opt if optimizer.keep else fresh
  untouched = {name: jnp.bool_(False) for name in half.segment.params}
  kind = ServerOpt if server else Opt
  time = jnp.asarray(round, float) if optimizer.by_step else round
  rate = optimizer.rates(time)[server]
  opt = kind(rate, kept, untouched, untouched)
  return half._replace(opt=opt)


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
    optimizer: takes the step, by the server's rule if the half is the server's,
      else by the clients' rule. Its `clip` limits the joint norm of the
      gradients of all blocks that features passed.
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
