"""Types and bounds of fields and options, read by one checker.

The type is the annotation; `Annotated` adds bounds:

  rounds: Annotated[int, Bounds(at_least=1)] = 120

Nothing here imports numpy, so that a mistake on the command line is answered at
once.
"""

import ast
import dataclasses
import difflib
import math
import os
import types
import typing
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Bounds:
  """The interval of a number, or of each number of a tuple.

  A bound that is None sets no limit. `count` is the maximum length of a tuple.
  """

  at_least: float | None = None
  above: float | None = None
  at_most: float | None = None
  below: float | None = None
  count: int = 10_000

  def __str__(self) -> str:
    limits = list(dataclasses.asdict(self).items())[:-1]
    words = [f"{k.replace('_', ' ')} {v:g}" for k, v in limits if v is not None]
    return " and ".join(words)

  def __contains__(self, number: float) -> bool:
    low, high = self.at_least, self.at_most
    return (
      (low is None or number >= low)
      and (high is None or number <= high)
      and (self.above is None or number > self.above)
      and (self.below is None or number < self.below)
    )


COUNT = Bounds(at_least=1)
POSITIVE = Bounds(above=0)
NOT_NEGATIVE = Bounds(at_least=0)
SHARE = Bounds(at_least=0, below=1)
PROBABILITY = Bounds(at_least=0, at_most=1)

RESOURCE = Bounds(at_least=1e-6, at_most=1e9)
LATENCY = Bounds(at_least=0, at_most=1e9)
"""Of a device. They keep the squares of costs far inside float32's range."""

LARGEST = 3.4028234663852886e38, 2**31 - 1
"""Largest float and largest integer: devices compute in float32 and int32."""

