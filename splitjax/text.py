"""Texts for a reader: on any terminal, and with the names of clients."""

import sys
from collections.abc import Sequence
from typing import Any


def print_anywhere() -> None:
  """Makes stdout write "?" for letters outside its encoding.

  Printing the first ρ would otherwise end the training, such as on a Windows
  pipe. stderr escapes such letters already.
  """
  stream: Any = sys.stdout
  if hasattr(stream, "reconfigure"):  # a notebook's stdout takes any letter
    stream.reconfigure(errors="replace")


def client(n: int, names: Sequence[str]) -> str:
  """Formats a client as its number, and its name if it has one."""
  return f"{n} ({names[n]})" if names else str(n)
