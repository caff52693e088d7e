"""Allocations: the split depths that follow from the clients' devices.

An allocation maps (devices, backbone, seed, **options) to the split depth of
each client, [N] int, among `backbone.cuts`; its keyword-only arguments are the
options of `fleet.allocation` in a config. Everything is on the host.

  >>> import splitjax
  >>> c = splitjax.default()
  >>> c.fleet.allocation = splitjax.spec(splitjax.ALLOCATIONS, "supersfl")
  >>> splitjax.Config.from_dict(c).fleet.allocation.name
  'supersfl'
"""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from splitjax.engine.fleets import even_depths
from splitjax.engine.resources import Devices, Rates
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE, PROBABILITY
from splitjax.models import flops, shapes
from splitjax.models.backbones import Backbone
from splitjax.types import UserError

MOST_LEVELS = 4
"""The most split depths that an allocation uses if `levels` is None: each depth
is traced into the round, so compile time grows with their number."""

EPSILON = 1e-9
"""SuperSFL's epsilon in eq. 1; the paper gives no value, this one is ours."""


def even(devices: Devices, backbone: Backbone, seed: int) -> np.ndarray:
  """Deals all cuts in equal shares, by the seed: resources do not count."""
  return even_depths(len(devices.profiles.memory), backbone.cuts, seed)


def supersfl(
  devices: Devices,
  backbone: Backbone,
  seed: int,
  *,
  alpha: Annotated[float, NOT_NEGATIVE] = 0.5,
  beta: Annotated[float, NOT_NEGATIVE] = 4.0,
  levels: Annotated[int | None, COUNT] = None,
  eps: Annotated[float, POSITIVE] = EPSILON,
) -> np.ndarray:
  """Chooses depths by SuperSFL's eq. 1: memory and low latency give depth.

  Depths are then rounded down to a few of `backbone.depths`, see `in_levels`.

  d_i = min(floor(alpha m_i) + floor(beta (lat_max - lat_i) / (lat_max - lat_min
  + epsilon)), L - 1), and at least 1.

  Args:
    devices: m_i and lat_i of all clients.
    backbone: its number of blocks is L.
    seed: not used; the profiles are drawn already.
    alpha: layers per GB.
    beta: layers that the least latency gives; because of epsilon one layer less
      if beta is a whole number.
    levels: see `in_levels`; as many as there are cuts give eq. 1 itself.
    eps: epsilon, which is not printed.
  """
  del seed
  memory = np.array(devices.profiles.memory)
  latency = np.array(devices.profiles.latency)
  near = (latency.max() - latency) / (np.ptp(latency) + eps)
  depth = np.floor(alpha * memory) + np.floor(beta * near)
  depth = np.clip(depth, 1, backbone.length - 1).astype(int)
  return in_levels(depth, backbone.cuts, levels)


def dfl(
  devices: Devices,
  backbone: Backbone,
  seed: int,
  *,
  alpha: Annotated[float, PROBABILITY] = 0.5,
  levels: Annotated[int | None, COUNT] = None,
) -> np.ndarray:
  """Chooses cuts of least weighted time and energy (Samikwa et al., 2024).

  Args:
    devices: the devices of all clients, and the rates of power.
    backbone: the network.
    seed: not used.
    alpha: weight of time, 1 - alpha that of energy.
    levels: see `in_levels`.
  """
  del seed
  cost = cut_costs(
    cut_table(backbone),
    np.array(devices.profiles.compute)[:, None],
    np.array(devices.profiles.bandwidth)[:, None],
    devices.rates,
    alpha,
  )
  depth = np.array(backbone.cuts)[cost.argmin(axis=1)]
  return in_levels(depth, backbone.cuts, levels)


class CutTable(NamedTuple):
  """The cost of a sample at each cut in use, [K] each.

  Attributes:
    near: FLOPs of a forward pass at the client.
    far: FLOPs of a forward pass at the server.
    size: bytes of the features, in one direction.
  """

  near: np.ndarray
  far: np.ndarray
  size: np.ndarray


def cut_table(backbone: Backbone) -> CutTable:
  """Makes the CutTable of a network; features take 4 bytes each."""
  outputs, names = shapes.outputs(backbone), backbone.names()
  work = [flops.of_cut(backbone, cut) for cut in backbone.cuts]
  near, far = np.array(work).T
  size = [4.0 * math.prod(outputs[names[cut - 1]]) for cut in backbone.cuts]
  return CutTable(near, far, np.array(size))


def cut_costs(
  table: CutTable, compute: Any, bandwidth: Any, rates: Rates, alpha: float
) -> Any:
  """Computes the cost of each cut: alpha T / |T| + (1 - alpha) E / |E|.

  Norms are over the cuts. T is the time of a training sample, 3 (near /
  compute + far / server) + 2 size / bandwidth, E the client's energy for it. A
  backward pass counts as two forward passes. Arrays may be NumPy's or jax's.

  Args:
    table: the cuts, [K].
    compute: [..., 1], GFLOP/s.
    bandwidth: [..., 1], Mbit/s.
    rates: rates of the server and of power.
    alpha: weight of time.

  Returns:
    [..., K].
  """
  busy = 3 * table.near / (1e9 * compute)
  sent = 2 * 8 * table.size / (1e6 * bandwidth)
  time = busy + sent + 3 * table.far / (1e9 * rates.server)
  energy = rates.watts * busy + rates.radio_watts * sent

  def scaled(x):
    return x / (x**2).sum(axis=-1, keepdims=True) ** 0.5

  return alpha * scaled(time) + (1 - alpha) * scaled(energy)


def in_levels(
  depth: np.ndarray, cuts: tuple[int, ...], levels: int | None
) -> np.ndarray:
  """Rounds depths down to a few of the cuts, evenly chosen.

  No client gets more than its resources allow, but for a depth below the
  shallowest cut, which is rounded up to that cut.

  Args:
    depth: [N] int, 1..L - 1.
    cuts: the cuts of the network.
    levels: how many of them to use; None: all, but at most MOST_LEVELS.

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