_FORBIDDEN = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that no text field may hold: terminal control characters,
unpaired surrogates (which cannot be written to a file) and line separators."""


def alternatives(hint: Any) -> tuple:
  """Lists the types that a hint allows: one, or the members of a union.

  Bounds and other metadata are dropped.
  """
  if get_origin(hint) is Annotated:
    hint = get_args(hint)[0]
  union = get_origin(hint) in (types.UnionType, typing.Union)
  return get_args(hint) if union else (hint,)


_WORDS = {
  int: "a whole number",
  float: "a number",
  str: "a text",
  bool: "True or False",
  type(None): "None",
}


def readable(hint: Any) -> bool:
  """Checks if `check_value` can read values of this annotation."""
  for kind in alternatives(hint):
    if get_origin(kind) is tuple:
      each, *rest = get_args(kind)
      known = rest == [...] and readable(each)
    else:
      known = get_origin(kind) is Literal or kind in list(_WORDS)
    if not known:
      return False
  return True


def native(value: Any) -> Any:
  """Converts a config, or a part of one, to built-in Python values.

  NumPy's and jax's numbers and arrays become numbers and tuples of numbers (a
  float32 0.1 becomes 0.1). Paths become texts, ranges become tuples. Other
  values stay.
  """
  if isinstance(value, type):
    return value
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if isinstance(value, range):
    return tuple(value)
  if hasattr(value, "tolist"):
    import numpy as np

    if value.dtype in (np.float16, np.float32):
      value = np.asarray(value).astype(str).astype(float)
    value = value.tolist()
    value = tuple(value) if isinstance(value, list) else value
  if isinstance(value, Mapping):
    return {key: native(each) for key, each in value.items()}
  if type(value) in (list, tuple):
    return type(value)(map(native, value))
  return value


def literal(text: str) -> Any:
  """Reads a Python literal; returns any other text unchanged."""
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return text


_SWITCH = {"true": True, "t": True, "false": False, "f": False}


def read(text: str, hint: Any) -> Any:
  """Reads a value of the command line by its field's annotation.

  A single number becomes a tuple of one if the field takes a tuple. A value
  that cannot be read stays text, which `check_value` refuses.
  """
  kinds = alternatives(hint)
  if text == "None" and type(None) in kinds:
    return None
  texts = [t for k in kinds if get_origin(k) is Literal for t in get_args(k)]
  if text in texts or str in kinds:
    return text
  if bool in kinds and text.lower() in _SWITCH:
    return _SWITCH[text.lower()]
  value = literal(text)
  several = any(get_origin(kind) is tuple for kind in kinds)
  return (value,) if several and type(value) in (int, float) else value


def check_value(value: Any, hint: Any, where: str) -> Any:
  """Converts a value to the type of its field: 1 to 1.0, a list to a tuple.

  A text of words separated by commas becomes a tuple of texts.

  Args:
    value: the value in a config.
    hint: the annotation, with `Bounds` if it has any.
    where: dotted path of the field.

  Raises:
    UserError: the type is wrong, a number is out of bounds, or a text has
      characters that no field may hold.
  """
  value = _typed(value, hint, where)
  marks = getattr(hint, "__metadata__", ())
  for bounds in (mark for mark in marks if isinstance(mark, Bounds)):
    several = isinstance(value, tuple)
    each = value if several else [value]
    numbers = [v for v in each if type(v) in (int, float)]
    if several and not numbers:
      raise UserError(f"{where}=() must have one number at least")
    if several and len(value) > bounds.count:
      raise UserError(
        f"{where} has {len(value)} numbers: give at most {bounds.count}"
      )
    if any(number not in bounds for number in numbers):
      more = ", each" if several else ""
      raise UserError(f"{where}={written(value)} must be {bounds}{more}")
  return value


def _typed(value: Any, hint: Any, where: str) -> Any:
  """Converts a value as `check_value` does, but ignores declared bounds."""
  finite = not isinstance(value, float) or math.isfinite(value)
  if finite:
    _check_representable(value, hint, where)
  for kind in alternatives(hint) if finite else ():
    if type(value) is kind:
      return value
    if isinstance(value, str) and value in get_args(kind):
      return value
    if kind is float and type(value) is int:
      return float(value)
    if get_origin(kind) is tuple and isinstance(value, str):
      if get_args(kind)[0] is str:
        value = [word.strip() for word in value.split(",") if word.strip()]
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
      return tuple(_typed(v, get_args(kind)[0], where) for v in value)
  raise UserError(f"{where}={written(value)} must be {_describe(hint)}")


def _check_representable(value: Any, hint: Any, where: str) -> None:
  """Raises UserError for a number or a text that no field can hold."""
  if isinstance(value, (int, float)):
    whole = isinstance(value, int) and float not in alternatives(hint)
    most = LARGEST[whole]
    if abs(value) > most:
      raise UserError(f"{where}={written(value)} must be at most {most:.10g}")
  if isinstance(value, str):
    odd = [c for c in value if unicodedata.category(c) in _FORBIDDEN]
    if odd:
      raise UserError(
        f"{where}={written(value)} must be one line of text, without {odd[0]!r}"
      )


def written(value: Any) -> str:
  """Formats a value for a message: its repr in one line, cut to 200 letters."""
  try:
    text = " ".join(repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits
    text = "(thousands of digits)"
  return text if len(text) <= 200 else f"{text[:197]}..."


def _describe(hint) -> str:
  words = []
  for kind in alternatives(hint):
    if get_origin(kind) is Literal:
      words += [repr(v) for v in get_args(kind)]
    elif get_origin(kind) is tuple:
      words.append(f"a tuple, each {_describe(get_args(kind)[0])}")
    else:
      words.append(_WORDS[kind])
  return " or ".join(words)


MOST = 10
"""Above this number of names, an error shows only the nearest three."""


def nearest(text: str, names: Iterable[str]) -> list[str]:
  """Returns the three names most similar to a text."""
  return difflib.get_close_matches(text, list(names), 3, cutoff=0.0)


def unknown(
  path: str, name: Any, names: Iterable[str], kind: str = "name"
) -> str:
  """Writes the error for an unknown name, with the choices.

  If there are more than MOST choices, it has only the nearest three.
  """
  names = [str(name) for name in names]
  text = written(name).strip("'")
  similar = difflib.get_close_matches(text, names, 1)
  hint = f"; did you mean {similar[0]!r}?" if similar else ""
  choices = f"choices: {', '.join(names)}" if names else "there are none"
  if len(names) > MOST:
    closest = ", ".join(nearest(text, names))
    choices = f"the nearest of {len(names)}: {closest}"
  return f"{path}: unknown {kind} {written(name)}{hint} ({choices})"
