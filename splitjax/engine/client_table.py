"""Tables of clients that a user writes: profiles of devices, planned faults."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from splitjax.files import expanded, one_line, read_bytes
from splitjax.types import UserError

LARGEST = 100_000_000
"""Limit on the bytes of a CSV file."""

ALL = "all"
"""The cell that stands for all clients, instead of one client's number."""


def read(
  path: str | Path,
  header: Sequence[str],
  field: str,
  names: Sequence[str] = (),
) -> list[tuple[str, list[str]]]:
  """Reads a CSV file; returns the location and the cells of each line.

  The location is a text for error messages: file and line number. The column
  `client` has numbers or ALL. If the file has a column `name` instead, that
  column has names or ALL, and each name is returned as the client's number.

  Args:
    path: the file, UTF-8. Empty lines are skipped.
    header: the cells of its first line.
    field: name of the config's field that has the path.
    names: the clients' names; () if they have none.

  Raises:
    UserError: the file is missing, or has another header, a line of another
      length or an unknown name.
  """
  where, wanted = f"{field}={path}", ",".join(header)
  try:
    text = read_bytes(expanded(path), LARGEST).decode("utf-8-sig")
    lines_read = csv.reader(io.StringIO(text, newline=""))
    rows = [[cell.strip() for cell in line] for line in lines_read]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UserError(
      f"{where} cannot be read ({error}): give the path of a CSV file with the"
      f" header {wanted}"
    ) from None
  # The header tells whether clients are given by number or by name.
  first, column = rows[0] if rows else [], header.index("client")
  by_name = [*header[:column], "name", *header[column + 1 :]]
  if first != [*header] and not (names and first == by_name):
    raise UserError(
      one_line(
        f"{where}, line 1 must be the header {wanted}, not {','.join(first)!r}"
      )
    )
  numbers = {name: str(n) for n, name in enumerate(names)}
  lines = []
  for number, line in enumerate(rows[1:], start=2):
    place = f"{where}, line {number}"
    if any(line) and len(line) != len(header):
      raise UserError(
        one_line(
          f"{place} must have the {len(header)} fields {wanted}, not"
          f" {','.join(line)!r}"
        )
      )
    if any(line) and first == by_name:
      who = line[column]
      if who not in (*names, ALL):
        raise UserError(
          f"{place}: no client is called {who!r}: --mode=describe lists the"
          " names"
        )
      line[column] = numbers.get(who, ALL)
    if any(line):
      lines.append((place, line))
  return lines
