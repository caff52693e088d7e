"""Hyper-parameters as arguments, so that one program serves many settings.

Compiled programs are cached by their lowered text. Settings that differ only in
numbers have the same text if the numbers are arguments and not constants. So
each option is a `Number` while a program is traced, and a method's factory
computes with it as with a Python number. Arithmetic on a Number is traced. A
comparison uses the value in the setting that is traced, and gives Python's True
or False. So a factory can branch on a comparison; each branch has a text of its
own. Code such as `float(lr)`, or a dict with the option as a key, takes the
value itself; the value is then a constant in the text.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax

Values = Mapping[str, float]
"""Name of a hyper-parameter -> its value."""


class Number:
  """A hyper-parameter while tracing, or the result of arithmetic on Numbers.

  Functions of jax accept a Number and use the array in it.

  Attributes:
    array: [] float, traced.
    value: the number itself, of the method for which the program is traced.
  """

  __slots__ = ("array", "value")
  __array_ufunc__ = None  # numpy leaves the arithmetic to this class

  def __init__(self, array: Any, value: float):
    self.array, self.value = array, value

  def __jax_array__(self) -> Any:
    return self.array

  def __getattr__(self, name: str) -> Any:
    return getattr(self.array, name)

  def _compared(self, sign: str, other: Any) -> Any:
    if isinstance(other, (Number, int, float)):
      return bool(OPERATORS[sign](self.value, value(other)))
    if other is None or isinstance(other, str):
      return NotImplemented
    return OPERATORS[sign](self.array, other)

  def _computed(self, sign: str, other: Any, swap: bool) -> Any:
    sides = [self, other][:: -1 if swap else 1]
    array = OPERATORS[sign](*map(_array, sides))
    if not isinstance(other, (Number, int, float)):
      return array
    return Number(array, OPERATORS[sign](*map(value, sides)))

  def __neg__(self) -> Any:
    return self._computed("-", 0, swap=True)

  def __pos__(self) -> "Number":
    return self

  def __abs__(self) -> Any:
    return -self if self.value < 0 else self

  def __bool__(self) -> bool:
    return self.value != 0

  def __float__(self) -> float:
    return float(self.value)

  def __int__(self) -> int:
    return int(self.value)

  def __round__(self, digits: int | None = None) -> Any:
    return round(self.value, digits)

  def __hash__(self) -> int:
    return hash(self.value)

  def __repr__(self) -> str:
    return repr(self.value)

  def __format__(self, form: str) -> str:
    return format(self.value, form)


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


def _array(x: Any) -> Any:
  return x.array if isinstance(x, Number) else x


def value(x: Any) -> Any:
  """Returns the value of a Number; other numbers are returned unchanged."""
  return x.value if isinstance(x, Number) else x


def _add_operators() -> None:
  """Gives Number the operators of Python's arithmetic and comparisons."""
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
  lambda number: ((number.array,), number.value),
  lambda own, arrays: Number(*arrays, own),
)


def numbers(values: Values, arrays: Mapping[str, Any]) -> dict[str, Number]:
  """Makes a Number of each value and the traced array [] of the same name."""
  return {name: Number(arrays[name], values[name]) for name in values}
