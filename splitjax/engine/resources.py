"""The clients' devices: their resources, and the split depths that follow.

An allocation maps (profiles, backbone, seed, **options) to the split depth of
each client, [N] int, among `backbone.cuts`; its keyword-only arguments are the
options of `fleet.allocation` in a config. Everything is on the host.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from splitjax.engine.fleet import even_depths
from splitjax.fields import COUNT, NOT_NEGATIVE, Bounds
from splitjax.models import flops, shapes
from splitjax.models.backbone import Backbone
from splitjax.types import UserError

MOST_LEVELS = 4
"""Split depths in use where an allocation's `levels` is None: each is traced
into the round, so that compile time grows with them."""

EPSILON = 1e-9
"""SuperSFL's epsilon, which is not printed; ours."""

_STREAM = 0xDE71CE
"""Separates the draws of profiles from others of the same seed."""

SHARE = Bounds(at_least=0, at_most=1)


class Profiles(NamedTuple):
  """Resources of all clients, [N] each.

  Attributes:
    memory: GB, 10^9 bytes.
    latency: ms, of one message, in one direction.
    compute: GFLOP/s, 10^9 floating point operations a second.
    bandwidth: Mbit/s, in either direction.
  """

  memory: tuple[float, ...]
  latency: tuple[float, ...]
  compute: tuple[float, ...]
  bandwidth: tuple[float, ...]


HEADER = ("client", *Profiles._fields)
"""The first line of a file of profiles."""

Range = tuple[float, ...]
"""The lower and the upper bound of a uniform draw."""


