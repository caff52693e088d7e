"""A user's own method, whose mistakes are errors of one line with their place.

The functions of a method run deep inside a traced round. Guarded, they say
themselves what went wrong in them: an exception, or another number of values
than the engine unpacks.
"""

import functools
from collections.abc import Callable
from typing import Any

from splitjax.files import calling, is_own
from splitjax.models.forms import kind
from splitjax.types import Logits, Method, Stage, State

TRY = "; try splitjax.check_method"
"""The remedy that lines end with where the check itself is not running."""

PAIR = "client, server, ledger"
STEP = "client, server, losses, ledger"
VALUES = {
  "begin": PAIR,
  "finish": PAIR,
  "step": STEP,
  "once": STEP,
  "alone": "client, losses, ledger",
}
"""Function of a Method or Stage -> the values that it returns, where several
are unpacked."""

RECORDS = {"init": State, "predict": Logits}
"""Function of a Method -> the record that it returns."""


def make(
  factory: Callable[..., Method],
  *arguments: Any,
  where: str = "",
  remedy: str = "",
  **options: Any,
) -> Method:
  """Calls the factory of a method and guards what it makes.

  Args:
    factory: as in METHODS; what splitjax's own raise passes as it is.
    *arguments: backbone and optimizer.
    where: what each line begins with, as in "methods.mine: ".
    remedy: what each line ends with.
    **options: of the factory.

  Raises:
    UserError: the factory raises, or makes no Method.
  """
  with calling(f"{where}its factory", factory, remedy):
    method = factory(*arguments, **options)
    stages = getattr(method, "stages", ())
    if not isinstance(method, Method):
      raise TypeError(f"makes {kind(method)}, no Method (see base.method)")
    if not (_plain(stages) and all(isinstance(s, Stage) for s in stages)):
      raise TypeError("stages must be a tuple of Stage, as in (Stage(step),)")

  def guarded(record: Any, name: str) -> Callable | None:
    function = getattr(record, name)
    if not callable(function) or name == "keep":
      return function
    return _guarded(function, name, factory, where, remedy)

  def each(record: Any) -> Any:
    return record._replace(**{f: guarded(record, f) for f in record._fields})

  return each(method)._replace(
    stages=tuple(map(each, stages)), aggregation=each(method.aggregation)
  )


def _guarded(
  function: Callable, name: str, factory: Callable, where: str, remedy: str
) -> Callable:
  """One function of a method; one of splitjax's is blamed on the factory."""
  place = function if is_own(function) else factory
  wanted, record = VALUES.get(name), RECORDS.get(name)

  @functools.wraps(function)
  def guarded(*arguments: Any, **options: Any) -> Any:
    with calling(f"{where}its {name}", place, remedy):
      out = function(*arguments, **options)
      found = f"{len(out)} values" if _plain(out) else kind(out)
      if wanted and found != f"{len(wanted.split(', '))} values":
        raise TypeError(f"returns {found}; it must return ({wanted})")
      if record and not isinstance(out, record):
        raise TypeError(f"returns {found}; it must return a {record.__name__}")
    return out

  return guarded


def _plain(values: Any) -> bool:
  """Whether it is a tuple that is no record, such as a Half."""
  return isinstance(values, tuple) and not hasattr(values, "_fields")
