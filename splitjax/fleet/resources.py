"""The clients' devices: their resources, drawn by a seed."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.types import UserError

_STREAM = 0xDE71CE
"""Separates the draws of resources from other draws of the same seed."""


class Rates(NamedTuple):
  """Speed of the server and power of all devices. The defaults are ours."""

  server: float = 10_000.0  #: GFLOP/s, 10^9 floating point operations a second
  watts: float = 10.0  #: power of a client while it computes, W
  radio_watts: float = 2.0  #: while it sends or receives
  server_watts: float = 300.0  #: power of the server while it computes, W
  grid: float = 400.0  #: grams of CO2 per kWh


class Devices(NamedTuple):
  """The clients' devices: resources, [N] each, and what all of them share."""

  memory: Sequence[float]  #: GB, 10^9 bytes
  latency: Sequence[float]  #: ms of a round trip: a message and its answer
  compute: Sequence[float]  #: GFLOP/s
  bandwidth: Sequence[float]  #: Mbit/s, in either direction
  rates: Rates = Rates()


RESOURCES = Devices._fields[:-1]


def draw_devices(
  num_clients: int, seed: int, ranges: Mapping[str, Sequence[float]]
) -> Devices:
  """Draws each resource uniformly from its range, from a stream of its own.

  UserError if a range is not two numbers, the smaller first.
  """
  drawn: dict[str, Any] = {}
  for number, name in enumerate(RESOURCES):
    bounds = ranges[name]
    if len(bounds) != 2 or not bounds[0] <= bounds[1]:
      raise UserError(
        f"fleet.{name}={tuple(bounds)} must be two numbers, the smaller first"
      )
    rng = np.random.default_rng([seed, _STREAM, number])
    low, high = bounds
    drawn[name] = tuple(rng.uniform(low, high, num_clients).tolist())
  return Devices(**drawn)
