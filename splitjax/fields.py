"""Types and bounds of fields and options, read by one converter.

The annotation says what a field takes: int, float, str, bool, Literal[...],
tuple[T, ...], or a union of these; `Annotated` adds bounds:

  rounds: Annotated[int, Bounds(at_least=1)] = 120

Nothing here imports numpy, so that a mistake on the command line is answered at
once.
"""

import ast
import contextlib
import dataclasses
import difflib
import math
import os
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Bounds:
  """The interval of a number, or of each number of a tuple."""

  at_least: float = -math.inf
  above: float = -math.inf
  at_most: float = math.inf
  below: float = math.inf

  def __contains__(self, number: float) -> bool:
    closed = self.at_least <= number <= self.at_most
    return closed and self.above < number < self.below

  def __str__(self) -> str:
    limits = dataclasses.asdict(self).items()
    words = [f"{k.replace('_', ' ')} {v:g}" for k, v in limits if abs(v) < 1e99]
    return " and ".join(words)


Count = Annotated[int, Bounds(at_least=1)]
Natural = Annotated[int, Bounds(at_least=0)]
Positive = Annotated[float, Bounds(above=0)]
NotNegative = Annotated[float, Bounds(at_least=0)]
Probability = Annotated[float, Bounds(at_least=0, at_most=1)]
Fraction = Annotated[float, Bounds(above=0, at_most=1)]
BelowOne = Annotated[float, Bounds(at_least=0, below=1)]

_LARGEST: dict[type, float] = {float: 3.4028234663852886e38, int: 2**31 - 1}
"""Largest number of a type: devices compute in float32 and int32."""

