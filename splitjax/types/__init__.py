"""The types that several packages share; every array field gives its shape.

Axis letters, where a docstring gives them no other meaning:

  N clients of a cohort (or of the fleet)   T local steps of a round
  B samples of a batch                      V batches of a step (1, HARMONY: 2)
  C classes                                 D features
  L blocks of a backbone                    K cut depth
  M test samples                            Z training samples
  S samples of the largest client           E entropy thresholds
  R out-of-distribution ratios
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from splitjax.types.arrays import (
  Batch,
  Exits,
  Logits,
  Net,
  Outputs,
  Shard,
  Tree,
)
from splitjax.types.records import (
  NO_BLOCKS,
  Client,
  Half,
  Metrics,
  Passes,
  Row,
  Server,
  Stage,
  State,
)

if TYPE_CHECKING:
  from jax import Array


def __getattr__(name: str) -> Any:
  """Imports jax only when `Array` is used, so that wrong flags fail sooner."""
  if name != "Array":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  from jax import Array

  globals()[name] = Array
  return Array


class UserError(ValueError):
  """An error that the user can fix; its text names field, value and remedy.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.rounds = 0
    >>> splitjax.Config.from_dict(c)
    Traceback (most recent call last):
    splitjax.types.UserError: rounds=0 must be at least 1
  """


@contextlib.contextmanager
def naming(place: str) -> Iterator[None]:
  """Puts `place` before the text of a UserError that is raised within.

  A text that already begins with `place` stays as it is.
  """
  try:
    yield
  except UserError as error:
    name = place and f"{place}: "
    raise UserError(f"{name}{str(error).removeprefix(name)}") from None
