"""The clients' devices: their resources, drawn or read from a file."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from splitjax.fields import LATENCY, RESOURCE
from splitjax.files import expanded, one_line
from splitjax.types import UserError

_STREAM = 0xDE71CE
"""Separates the draws of profiles from other draws of the same seed."""


class Profiles(NamedTuple):
  """Resources of all clients, [N] each.

  Attributes:
    memory: GB, 10^9 bytes.
    latency: ms of a round trip: a message and its answer.
    compute: GFLOP/s, 10^9 floating point operations a second.
    bandwidth: Mbit/s, in either direction.
  """

  memory: tuple[float, ...]
  latency: tuple[float, ...]
  compute: tuple[float, ...]
  bandwidth: tuple[float, ...]


class Rates(NamedTuple):
  """Speed of the server and power of all devices. The defaults are ours.

  Attributes:
    server: operations of the server per second, GFLOP/s.
    watts: power of a client while it computes, W.
    radio_watts: power of a client while it sends or receives, W.
    server_watts: power of the server while it computes, W.
    grid: grams of CO2 per kWh.
  """

  server: float = 10_000.0
  watts: float = 10.0
  radio_watts: float = 2.0
  server_watts: float = 300.0
  grid: float = 400.0


RATES = Rates()
"""The default rates."""


class Devices(NamedTuple):
  """Resources of the clients' devices, and rates that all clients share."""

  profiles: Profiles
  rates: Rates


HEADER = ("client", *Profiles._fields)
"""The first line of a file of profiles."""


def draw_profiles(num_clients: int, seed: int, ranges: Profiles) -> Profiles:
  """Draws each resource uniformly, from a random stream of its own.

  Each field of `ranges` is a pair of bounds instead of [N] values.

  Raises:
    UserError: a range is not two numbers, the smaller first.
  """
  drawn = []
  for i, (name, bounds) in enumerate(ranges._asdict().items()):
    if len(bounds) != 2 or not bounds[0] <= bounds[1]:
      raise UserError(
        f"fleet.{name}={tuple(bounds)} must be two numbers, the smaller first"
      )
    rng = np.random.default_rng([seed, _STREAM, i])
    low, high = bounds
    drawn.append(tuple(map(float, rng.uniform(low, high, num_clients))))
  return Profiles._make(drawn)


def read_profiles(
  path: str | Path, num_clients: int, names: Sequence[str] = ()
) -> Profiles:
  """Reads profiles from a CSV file: the header HEADER, then a line per client.

  A column `name`, with names from `names`, may replace the column `client`.

  Raises:
    UserError: the file is missing, a line is invalid, or a client has no line.
  """
  table: dict[int, tuple[float, ...]] = {}
  for location, line in _lines(path, names):
    client, values = _entry(location, line, num_clients)
    if client in table:
      raise UserError(f"{location}: client {client} occurs twice")
    table[client] = values
  missing = sorted(set(range(num_clients)) - table.keys())
  if missing:
    raise UserError(
      f"fleet.profiles={path}: client {missing[0]} has no line; give one for"
      f" each of the {num_clients} clients (num_clients)"
    )
  rows = [table[number] for number in range(num_clients)]
  return Profiles._make(zip(*rows, strict=True))


def _lines(
  path: str | Path, names: Sequence[str]
) -> list[tuple[str, list[str]]]:
  """Reads the location, for messages, and the cells of each line of a file.

  Empty lines are skipped, and names are replaced by clients' numbers.
  """
  field = f"fleet.profiles={path}"
  wanted = ",".join(HEADER)
  try:
    text = expanded(path).read_bytes().decode("utf-8-sig")
    lines_read = csv.reader(io.StringIO(text, newline=""))
    rows = [[cell.strip() for cell in line] for line in lines_read]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UserError(
      f"{field} cannot be read ({error}): give the path of a CSV file with the"
      f" header {wanted}"
    ) from None
  header = rows[0] if rows else []
  by_name = header == ["name", *HEADER[1:]] and bool(names)
  if header != [*HEADER] and not by_name:
    raise UserError(
      one_line(
        f"{field}, line 1 must be the header {wanted}, not {','.join(header)!r}"
      )
    )
  numbers = {name: str(n) for n, name in enumerate(names)}
  lines = []
  for number, line in enumerate(rows[1:], start=2):
    location = f"{field}, line {number}"
    if not any(line):
      continue
    if len(line) != len(HEADER):
      raise UserError(
        one_line(
          f"{location} must have the {len(HEADER)} fields {wanted}, not"
          f" {','.join(line)!r}"
        )
      )
    if by_name and line[0] not in numbers:
      raise UserError(
        f"{location}: no client is called {line[0]!r}: --mode=describe lists"
        " the names"
      )
    lines.append((location, [numbers[line[0]], *line[1:]] if by_name else line))
  return lines


def _entry(
  location: str, row: Sequence[str], num_clients: int
) -> tuple[int, tuple[float, ...]]:
  """Reads one line of a file of profiles: the client and its resources."""
  if row[0] not in map(str, range(num_clients)):
    raise UserError(
      f"{location}: client {row[0]!r:.40} must be one of 0..{num_clients - 1}"
    )
  values = []
  for name, cell in zip(HEADER[1:], row[1:], strict=True):
    try:
      value = float(cell)
    except ValueError:
      value = math.nan
    bounds = LATENCY if name == "latency" else RESOURCE
    if value not in bounds:
      raise UserError(
        f"{location}: {name} {cell!r:.40} must be a number {bounds}"
      )
    values.append(value)
  return int(row[0]), tuple(values)
