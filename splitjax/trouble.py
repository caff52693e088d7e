"""Updates that are not finite: what the user is told of them."""

from collections.abc import Sequence

from splitjax.types import UserError


def stopped(label: str, number: int, who: Sequence[int]) -> UserError:
  """The error that ends a run with on_nan=stop.

  Args:
    label: of the method.
    number: of the round.
    who: the clients' numbers.
  """
  return UserError(
    f"{label}: in round {number} the updates of {_numbers(who)} were not finite"
    " (on_nan=stop): choose a smaller optimizer.lr or inner_lr, set"
    " optimizer.clip, or leave such updates out with on_nan=mask"
  )


def first(label: str, number: int, who: Sequence[int]) -> str:
  """The note of the first such round; arguments as of `stopped`."""
  return (
    f"{label}: in round {number} the updates of {_numbers(who)} were not finite"
    " and left out, as later ones are; a smaller optimizer.lr or inner_lr, or"
    " optimizer.clip, may help."
  )


def summary(label: str, rounds: Sequence[tuple[int, Sequence[int]]]) -> str:
  """The note that sums up a run.

  Args:
    label: of the method.
    rounds: number and client numbers of the rounds that left updates out.
  """
  who = sorted({client for _, masked in rounds for client in masked})
  count = len(rounds)
  return (
    f"{label}: updates of {_numbers(who)} were not finite and left out in"
    f" {count} round{'s' * (count > 1)}, first in round {rounds[0][0]}."
  )


def _numbers(who: Sequence[int]) -> str:
  """Client numbers in words."""
  return f"client{'s' * (len(who) > 1)} {', '.join(map(str, who))}"
