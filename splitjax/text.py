"""Printing on terminals whose encoding lacks a letter such as ρ."""

import sys
from typing import Any


def print_anywhere() -> None:
  """Makes stdout write "?" for letters outside its encoding.

  Printing the first ρ would otherwise end the training, such as on a Windows
  pipe. stderr escapes such letters already.
  """
  stream: Any = sys.stdout
  if hasattr(stream, "reconfigure"):  # a notebook's stdout takes any letter
    stream.reconfigure(errors="replace")