_WORDS = {
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


def described(hint: Any) -> str:
  """Says what an annotation allows; "" if `convert` cannot read it."""
  words = []
  for kind, _ in kinds(hint):
    if get_origin(kind) is Literal:
      words += [repr(choice) for choice in get_args(kind)]
    elif get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
      item = described(get_args(kind)[0])
      words.append(item and f"a tuple, each {item}")
    else:
      words.append(_WORDS.get(kind, ""))
  return " or ".join(words) if all(words) else ""


# Values.


def convert(value: Any, hint: Any, path: str) -> Any:
  """Converts a value to the type of its field: 1 to 1.0, a list to a tuple.

  A number stands for a tuple of one, and words separated by commas for a tuple
  of texts. A `Text` is read first; numbers and arrays may be NumPy's. Raises
  UserError, which begins with the field's path, for what the field cannot hold.
  """
  value = _read(value, hint) if isinstance(value, Text) else _native(value)
  for kind, bounds in kinds(hint):
    if get_origin(kind) is tuple:
      item_hint = get_args(kind)[0]
      if isinstance(value, str) and item_hint is str:
        value = [word for word in split(value) if word]
      if type(value) in (int, float):
        value = (value,)
      if isinstance(value, list | tuple):
        if bounds and not value:
          raise UserError(f"{path}={value!r} must have a number")
        bounded: Any = Annotated[item_hint, bounds]
        return tuple(convert(item, bounded, path) for item in value)
    elif get_origin(kind) is Literal:
      if isinstance(value, str) and value in get_args(kind):
        return value
    elif type(value) is kind or kind is float and type(value) is int:
      _check(value, kind, bounds, path)
      return float(value) if kind is float else value
  raise UserError(f"{path}={written(value)} must be {described(hint)}")


def _check(value: Any, kind: type, bounds: Bounds | None, path: str) -> None:
  """Raises UserError unless a device holds the number, a file the text."""
  text = ""
  if kind in _LARGEST and not abs(value) <= _LARGEST[kind]:  # also NaN
    text = f"{_WORDS[kind]}, at most {_LARGEST[kind]:.10g}"
  elif kind in _LARGEST and bounds is not None and value not in bounds:
    text = str(bounds)
  elif kind is str and not value.isprintable():
    text = "one line of text, without control characters"
  if text:
    raise UserError(f"{path}={written(value)} must be {text}")


def _native(value: Any) -> Any:
  """Converts a value to built-in Python values, if it is of NumPy or jax.

  A float32 0.1 becomes 0.1. Paths become texts, arrays and ranges tuples.
  """
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  if hasattr(value, "tolist") and not isinstance(value, type):
    import numpy as np

    if value.dtype in (np.float16, np.float32):
      value = np.asarray(value).astype(str).astype(float)
    value = value.tolist()
  return tuple(value) if isinstance(value, list | range) else value


def _read(text: str, hint: Any) -> Any:
  """Reads a text by an annotation; what it cannot read stays a text."""
  text = str(text)  # no `Text` any more
  allowed = [kind for kind, _ in kinds(hint)]
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


# Holders of fields, and what is wrong with them.


class NoSuchField(UserError, AttributeError):
  """Raised for a field or an option that there is not."""


class Checked:
  """What checks its fields where they are set (`set`), and has no others.

  `_path` is its own place in a config, such as "data.partition", and `lacks`
  writes the error for a field that there is not.
  """

  __slots__ = ("_path",)
  set: Any
  lacks: Any

  def path(self, name: str) -> str:
    """Returns the dotted path of a field."""
    prefix = getattr(self, "_path", "")
    return f"{prefix}.{name}" if prefix else name

  def __setattr__(self, name: str, value: Any) -> None:
    if name.startswith("_"):
      object.__setattr__(self, name, value)
    else:
      self.set(name, value)

  def __getattr__(self, name: str) -> Any:  # only of names that are no fields
    if name.startswith("_"):  # copy and pickle look for their hooks
      raise AttributeError(name)
    raise NoSuchField(self.lacks(name))


def written(value: Any) -> str:
  """Formats a value for a message: its repr in one line, cut to 200 letters."""
  try:
    text = " ".join(repr(value).splitlines())
  except ValueError:  # Python refuses to print integers of thousands of digits
    text = "(thousands of digits)"
  return text if len(text) <= 200 else f"{text[:197]}..."


def unquoted(value: Any) -> str:
  """Formats a value as `written`, a text without its quotes."""
  return written(value).strip("'\"")


def unknown(
  path: str, name: Any, names: Iterable[str], kind: str = "name"
) -> str:
  """Writes the error for an unknown name, with the choices."""
  names = [str(name) for name in names]
  text = unquoted(name)
  similar = difflib.get_close_matches(text, names, 1)
  hint = f"; did you mean {similar[0]!r}?" if similar else ""
  choices = f"choices: {shown(text, names)}" if names else "there are none"
  return f"{path}: unknown {kind} {written(name)}{hint} ({choices})"


def listed(names: Sequence[str], most: int = 20) -> str:
  """Lists the first names and counts the others."""
  beyond = f" and {len(names) - most} more" if len(names) > most else ""
  return ", ".join(names[:most]) + beyond


def shown(text: str, names: Sequence[str]) -> str:
  """Lists names; of more than ten the three most similar to a text."""
  if len(names) <= 10:
    return ", ".join(names)
  similar = difflib.get_close_matches(text, names, 3, cutoff=0.0)
  return f"{', '.join(similar)}, ...: {len(names)} in all"


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
  """Puts `name` before the text of a UserError, unless it begins with it.

  Another error, as of a user's own function, gets it as a note.
  """
  try:
    with noting(name):
      yield
  except UserError as error:
    prefix = name and f"{name}: "
    raise UserError(f"{prefix}{str(error).removeprefix(prefix)}") from None


PLACE = "in "
"""How a note of `noting` begins."""


@contextlib.contextmanager
def noting(name: str) -> Iterator[None]:
  """Notes where an error of a user's own function is, if it is no UserError."""
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    if name:
      error.add_note(f"{PLACE}{name}")
    raise
