"""The clients' devices: their resources, drawn by a seed."""

from typing import NamedTuple

import numpy as np

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
