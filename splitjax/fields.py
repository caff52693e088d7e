"""Types and bounds of fields and options, read by one converter.

The annotation says what a field takes: int, float, str, bool, Literal[...],
tuple[T, ...], or a union of these; `Annotated` adds bounds:

  rounds: Annotated[int, Bounds(at_least=1)] = 120

Nothing here imports numpy, so that a mistake on the command line is answered at
once.
"""

import ast
import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
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
    return (
      (self.at_least is None or number >= self.at_least)
      and (self.above is None or number > self.above)
      and (self.at_most is None or number <= self.at_most)
      and (self.below is None or number < self.below)
    )


COUNT = Bounds(at_least=1)
POSITIVE = Bounds(above=0)
NOT_NEGATIVE = Bounds(at_least=0)
SHARE = Bounds(at_least=0, below=1)
PROBABILITY = Bounds(at_least=0, at_most=1)
# Of a device. They keep the squares of costs far inside float32's range.
RESOURCE = Bounds(at_least=1e-6, at_most=1e9)
LATENCY = Bounds(at_least=0, at_most=1e9)

Count = Annotated[int, COUNT]
Natural = Annotated[int, NOT_NEGATIVE]
Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, NOT_NEGATIVE]
Share = Annotated[float, SHARE]
Probability = Annotated[float, PROBABILITY]
Fraction = Annotated[float, Bounds(above=0, at_most=1)]

LARGEST: dict[type, float] = {float: 3.4028234663852886e38, int: 2**31 - 1}
"""Largest number of a type: devices compute in float32 and int32."""

WORDS = {
  int: "a whole number",
  float: "a number",
  str: "a text",
  bool: "True or False",
  type(None): "None",
}
"""Type -> its name in an error."""


class Text(str):
  """A value as it was typed, still to be read by its field's annotation."""


def kinds(
  hint: Any, bounds: Bounds | None = None
) -> Iterator[tuple[Any, Bounds | None]]:
  """Yields each type that an annotation allows, with its bounds."""
  if get_origin(hint) is Annotated:
    inner, *marks = get_args(hint)
    for mark in marks:
      bounds = mark if isinstance(mark, Bounds) else bounds
    yield from kinds(inner, bounds)
  elif get_origin(hint) in (types.UnionType, typing.Union):
    for member in get_args(hint):
      yield from kinds(member, bounds)
  else:
    yield hint, bounds


def alternatives(hint: Any) -> tuple:
  """Lists the types that an annotation allows."""
  return tuple(kind for kind, _ in kinds(hint))


def readable(hint: Any) -> bool:
  """Checks if `convert` can read values of this annotation."""
  for kind in alternatives(hint):
    if get_origin(kind) is tuple:
      item, *length = get_args(kind)
      supported = length == [...] and readable(item)
    else:
      supported = get_origin(kind) is Literal or kind in list(WORDS)
    if not supported:
      return False
  return True


def convert(value: Any, hint: Any, path: str) -> Any:
  """Converts a value to the type of its field: 1 to 1.0, a list to a tuple.

  A number stands for a tuple of one, and words separated by commas for a tuple
  of texts. A `Text` is read first; numbers and arrays may be NumPy's.

  Args:
    value: the value.
    hint: the annotation, with `Bounds` if it has any.
    path: dotted path of the field.

  Raises:
    UserError: the type is wrong, a number is out of bounds, or a text has
      characters that no field may hold.
  """
  value = read(value, hint) if isinstance(value, Text) else native(value)
  for kind, bounds in kinds(hint):
    if get_origin(kind) is tuple:
      item_hint: Any = get_args(kind)[0]
      if isinstance(value, str) and item_hint is str:
        value = [word.strip() for word in value.split(",") if word.strip()]
      if type(value) in (int, float):
        value = (value,)
      if isinstance(value, list | tuple):
        if bounds and not 0 < len(value) <= bounds.count:
          text = f"has {len(value)} numbers: give 1 to {bounds.count}"
          raise UserError(f"{path} {text}")
        bounded: Any = Annotated[item_hint, bounds]
        return tuple(convert(item, bounded, path) for item in value)
    elif get_origin(kind) is Literal:
      if isinstance(value, str) and value in get_args(kind):
        return value
    elif type(value) is kind or kind is float and type(value) is int:
      _check(value, kind, bounds, path)
      return float(value) if kind is float else value
  raise UserError(f"{path}={written(value)} must be {_describe(hint)}")


