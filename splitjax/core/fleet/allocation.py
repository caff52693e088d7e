"""Allocations: the split depths that follow from the clients' devices.

An allocation maps (devices, backbone, seed, **options) to the split depth of
each client, [N] int, among `backbone.cuts`; its keyword-only arguments are the
options of `fleet.allocation` in a config. Allocations run in NumPy on the host.

  >>> import splitjax
  >>> c = splitjax.default()
  >>> c.fleet.allocation = splitjax.spec(splitjax.ALLOCATIONS, "supersfl")
  >>> splitjax.Config.from_dict(c).fleet.allocation.name
  'supersfl'
"""

import math
from typing import Annotated, NamedTuple

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
  """Draws each client's cut without regard to resources.

  Every cut gets about equally many clients.
  """
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
  """Chooses depths by SuperSFL's eq. 1, from memory and latency.

  d_i = min(floor(alpha m_i) + floor(beta (lat_max - lat_i) / (lat_max - lat_min
  + epsilon)), L - 1), and at least 1. So a client with more memory or a lower
  latency has a deeper cut. Depths are then rounded down to a few of
  `backbone.depths`, see `in_levels`.

  Args:
    devices: m_i and lat_i of all clients.
    backbone: its number of blocks is L.
    seed: not used, since the profiles in `devices` are already drawn.
    alpha: layers per GB.
    beta: the number of layers that the lowest latency adds to a depth. If beta
      is a whole number, epsilon reduces this number by one.
    levels: see `in_levels`. With a cut after every block but the last, and as
      many levels as cuts, the depths are those of eq. 1 itself.
    eps: epsilon; the paper prints no value.
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
  """Chooses the cut that costs a client least in time and energy.

  `cut_costs` defines the cost (Samikwa et al., 2024). Depths are then rounded
  down to a few of `backbone.depths`, see `in_levels`.

  Args:
    devices: the clients' profiles, and the rates that `cut_costs` takes.
    backbone: the network.
    seed: not used.
    alpha: weight of the time; the energy has weight 1 - alpha.
    levels: see `in_levels`.
  """
  del seed
  depth = cheapest_cuts(devices, backbone, alpha)
  return in_levels(depth, backbone.cuts, levels)


def cheapest_cuts(
  devices: Devices, backbone: Backbone, alpha: float
) -> np.ndarray:
  """Finds each client's cut of the least cost (`cut_costs`), [N] int."""
  cost = cut_costs(
    cut_table(backbone),
    np.array(devices.profiles.compute)[:, None],
    np.array(devices.profiles.bandwidth)[:, None],
    devices.rates,
    alpha,
  )
  return np.array(backbone.cuts)[cost.argmin(axis=1)]


class CutTable(NamedTuple):
  """What a sample costs at each of the network's K cuts, as arrays [K].

  Attributes:
    near: FLOPs of a forward pass at the client.
    far: FLOPs of a forward pass at the server.
    size: bytes of the features, in one direction.
  """

  near: np.ndarray
  far: np.ndarray
  size: np.ndarray


def cut_table(backbone: Backbone) -> CutTable:
  """Makes the CutTable of a network."""
  work = [flops.of_cut(backbone, cut) for cut in backbone.cuts]
  near, far = np.array(work).T
  return CutTable(near=near, far=far, size=feature_bytes(backbone))


def feature_bytes(backbone: Backbone) -> np.ndarray:
  """Counts the bytes [K] of a sample's features; a number takes 4 bytes."""
  outputs, names = shapes.outputs(backbone), backbone.names()
  sizes = [math.prod(outputs[names[cut - 1]]) for cut in backbone.cuts]
  return 4.0 * np.array(sizes)


def cut_costs(
  table: CutTable,
  compute: np.ndarray,
  bandwidth: np.ndarray,
  rates: Rates,
  alpha: float,
) -> np.ndarray:
  """Computes the cost of each cut: alpha T / |T| + (1 - alpha) E / |E|.

  T is the time that a training sample takes at each cut, 3 (near / compute +
  far / server) + 2 size / bandwidth; a backward pass costs as much as two
  forward passes. E is the energy that the client spends on the sample. The
  norms are taken over the cuts.

  Args:
    table: the K cuts.
    compute: [..., 1], GFLOP/s.
    bandwidth: [..., 1], Mbit/s.
    rates: the server's computing power, and the watts that a client draws.
    alpha: weight of the time.

  Returns:
    [..., K], the costs.
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
  """Rounds depths down to a few cuts, which are chosen evenly from `cuts`.

  So no client gets a deeper cut than its resources allow, with one exception: a
  depth below the shallowest cut is rounded up to that cut.

  Args:
    depth: [N] int, 1..L - 1.
    cuts: the cuts of the network.
    levels: how many cuts to use; None: all, but at most MOST_LEVELS.

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
