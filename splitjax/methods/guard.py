"""Guards around a user's method: its mistakes become one line with their place.

The functions of a method run deep inside a traced round. A guarded function
reports what went wrong in it: an exception, another number of values than the
engine unpacks, or a half in another form than the next step or round takes.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from splitjax.files import calling, is_own
from splitjax.models.forms import kind
from splitjax.types import Half, Logits, Method, Stage, State, Tree

Form = tuple[Any, dict[str, str]]
"""The structure of a tree, and leaf path -> dtype and shape."""

TRY = "; try splitjax.check_method"
"""The remedy at the end of lines, except while the check itself runs."""

PAIR = "client, server, ledger"
STEP = "client, server, losses, ledger"
VALUES = {
  "begin": PAIR,
  "finish": PAIR,
  "step": STEP,
  "once": STEP,
  "alone": "client, losses, ledger",
}
"""Function of a Method or Stage that returns several values -> these values."""

RECORDS = {"init": State, "predict": Logits, "server": Half, "clients": Half}
"""Function of a Method or Aggregation -> the record that it returns."""

KEPT = {
  "step": ("client", "server"),
  "alone": ("client",),
  "finish": ("client",),
  "server": ("server",),
  "clients": ("client",),
}
"""Function -> the halves, in order, whose structure, shapes and dtypes it must
keep; `finish` must restore those before `begin`."""


def make(
  factory: Callable[..., Method],
  *arguments: Any,
  where: str = "",
  remedy: str = "",
  **options: Any,
) -> Method:
  """Calls the factory of a method and guards what it makes.

  Args:
    factory: as in METHODS; errors of splitjax's own pass unchanged.
    *arguments: backbone and optimizer.
    where: beginning of each line, as in "methods.mine: ".
    remedy: end of each line.
    **options: options of the factory.

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

  began: list[Form] = []

  def guarded(record: Any, name: str) -> Callable | None:
    function = getattr(record, name)
    if not callable(function) or name == "keep":
      return function
    return _guarded(function, name, factory, where, remedy, began)

  def each(record: Any) -> Any:
    return record._replace(**{f: guarded(record, f) for f in record._fields})

  return each(method)._replace(
    stages=tuple(map(each, stages)), aggregation=each(method.aggregation)
  )


def _guarded(
  function: Callable,
  name: str,
  factory: Callable,
  where: str,
  remedy: str,
  began: list[Form],
) -> Callable:
  """Guards one function of a method; blames splitjax's own on the factory.

  `began` holds the form of the client before the last `begin`, which is traced
  before the `finish` of the same client.
  """
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
      if name == "begin":
        began[:] = [_form(arguments[0])]
      if name in KEPT:
        before = began if name == "finish" else map(_form, arguments)
        after = map(_form, (out,) if record else out)
        for each in zip(KEPT[name], before, after, strict=False):
          if change := _change(*each):
            raise TypeError(change)
    return out

  return guarded


def _form(tree: Tree) -> Form:
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  avals = {jax.tree_util.keystr(path): jax.typeof(x) for path, x in leaves}
  texts = {path: f"{x.dtype}{list(x.shape)}" for path, x in avals.items()}
  return jax.tree.structure(tree), texts


def _change(side: str, before: Form, after: Form) -> str:
  """Describes the first difference of two forms of a half; "" if none.

  `side` is "client" or "server". The sentence includes the remedy.
  """
  if before == after:
    return ""
  old, new = before[1], after[1]
  differ = [path for path in {**old, **new} if old.get(path) != new.get(path)]
  path = next(iter(differ), "")
  was, now = (of.get(path, "not there") for of in (old, new))
  if not differ:
    was, now = "of one structure", "of another, as {} is instead of (),"
  remedy = "hand it on in the form in which it came"
  if path.startswith(".memory"):
    remedy = (
      f"begin with that form, base.method(..., {side}_memory=lambda full,"
      " fleet: ...)"
    )
  return f"{side}{path} is {was} before and {now} after it: {remedy}"


def _plain(values: Any) -> bool:
  """Tells whether values are a plain tuple, not a record such as a Half."""
  return isinstance(values, tuple) and not hasattr(values, "_fields")
