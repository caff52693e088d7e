"""The clients' devices, and the split depths that allocations choose."""

import math

import numpy as np
import pytest
from refusals import refused

from splitjax import fleet, models
from splitjax.fleet import Devices, Rates
from splitjax.fleet.allocation import ALLOCATIONS
from splitjax.models import cnn4, toy

NET = toy((8, 8, 1), 4, depths=(1, 2, 3, 4, 5), length=6)
RANGES = {
  "memory": (2.0, 16.0),
  "latency": (20.0, 200.0),
  "compute": (5.0, 50.0),
  "bandwidth": (10.0, 100.0),
}


RATES = Rates(1e4, 10.0, 2.0, 300.0, 400.0)


def devices(memory, latency=None, compute=None, bandwidth=None):
  ones = [1.0] * len(memory)
  each = (tuple(x or ones) for x in (memory, latency, compute, bandwidth))
  return Devices(*each, RATES)


def test_devices_are_drawn_by_the_seed_within_their_ranges():
  one, again = (fleet.draw_devices(200, 3, RANGES) for _ in range(2))
  assert one == again != fleet.draw_devices(200, 4, RANGES)
  for name, (low, high) in RANGES.items():
    values = getattr(one, name)
    assert low <= min(values) and max(values) <= high
    assert np.mean(values) == pytest.approx((low + high) / 2, rel=0.1)
  # A client's device does not depend on how many there are.
  assert fleet.draw_devices(9, 3, RANGES).memory == one.memory[:9]
  with refused("fleet.memory"):
    fleet.draw_devices(3, 0, RANGES | {"memory": (4.0, 2.0)})


def test_supersfl_by_hand():
  """Algorithm 1 with L = 6: floor(m / 2) + floor(4 (200 - lat) / 180)."""
  given = devices(
    [2.0, 2.0, 5.9, 9.0, 16.0, 1.0], [200.0, 20.0, 110.0, 155.1, 20.0, 200.0]
  )
  depth = ALLOCATIONS["supersfl"](given, NET, 0, levels=5)
  # 1 + 0, 1 + 3 (4 - a hair), 2 + 1, 4 + 0, 5 at most, at least 1
  assert depth.tolist() == [1, 4, 3, 4, 5, 1]
  # Four of five cuts, 1, 2, 4 and 5, rounded down: 3 becomes 2.
  few = ALLOCATIONS["supersfl"](given, NET, 0)
  assert few.tolist() == [1, 4, 2, 4, 5, 1]
  assert set(ALLOCATIONS["supersfl"](given, NET, 0, levels=1)) == {1}
  # Without a hair less: 4 and 2 layers for latency in clients 1 and 2.
  exact = ALLOCATIONS["supersfl"](given, NET, 0, levels=5, eps=1e-30)
  assert exact.tolist() == [1, 5, 4, 4, 5, 1]
  with refused("fleet.allocation.levels"):
    ALLOCATIONS["supersfl"](given, NET, 0, levels=6)


def test_dfl_takes_the_cheapest_cut():
  net = cnn4((28, 28, 1), 10, depths=(1, 2))
  (near, wide), (far, _) = (models.flops_of_cut(net, cut) for cut in (1, 2))
  assert near < far
  # Features of 32x14x14 and of 64x7x7: the deeper cut sends half as much.
  given = devices([1.0] * 3, None, [0.01, 1e6, 1.0], [1e6, 0.01, 10.0])
  depth = ALLOCATIONS["dfl"](given, net, 0)
  # A slow processor stops early, a slow line late.
  assert depth[:2].tolist() == [1, 2]
  # By hand, client 2.
  cost = []
  for cut, size in ((1, 4 * 32 * 14 * 14), (2, 4 * 64 * 7 * 7)):
    at_client, at_server = models.flops_of_cut(net, cut)
    busy, sent = 3 * at_client / 1e9, 16 * size / 1e7
    cost.append((busy + sent + 3 * at_server / 1e13, 10 * busy + 2 * sent))
  norms = [math.hypot(*column) for column in zip(*cost, strict=True)]
  total = [0.5 * t / norms[0] + 0.5 * e / norms[1] for t, e in cost]
  assert depth[2] == 1 + int(np.argmin(total))
  assert wide > 0


def test_flops_are_those_of_the_arithmetic():
  net = cnn4((28, 28, 1), 10, depths=(1, 2))
  each = models.flops(net)
  # Along an edge of n pixels, six of n times five taps lie outside.
  first, second = 2 * (28 * 5 - 6) ** 2 * 32, 2 * (14 * 5 - 6) ** 2 * 32 * 64
  dense = 2 * 7 * 7 * 64 * 512
  # Above it: bias, relu and pool, of an output 32 times less than conv1.
  for name, count in (("conv1", first), ("conv2", second), ("dense1", dense)):
    assert count <= each[name] <= 1.11 * count
  assert models.flops_of_cut(net, 3)[1] == 0
  assert sum(models.flops_of_cut(net, 1)) == pytest.approx(
    sum(each.values()) - each["exit2"]
  )