def draw_profiles(num_clients: int, seed: int, ranges: Profiles) -> Profiles:
  """Draws each resource uniformly, every one from a stream of its own.

  `ranges` has a pair of bounds in place of [N] values.

  Raises:
    UserError: a range is no pair of rising numbers.
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
  return Profiles(*drawn)


def read_profiles(path: str | Path, num_clients: int) -> Profiles:
  """Reads profiles from a CSV file: the header HEADER, then a line per client.

  Raises:
    UserError: a missing file or an invalid line; the message names both.
  """
  where = f"fleet.profiles={path}"
  try:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
      rows = [[cell.strip() for cell in line] for line in csv.reader(file)]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UserError(
      f"{where} cannot be read ({error}): give the path of a CSV file with the"
      f" header {','.join(HEADER)}"
    ) from None
  if not rows or tuple(rows[0]) != HEADER:
    raise UserError(f"{where}, line 1 must be the header {','.join(HEADER)}")
  found: dict[int, tuple[float, ...]] = {}
  for number, row in enumerate(rows[1:], start=2):
    if any(row):
      client, values = _entry(f"{where}, line {number}", row, num_clients)
      if client in found:
        raise UserError(f"{where}, line {number}: client {client} is twice")
      found[client] = values
  missing = sorted(set(range(num_clients)) - found.keys())
  if missing:
    raise UserError(
      f"{where}: client {missing[0]} has no line; give one for each of the"
      f" {num_clients} clients (num_clients)"
    )
  return Profiles(*zip(*(found[n] for n in range(num_clients)), strict=True))


def _entry(
  where: str, row: Sequence[str], num_clients: int
) -> tuple[int, tuple[float, ...]]:
  """One line of a file of profiles: the client and its resources."""
  if len(row) != len(HEADER):
    raise UserError(f"{where}: must have the fields {','.join(HEADER)}")
  if not (row[0].isdecimal() and int(row[0]) < num_clients):
    raise UserError(
      f"{where}: client {row[0]!r} must be one of 0..{num_clients - 1}"
    )
  values = []
  for name, cell in zip(HEADER[1:], row[1:], strict=True):
    try:
      value = float(cell)
    except ValueError:
      value = math.nan
    least = "at least" if name == "latency" else "above"
    if not (0 < value < math.inf or value == 0 and name == "latency"):
      raise UserError(f"{where}: {name} {cell!r} must be a number {least} 0")
    values.append(value)
  return int(row[0]), tuple(values)


def even(profiles: Profiles, backbone: Backbone, seed: int) -> np.ndarray:
  """All cuts in equal shares, shuffled by the seed: resources do not count."""
  return even_depths(len(profiles.memory), backbone.cuts, seed)


def supersfl(
  profiles: Profiles,
  backbone: Backbone,
  seed: int,
  *,
  alpha: Annotated[float, NOT_NEGATIVE] = 0.5,
  beta: Annotated[float, NOT_NEGATIVE] = 4.0,
  levels: Annotated[int | None, COUNT] = None,
) -> np.ndarray:
  """SuperSFL's Algorithm 1 (eq. 1): memory and low latency give depth.

  d_i = min(floor(alpha m_i) + floor(beta (lat_max - lat_i) / (lat_max - lat_min
  + epsilon)), L - 1), and at least 1; then `in_levels`.

  Args:
    profiles: m_i and lat_i of all clients.
    backbone: its number of blocks is L.
    seed: not used; the profiles are drawn already.
    alpha: layers per GB.
    beta: the most layers that latency gives.
    levels: see `in_levels`.
  """
  del seed
  memory, latency = np.array(profiles.memory), np.array(profiles.latency)
  near = (latency.max() - latency) / (np.ptp(latency) + EPSILON)
  depth = np.floor(alpha * memory) + np.floor(beta * near)
  depth = np.clip(depth, 1, backbone.length - 1).astype(int)
  return in_levels(depth, backbone.cuts, levels)


def dfl(
  profiles: Profiles,
  backbone: Backbone,
  seed: int,
  *,
  alpha: Annotated[float, SHARE] = 0.5,
  server: Annotated[float, Bounds(above=0)] = 10_000.0,
  watts: Annotated[float, Bounds(above=0)] = 10.0,
  radio_watts: Annotated[float, NOT_NEGATIVE] = 2.0,
  levels: Annotated[int | None, COUNT] = None,
) -> np.ndarray:
  """The cut of the least weighted time and energy (Samikwa et al., 2024).

  Args:
    profiles: of all clients.
    backbone: the network.
    seed: not used.
    alpha: weight of time, 1 - alpha that of energy.
    server: computing power of the server, GFLOP/s.
    watts: of a client that computes; with `radio_watts`, of one that sends or
      receives, ours: the paper measures its own boards.
    radio_watts: see watts.
    levels: see `in_levels`.
  """
  del seed
  table = cut_table(backbone)
  cost = cut_costs(
    table,
    np.array(profiles.compute)[:, None],
    np.array(profiles.bandwidth)[:, None],
    alpha=alpha,
    server=server,
    watts=watts,
    radio_watts=radio_watts,
  )
  depth = np.array(backbone.cuts)[cost.argmin(axis=1)]
  return in_levels(depth, backbone.cuts, levels)


class CutTable(NamedTuple):
  """What a sample costs at each cut in use, [K] each.

  Attributes:
    near: FLOPs of a forward pass at the client.
    far: at the server.
    size: bytes of the features, in one direction.
  """

  near: np.ndarray
  far: np.ndarray
  size: np.ndarray


def cut_table(backbone: Backbone) -> CutTable:
  """The CutTable of a network; features take 4 bytes each."""
  outputs, names = shapes.outputs(backbone), backbone.names()
  work = [flops.of_cut(backbone, cut) for cut in backbone.cuts]
  near, far = np.array(work).T
  size = [4.0 * math.prod(outputs[names[cut - 1]]) for cut in backbone.cuts]
  return CutTable(near, far, np.array(size))


def cut_costs(
  table: CutTable,
  compute,
  bandwidth,
  *,
  alpha: float,
  server: float,
  watts: float,
  radio_watts: float,
):
  """The cost of each cut: alpha T / |T| + (1 - alpha) E / |E|.

  Norms are over the cuts. T is the time of a training sample, 3 (near /
  compute + far / server) + 2 size / bandwidth, E the client's energy in it. A
  backward pass counts as two forward passes. For NumPy and jax arrays.

  Args:
    table: the cuts, [K].
    compute: [..., 1], GFLOP/s.
    bandwidth: [..., 1], Mbit/s.
    alpha: as of `dfl`, with the four others.
    server: likewise.
    watts: likewise.
    radio_watts: likewise.

  Returns:
    [..., K].
  """
  busy = 3 * table.near / (1e9 * compute)
  sent = 2 * 8 * table.size / (1e6 * bandwidth)
  time = busy + sent + 3 * table.far / (1e9 * server)
  energy = watts * busy + radio_watts * sent

  def scaled(x):
    return x / (x**2).sum(axis=-1, keepdims=True) ** 0.5

  return alpha * scaled(time) + (1 - alpha) * scaled(energy)


def in_levels(
  depth: np.ndarray, cuts: tuple[int, ...], levels: int | None
) -> np.ndarray:
  """Rounds depths down to a few of the cuts, evenly chosen.

  No client gets more than its resources allow, except that the shallowest cut
  is the least.

  Args:
    depth: [N] int, 1..L - 1.
    cuts: the cuts of the network.
    levels: how many of them to use; None: all, of more than MOST_LEVELS so
      many.

  Raises:
    UserError: more levels than cuts.
  """
  if levels is None:
    levels = min(MOST_LEVELS, len(cuts))
  if levels > len(cuts):
    raise UserError(
      f"fleet.allocation.levels={levels}: the network has {len(cuts)} cuts"
      f" {cuts} (backbone.depths)"
    )
  places = np.linspace(0, len(cuts) - 1, levels).round().astype(int)
  used = np.array(cuts)[places]
  below = np.searchsorted(used, depth, side="right") - 1
  return used[np.maximum(below, 0)]


ALLOCATIONS = {"even": even, "supersfl": supersfl, "dfl": dfl}
"""Name -> allocation. Add your own before a config names it."""
