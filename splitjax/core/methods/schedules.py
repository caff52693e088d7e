"""SCHEDULES: schedules of the learning rate (optax schedules), by name.

A schedule maps a round to a factor on the learning rate, which is constant
within the round.

>>> import optax, splitjax
>>> splitjax.SCHEDULES["linear"] = lambda s: optax.linear_schedule(
...   1.0, 0.1, s.length
... )
>>> c = splitjax.default()
>>> c.optimizer.schedule = "linear"
>>> splitjax.Config.from_dict(c).optimizer.schedule
'linear'
>>> del splitjax.SCHEDULES["linear"]
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import optax

from splitjax.types import Array


class Settings(NamedTuple):
  """The numbers that a schedule is made of.

  Attributes:
    length: rounds from the end of warm-up to the end of the run, at least 1.
    decay: factor by which "exponential" and "step" decay in `every` rounds.
    every: number of rounds for one such decay.
    floor: smallest factor of "exponential" and "step", at most 1.
    offset: a of the "inverse" schedule, in rounds.
  """

  length: float = 1
  decay: float = 0.993
  every: int = 1
  floor: float | Array = 0.0
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
"""Name -> (Settings -> schedule). A schedule maps a round to a factor."""


def factor(
  name: str, settings: Settings, rounds: int, warmup: float, round: Array
) -> Array:
  """Computes the factor on the learning rate in a round.

  Args:
    name: key of SCHEDULES.
    settings: the schedule's numbers; the run's length replaces `length`.
    rounds: R.
    warmup: rounds of a linear warm-up before the schedule: the factor in round
      t < w is (1 + t) / (1 + w).
    round: [] or [R].
  """
  length = max(rounds - warmup if warmup else rounds, 1)
  rule = SCHEDULES[name](settings._replace(length=length))
  if not warmup:
    return rule(round)
  rise = optax.linear_schedule(1 / (1 + warmup), 1.0, warmup)
  return optax.join_schedules([rise, rule], [warmup])(round)
