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
  """The numbers that a schedule is made of, as in `Optimizer`."""

  length: float = 1  # rounds from the end of warm-up to that of the run
  decay: float = 0.993
  every: int = 1
  floor: float | Array = 0.0  # the smallest factor, at most 1
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
