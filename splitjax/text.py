"""Printing on terminals whose encoding lacks a letter: rho for ρ."""

import codecs
import sys
import unicodedata
from typing import Any

_SPELLED = "splitjax.spelled"
_SIGNS = {"×": "x", "±": "+-", "−": "-", "–": "-", "→": "->", "·": "*"}
_SIGNS |= {"√": "sqrt", "≤": "<=", "≥": ">=", "′": "'", "∞": "inf", "½": "1/2"}
_SIGNS |= {"“": '"', "”": '"', "‘": "'", "’": "'", "²": "^2", "≈": "~"}
_SIGNS |= {"λ": "lambda", "Λ": "Lambda"}  # LAMDA in Unicode's names


def spell(letter: str) -> str:
  """Spells a character in ASCII: ρ as rho, é as e, … as dots, or else "?"."""
  if letter in _SIGNS:
    return _SIGNS[letter]
  name = unicodedata.name(letter, "")
  if name.startswith("GREEK "):
    word = name.partition(" LETTER ")[2].partition(" ")[0]
    return word.lower() if "SMALL" in name else word.title()
  plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore")
  return plain.decode() or "?"


def _spelled(error: UnicodeError) -> tuple[str, int]:
  """Handles encoding errors of stdout by spelling out the characters."""
  if not isinstance(error, UnicodeEncodeError):
    raise error
  letters = error.object[error.start : error.end]
  return "".join(map(spell, letters)), error.end


def print_anywhere() -> None:
  """Makes stdout write letters outside its encoding the way `spell` does.

  If stdout is a Windows pipe or PYTHONIOENCODING is ascii, printing the first ρ
  would otherwise raise and end the training. stderr escapes such letters
  already. A stdout stays as it is if its error handler is neither "strict" nor
  "surrogateescape", Python's defaults.
  """
  stream: Any = sys.stdout
  if getattr(stream, "errors", None) in ("strict", "surrogateescape"):
    codecs.register_error(_SPELLED, _spelled)
    if hasattr(stream, "reconfigure"):  # a notebook's stdout takes any letter
      stream.reconfigure(errors=_SPELLED)
