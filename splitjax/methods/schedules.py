"""SCHEDULES: schedules of the learning rate (optax schedules), by name.

A schedule maps a time, counted in rounds, to a factor on the learning rate. The
factor is constant within a round, or follows every local step: after i of a
client's T steps the time is round + i / T. To write a schedule over steps as
one over rounds, count t steps as t / T rounds.

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

import jax
import jax.numpy as jnp
import optax

from splitjax.types import Array, UserError


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
  floor: float = 0.0
  offset: float = 1.0


def _exponential(s: Settings, staircase: bool = False) -> optax.Schedule:
  floor = s.floor if s.decay < 1 else None  # to optax a ceiling if decay >= 1
  return optax.exponential_decay(
    1.0, s.every, s.decay, staircase=staircase, end_value=floor
  )


SCHEDULES: dict[str, Callable[[Settings], optax.Schedule]] = {
  "constant": lambda s: lambda time: jnp.ones(jnp.shape(time)),
  "cosine": lambda s: optax.cosine_decay_schedule(1.0, s.length),
  "exponential": _exponential,
  "step": lambda s: _exponential(s, staircase=True),
  "inverse": lambda s: lambda time: s.offset / (s.offset + time),
}
"""Name -> (Settings -> schedule). A schedule maps a time to a factor."""

_OURS = dict(SCHEDULES)


def make(
  name: str, settings: Settings, rounds: int, warmup: float = 0.0
) -> Callable[[Array], Array]:
  """Makes the schedule of a run.

  Args:
    name: key of SCHEDULES.
    settings: the schedule's numbers; the run's length replaces `length`.
    rounds: R.
    warmup: rounds of a linear warm-up before the schedule: the factor at time
      t < w is (1 + t) / (1 + w).

  Returns:
    Time in rounds [] or [T], int or float -> factor of the same shape.

  Raises:
    UserError: an entry of SCHEDULES gives no factor.
  """
  entry = SCHEDULES[name]
  length = max(rounds - warmup if warmup else rounds, 1)
  settings = settings._replace(length=length)
  rule = entry(settings) if entry is _OURS.get(name) else _own(name, settings)
  if not warmup:
    return rule
  rise = optax.linear_schedule(1 / (1 + warmup), 1.0, warmup)
  return optax.join_schedules([rise, rule], [warmup])


def _own(name: str, settings: Settings) -> optax.Schedule:
  """Makes a user's schedule and tries it at the first round and the last."""
  remedy = (
    "it must map a schedules.Settings to a function of the time, as in `lambda"
    " s: optax.linear_schedule(1.0, 0.1, s.length)`"
  )
  try:
    rule = SCHEDULES[name](settings)
    with jax.ensure_compile_time_eval():
      for time in (0.0, float(settings.length)):
        factor = jnp.asarray(rule(jnp.asarray(time)))
        if factor.shape or not jnp.isfinite(factor) or factor < 0:
          said = (
            f"its factor at round {time:g} is {factor}, no number from 0 on"
          )
          raise ValueError(said)
  except Exception as error:  # whatever an entry raises
    said = " ".join(str(error).split())[:100]
    raise UserError(f"optimizer.schedule={name!r}: {said}; {remedy}") from error
  return rule