def _check(value: Any, kind: type, bounds: Bounds | None, path: str) -> None:
  """Raises UserError unless a device holds the number, a file the text."""
  if kind in LARGEST and not abs(value) <= LARGEST[kind]:  # also NaN
    text = f"must be {WORDS[kind]}, at most {LARGEST[kind]:.10g}"
    raise UserError(f"{path}={written(value)} {text}")
  if bounds is not None and kind in LARGEST and value not in bounds:
    raise UserError(f"{path}={written(value)} must be {bounds}")
  if kind is str and not value.isprintable():
    text = "must be one line of text, without control characters"
    raise UserError(f"{path}={written(value)} {text}")


def native(value: Any) -> Any:
  """Converts a value to built-in Python values.

  NumPy's and jax's numbers and arrays become numbers and tuples of numbers (a
  float32 0.1 becomes 0.1). Paths become texts, ranges become tuples. Other
  values stay.
  """
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if isinstance(value, range):
    return tuple(value)
  if hasattr(value, "tolist") and not isinstance(value, type):
    import numpy as np

    if value.dtype in (np.float16, np.float32):
      value = np.asarray(value).astype(str).astype(float)
    value = value.tolist()
    return tuple(value) if isinstance(value, list) else value
  return value


def read(text: str, hint: Any) -> Any:
  """Reads a text by an annotation; what it cannot read stays a text."""
  text = str(text)  # no `Text` any more
  allowed = alternatives(hint)
  if text == "None" and type(None) in allowed:
    return None
  # A text must not be evaluated: the title 12, the form int8, a file's name.
  if str in allowed or any(text in get_args(kind) for kind in allowed):
    return text
  if bool in allowed and text.lower() in ("true", "false"):
    return text.lower() == "true"
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return text


def _describe(hint: Any) -> str:
  words = []
  for kind in alternatives(hint):
    if get_origin(kind) is Literal:
      words += [repr(choice) for choice in get_args(kind)]
    elif get_origin(kind) is tuple:
      words.append(f"a tuple, each {_describe(get_args(kind)[0])}")
    else:
      words.append(WORDS[kind])
  return " or ".join(words)


def written(value: Any) -> str:
  """Formats a value for a message: its repr in one line, cut to 200 letters."""
  try:
    text = " ".join(repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits
    text = "(thousands of digits)"
  return text if len(text) <= 200 else f"{text[:197]}..."


def unknown(
  path: str, name: Any, names: Iterable[str], kind: str = "name"
) -> str:
  """Writes the error for an unknown name, with the choices."""
  names = [str(name) for name in names]
  text = written(name).strip("'")
  similar = difflib.get_close_matches(text, names, 1)
  hint = f"; did you mean {similar[0]!r}?" if similar else ""
  choices = f"choices: {shown(text, names)}" if names else "there are none"
  return f"{path}: unknown {kind} {written(name)}{hint} ({choices})"


def shown(text: str, names: Sequence[str]) -> str:
  """Lists names; of more than ten the three most similar to a text."""
  if len(names) <= 10:
    return ", ".join(names)
  similar = difflib.get_close_matches(text, names, 3, cutoff=0.0)
  return f"{', '.join(similar)}, ...: {len(names)} in all"


def split(text: str) -> list[str]:
  """Splits a text at its commas outside of brackets; an empty one has none."""
  parts = [""] if text.strip() else []
  depth = 0
  for letter in text if parts else "":
    depth += (letter in "([{") - (letter in ")]}")
    if letter == "," and depth <= 0:
      parts.append("")
    else:
      parts[-1] += letter
  return [part.strip() for part in parts]
