"""Hyper-parameters as data: one compiled program for many settings.

A method's factory computes with its options as with numbers. While a program is
traced, each option is a `Number`: arithmetic gives arrays computed from the
program's arguments, so that a value can change without a new program. A
comparison gives True or False, as branches of the factory need, and is
recorded: the program is right for all values with the same outcomes. Code that
needs the value itself, such as `float(lr)` or a key of a dict, is recorded as a
comparison for equality.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax

Values = Mapping[str, float]
"""Name -> value of a hyper-parameter."""


class Expression(NamedTuple):
  """A formula in the hyper-parameters, as data that can be stored.

  Attributes:
    sign: a key of OPERATORS; "" for a name or a constant.
    parts: two expressions; a name alone; or a constant alone.
  """

  sign: str
  parts: tuple[Any, ...]

  def of(self, values: Values) -> Any:
    """Evaluates the formula at values of the hyper-parameters."""
    if self.sign:
      return OPERATORS[self.sign](*(part.of(values) for part in self.parts))
    (part,) = self.parts
    return values[part] if isinstance(part, str) else part

  @property
  def text(self) -> str:
    """Formats it for people, such as "(1 - options.lam)"."""
    if self.sign:
      left, right = (part.text for part in self.parts)
      return f"({left} {self.sign} {right})"
    (part,) = self.parts
    return part if isinstance(part, str) else repr(part)


class Condition(NamedTuple):
  """A comparison that a program depends on.

  Attributes:
    of: the comparison.
    outcome: its result while the program was traced.
  """

  of: Expression
  outcome: bool


class Trace:
  """The hyper-parameters of a program being traced, and its conditions.

  Attributes:
    values: value of each hyper-parameter.
    conditions: recorded so far, by their text.
  """

  def __init__(self, values: Values):
    self.values, self.conditions = values, dict[str, Condition]()

  def note(self, expression: Expression) -> bool:
    """Evaluates a comparison and records its outcome."""
    outcome = bool(expression.of(self.values))
    self.conditions[expression.text] = Condition(expression, outcome)
    return outcome


class Number:
  """A hyper-parameter, or a result of arithmetic on some, while tracing.

  Functions of jax use the array that it holds.

  Attributes:
    array: [] float, traced.
    expression: its formula in the hyper-parameters.
    trace: the Trace that records its comparisons.
  """

  __slots__ = ("array", "expression", "trace")
  __array_ufunc__ = None  # numpy leaves the arithmetic to this class

  def __init__(self, array: Any, expression: Expression, trace: Trace):
    self.array, self.expression, self.trace = array, expression, trace

  def __jax_array__(self) -> Any:
    return self.array

  def __getattr__(self, name: str) -> Any:
    return getattr(self.array, name)

  def _pinned(self) -> float:
    """Returns the value itself; the program then holds for it alone."""
    own = value(self)
    self.trace.note(_joined("==", self.expression, _expressed(own)))
    return own

  def _compared(self, sign: str, other: Any) -> Any:
    if isinstance(other, (Number, int, float)):
      return self.trace.note(_joined(sign, self.expression, _expressed(other)))
    if other is None or isinstance(other, str):
      return NotImplemented
    return OPERATORS[sign](self.array, other)

  def _computed(self, sign: str, other: Any, swap: bool) -> Any:
    sides = [self, other][:: -1 if swap else 1]
    array = OPERATORS[sign](*map(_array, sides))
    if not isinstance(other, (Number, int, float)):
      return array
    expression = _joined(sign, *map(_expressed, sides))
    return Number(array, expression, self.trace)

  def __neg__(self) -> Any:
    return self._computed("-", 0, swap=True)

  def __pos__(self) -> "Number":
    return self

  def __abs__(self) -> Any:
    return -self if self._compared("<", 0) else self

  def __bool__(self) -> bool:
    return self._compared("!=", 0)

  def __float__(self) -> float:
    return self._pinned()

  def __int__(self) -> int:
    return int(self._pinned())

  def __round__(self, digits: int | None = None) -> Any:
    return round(self._pinned(), digits)

  def __hash__(self) -> int:
    return hash(self._pinned())

  def __repr__(self) -> str:
    return repr(value(self))

  def __format__(self, form: str) -> str:
    return format(value(self), form)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
  "+": operator.add,
  "-": operator.sub,
  "*": operator.mul,
  "/": operator.truediv,
  "**": operator.pow,
  "<": operator.lt,
  "<=": operator.le,
  ">": operator.gt,
  ">=": operator.ge,
  "==": operator.eq,
  "!=": operator.ne,
}


def _joined(sign: str, left: Expression, right: Expression) -> Expression:
  return Expression(sign, (left, right))


def _expressed(x: Any) -> Expression:
  return x.expression if isinstance(x, Number) else Expression("", (x,))


def _array(x: Any) -> Any:
  return x.array if isinstance(x, Number) else x


def _add_operators() -> None:
  """Gives Number Python's arithmetic and comparisons."""
  for sign, function in OPERATORS.items():
    name = function.__name__

    def compared(self, other, sign=sign):
      return self._compared(sign, other)

    def left(self, other, sign=sign):
      return self._computed(sign, other, swap=False)

    def right(self, other, sign=sign):
      return self._computed(sign, other, swap=True)

    if sign in "+-**/":
      setattr(Number, f"__{name}__", left)
      setattr(Number, f"__r{name}__", right)
    else:
      setattr(Number, f"__{name}__", compared)


_add_operators()
jax.tree_util.register_pytree_node(
  Number,
  lambda number: ((number.array,), (number.expression, number.trace)),
  lambda facts, arrays: Number(*arrays, *facts),
)


def numbers(trace: Trace, arrays: Mapping[str, Any]) -> dict[str, Number]:
  """Makes the Numbers of a trace; `arrays`: name -> [] float, traced."""

  def number(name: str) -> Number:
    return Number(arrays[name], Expression("", (name,)), trace)

  return {name: number(name) for name in arrays}


def constants(trace: Trace, arrays: Mapping[str, Any]) -> dict[str, float]:
  """Returns the values themselves; the program then holds for them alone."""
  return {name: float(x) for name, x in numbers(trace, arrays).items()}


def value(x: Any) -> Any:
  """Returns the value of a hyper-parameter without recording a condition.

  For facts of a method that enter no program. Plain numbers are returned as
  they are.
  """
  return x.expression.of(x.trace.values) if isinstance(x, Number) else x


def fits(conditions: Iterable[Condition], values: Values) -> bool:
  """Tells whether a program with these conditions is right for other values."""
  try:
    return all(bool(c.of.of(values)) == c.outcome for c in conditions)
  except ArithmeticError:  # such as a division by a value that is now 0
    return False
