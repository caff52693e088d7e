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

import numpy as np
from numpy import ndarray

from splitjax.fields import Count, NotNegative, Positive
from splitjax.fleet.fleets import even_depths
from splitjax.fleet.resources import Devices
from splitjax.models import sizes
from splitjax.models.network import Backbone
from splitjax.types import UserError

_MOST_LEVELS = 4
"""The most split depths that `supersfl` uses if `levels` is None: each depth is
traced into the round, so compile time grows with their number."""


def even(devices: Devices, backbone: Backbone, seed: int) -> ndarray:
  """Draws cuts without regard to resources, each for about equally many."""
  return even_depths(len(devices.memory), backbone.cuts, seed)


def supersfl(
  devices: Devices,
  backbone: Backbone,
  seed: int,
  *,
  alpha: NotNegative = 0.5,
  beta: NotNegative = 4.0,
  levels: Count | None = None,
  eps: Positive = 1e-9,
) -> ndarray:
  """Chooses depths by SuperSFL's eq. 1, from memory and latency.

  d_i = min(floor(alpha m_i) + floor(beta (lat_max - lat_i) / (lat_max - lat_min
  + eps)), L - 1), and at least 1, with L blocks, memory m_i in GB and alpha in
  layers per GB. The lowest latency has a ratio just below 1 because of eps, for
  which the paper prints no value, so a whole beta adds beta - 1 layers.

  Depths are then rounded down to a few cuts (`_in_levels`). With a cut after
  every block but the last, and as many levels as cuts, they are eq. 1's.
  """
  memory = np.array(devices.memory)
  latency = np.array(devices.latency)
  speed = (latency.max() - latency) / (np.ptp(latency) + eps)
  depth = np.floor(alpha * memory) + np.floor(beta * speed)
  depth = np.clip(depth, 1, backbone.length - 1).astype(int)
  return _in_levels(depth, backbone.cuts, levels)


def feature_bytes(backbone: Backbone) -> ndarray:
  """Counts the bytes [K] of a sample's features; a number takes 4 bytes."""
  outputs = sizes.outputs(backbone)
  names = backbone.names()
  numbers = [math.prod(outputs[names[cut - 1]]) for cut in backbone.cuts]
  return 4.0 * np.array(numbers)


def cut_costs(devices: Devices, backbone: Backbone, alpha: float) -> ndarray:
  """Computes DFL's costs [N, K] of cuts: alpha T / |T| + (1 - alpha) E / |E|.

  T is the time that a training sample takes at each cut, 3 (client / compute +
  server / P) + 2 size / bandwidth, with the FLOPs of a forward pass at client
  and server, the server's power P and the bytes of the features; a backward
  pass costs as much as two forward passes. E is the energy that the client
  spends on the sample. The norms are taken over the cuts.
  """
  flops = [sizes.flops_of_cut(backbone, k) for k in backbone.cuts]
  client, server = np.array(flops).T  # [K]
  rates = devices.rates
  compute = 1e9 * np.array(devices.compute)[:, None]
  bandwidth = 1e6 * np.array(devices.bandwidth)[:, None]
  busy = 3 * client / compute
  sent = 2 * 8 * feature_bytes(backbone) / bandwidth
  time = busy + sent + 3 * server / (1e9 * rates.server)
  energy = rates.watts * busy + rates.radio_watts * sent

  def scaled(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)

  return alpha * scaled(time) + (1 - alpha) * scaled(energy)


def _in_levels(
  depth: ndarray, cuts: tuple[int, ...], levels: int | None
) -> ndarray:
  """Rounds depths [N] down to a few cuts, chosen evenly from `cuts`.

  A depth below the shallowest cut is rounded up to it. `levels` is their count;
  None: all, but at most `_MOST_LEVELS`.
  """
  if levels is None:
    levels = min(_MOST_LEVELS, len(cuts))
  if levels > len(cuts):
    raise UserError(
      f"fleet.allocation.levels={levels}: the network has {len(cuts)} cuts"
      f" {cuts} (backbone.depths)"
    )
  rows = np.linspace(0, len(cuts) - 1, levels).round().astype(int)
  used = np.array(cuts)[rows]
  below = np.searchsorted(used, depth, side="right") - 1
  return used[np.maximum(below, 0)]


ALLOCATIONS = {"even": even, "supersfl": supersfl}
"""Name -> allocation. Add your own before a config names it."""
