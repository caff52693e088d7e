"""The fleet: depths, sampling, chunks, devices of clients, allocations."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from refusals import refused
from worlds import (
  SIZES,
  assert_close,
  by_number,
  distance,
  of_kind,
  play,
  rounds,
  spied,
  world,
)

from splitjax import fleet, models
from splitjax.data import BatchPlan
from splitjax.engine import round
from splitjax.engine.round import run_round
from splitjax.fleet import Devices, Queue, Rates, cohorts
from splitjax.fleet.allocation import ALLOCATIONS
from splitjax.fleet.fleets import (
  Cohort,
  assign_depths,
  divide,
  own_fleet,
  with_padding,
  without_padding,
)
from splitjax.methods import METHODS, Optimizer
from splitjax.models import cnn4, toy
from splitjax.parameters import pytree
from splitjax.simulation import sandbox

DRAWS = [
  (7, (1, 2, 3), 2),  # fewer than cohorts: one has no participant
  (6, (1, 2), 4),  # more than in a cohort
]


@pytest.mark.parametrize("n", [3, 50])
def test_depths_are_assigned_evenly(n):
  fleet = assign_depths(n, (4, 2, 3), 0)
  assert [c.depth for c in fleet.cohorts] == [2, 3, 4]
  sizes = [len(c.ids) for c in fleet.cohorts]
  assert max(sizes) - min(sizes) <= 1
  assert sorted(i for c in fleet.cohorts for i in c.ids) == list(range(n))
  assert all(list(c.ids) == sorted(c.ids) for c in fleet.cohorts)
  assert fleet.num_clients == fleet.participants == n


def test_padding_is_the_first_client():
  fleet = divide(assign_depths(5, (1, 2), 0), 4, (None, None))
  cohorts = tuple(jnp.array(c.ids) for c in fleet.cohorts)
  padded = with_padding(fleet, cohorts)
  for numbers, cohort in zip(padded, fleet.cohorts, strict=True):
    assert cohort.padding and tuple(numbers.tolist()) == cohort.numbers
  assert_close(without_padding(fleet, padded), cohorts, 0.0)


def test_the_seed_shuffles():
  assert assign_depths(30, (2, 3, 4), 5) == assign_depths(30, (2, 3, 4), 5)
  assert len({assign_depths(30, (2, 3, 4), seed) for seed in range(5)}) == 5
  # Not every third client: that would tie depth to the order of partitions.
  first = assign_depths(30, (2, 3, 4), 0).cohorts[0]
  assert first.ids != tuple(range(0, 30, 3))


def test_power_is_geometric_or_as_given():
  fleet = assign_depths(12, (1, 2, 3, 4), 0)
  for i, cohort in enumerate(fleet.cohorts):
    for n in cohort.ids:
      assert fleet.power[n] == pytest.approx(10 * 4 ** (i / 3))
  fleet = assign_depths(9, (2, 3, 4), 1, power=(5.0, 6.0, 7.0), participants=4)
  assert {fleet.power[i] for i in fleet.cohorts[2].ids} == {7.0}
  net = toy((4, 4, 1), 4, depths=(2,), length=8)
  method = METHODS["fedavg"](backbone=net, optimizer=Optimizer(lr=0.1))
  whole = own_fleet(method, fleet)
  assert whole.cohorts == (Cohort(8, tuple(range(9))),)
  assert (whole.power, whole.participants) == (fleet.power, 4)


@pytest.mark.parametrize(
  ("options", "field"),
  [
    ({"num_clients": 2}, "num_clients"),
    ({"participants": 0}, "participants_per_round"),
    ({"participants": 10}, "participants_per_round"),
    ({"power": (1.0, 2.0)}, "system.client_power"),
  ],
)
def test_invalid_numbers(options, field):
  usual = {"num_clients": 9, "depths": (2, 3, 4), "seed": 0}
  with refused(field):
    assign_depths(**usual | options)


@pytest.mark.parametrize(("n", "depths", "p"), DRAWS)
def test_a_sample_has_p_active_slots_of_one_shape(n, depths, p):
  fleet = assign_depths(n, depths, 0, participants=p)
  keys = jax.random.split(jax.random.key(1), 600)
  numbers = [jnp.array(cohort.ids) for cohort in fleet.cohorts]
  draw = functools.partial(round.sample, fleet.layout, numbers=numbers)
  sampled = jax.jit(jax.vmap(draw))(keys)
  often = np.zeros(n)
  total = np.zeros(600, int)
  for cohort, who in zip(fleet.cohorts, sampled, strict=True):
    active = np.asarray(who.active)
    slots = np.indices(active.shape)[1]
    if who.rows is not None:
      slots = np.asarray(who.rows)
    count = min(len(cohort.ids), p)
    assert slots.shape == active.shape == (600, count)
    assert all(len(set(row)) == count for row in slots.tolist())
    total += active.sum(axis=1)
    np.add.at(often, np.array(cohort.ids, int)[slots], active)
  assert (total == p).all()
  # All clients equally often, within 5 standard deviations.
  share = p / n
  deviation = 5 * np.sqrt(600 * share * (1 - share)) + 1e-9
  assert np.abs(often - 600 * share).max() <= deviation


@pytest.mark.parametrize(("n", "depths", "p"), [DRAWS[0], *slow(DRAWS[1])])
def test_participants_train_and_the_others_stay(n, depths, p):
  sizes = (*SIZES, 10)[:n]
  made = spied(assign_depths(n, depths, 0, participants=p), sizes)
  state = made.start(made.method)
  for _ in range(6):
    before = by_number(made, state)
    state, metrics = made.round(made.method, state)
    after = by_number(made, state)
    worked = [
      i for i in range(n) if after[i].memory.begun > before[i].memory.begun
    ]
    assert len(worked) == p == int(metrics.participants)
    for i in set(range(n)) - set(worked):
      assert_close(after[i], before[i], 0.0)
    steps = {i: -(-sizes[i] // 4) for i in worked}
    for i in worked:
      own, old = after[i].memory, before[i].memory
      assert int(own.steps - old.steps) == steps[i]
      assert int(own.seen.sum() - old.seen.sum()) == sizes[i]
      assert int(own.finished - old.finished) == 1
    # The others have no weight, no messages and no loss.
    weights = {i: sizes[i] for i in worked}
    assert state.server.memory.tolist() == [
      sum(weights.values()),
      sum(weights[i] * steps[i] for i in worked),
    ]
    assert {k: float(v) for k, v in metrics.wire.items()} == {
      "down/model": p,
      "up/prefix": sum(steps.values()),
      "up/model": p,
    }
    assert float(metrics.losses["one"]) == 1


@pytest.mark.parametrize(
  ("n", "participants", "devices", "chunk"),
  [(20, 7, 1, 2), (20, 3, 3, 2), (30, 7, 3, 1), (9, 2, 4, 1), (11, None, 4, 1)],
)
def test_slots_fill_devices_and_chunks(n, participants, devices, chunk):
  fleet = assign_depths(n, (1, 2, 3), 0, participants=participants)
  fleet = divide(fleet, devices, [chunk] * 3)
  numbers = [jnp.array(cohort.numbers) for cohort in fleet.cohorts]
  seen = []
  samples = round.sample(fleet.layout, jax.random.key(1), numbers)
  for cohort, sample in zip(fleet.cohorts, samples, strict=True):
    lot = devices * cohort.chunk
    active, slots = np.asarray(sample.active), np.arange(len(cohort.numbers))
    if sample.rows is not None:  # the sampled clients of a cohort are dealt
      slots = np.asarray(sample.rows)
      assert len(slots) < len(cohort.numbers)  # or it would gather for nothing
      load = active.reshape(devices, -1).sum(axis=1)
      assert load.max() - load.min() <= 1
    assert len(slots) % lot == 0 == len(cohort.numbers) % lot
    seen += [cohort.ids[i] for i in slots[active]]
  assert len(set(seen)) == len(seen) == fleet.participants


TOLERANCE = 1e-9
"""In float64."""


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize(
  ("name", "chunk", "given"),
  [("harmony", 2, {}), ("fedavg", 1, {}), ("splitgp", 2, {"participants": 5})],
)
def test_a_round_does_not_depend_on_chunks(name, chunk, given, float64):
  # Cohorts of three: chunks of two need a padding client, chunks of one none.
  whole = play(world(name, **given))
  parts = play(world(name, chunk=chunk, **given))
  assert parts.metrics.participants == given.get("participants", 6)
  assert distance(parts, whole) <= TOLERANCE


taken = []


@pytree
class Counting(METHODS["splitgp"]):
  """Counts its steps."""

  def step(self, client, *rest):
    jax.debug.callback(lambda: taken.append(1))
    return super().step(client, *rest)


@pytest.mark.slow
def test_chunks_of_one_client_take_its_own_steps_and_no_more():
  sizes = (11, 3, 11, 3, 3, 11)
  made = world("splitgp", sizes=sizes, epochs=2, chunk=1)
  place = of_kind(made, Counting)
  taken.clear()
  rounds(place)
  jax.effects_barrier()
  # Batches of four: three an epoch, or one.
  assert len(taken) == sum(2 * -(-size // 4) for size in sizes)


@pytest.mark.slow
@pytest.mark.optimized
def test_chunks_hold_fewer_copies_of_the_server():
  def scratch(chunk):
    sizes = (8,) * 24
    made = world("splitgp", sizes=sizes, depths=(1,), chunk=chunk)
    inputs = made.method, made.start(made.method), made.shards
    step = run_round.lower(*inputs, **made.how).compile()
    return step.memory_analysis().temp_size_in_bytes

  assert scratch(1) < scratch(None) / 4


def test_chunks_by_hand():
  for n, devices, chunk, padding, size in (
    (10, 4, None, 2, None),
    (10, 1, 4, 2, 4),  # three chunks of at most 4: 4, 4, 2
    (10, 1, 6, 0, 5),  # two chunks either way: of 5, without padding
    (10, 2, 4, 2, 3),  # five on each device, two chunks
    (3, 8, 2, 5, 1),
    (3, 1, 9, 0, 3),
  ):
    fleet = assign_depths(n, (1,), 0)
    (cohort,) = divide(fleet, devices, [chunk]).cohorts
    assert (cohort.padding, cohort.chunk) == (padding, size)


def test_clients_of_each_depth_have_the_partitions_groups():
  method = world("multi_head").method
  groups, image = np.array([3, 1, 0, 2, 1, 3]), sandbox.stripes(sum(SIZES) + 5)
  plan, queue = BatchPlan(4, 1, (0.0,), (1.0,)), Queue("cyclic", 1, 0)
  fleet = divide(assign_depths(6, (1, 2), 0), 2, (None, None))
  _, shards, _ = cohorts.deal(
    method, fleet, image, sandbox.parts(SIZES), plan, queue, groups=groups
  )
  for shard in shards:  # padding clients included
    assert shard.group.tolist() == groups[shard.number].tolist()


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
  # Who has most memory is not the fastest for that.
  assert len({tuple(np.argsort(getattr(one, name))) for name in RANGES}) == 4
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


def test_the_costs_of_dfls_cuts():
  net = cnn4((28, 28, 1), 10, depths=(1, 2))
  (near, wide), (far, _) = (models.flops_of_cut(net, cut) for cut in (1, 2))
  assert near < far
  # Features of 32x14x14 and of 64x7x7: the deeper cut sends half as much.
  given = devices([1.0] * 3, None, [0.01, 1e6, 1.0], [1e6, 0.01, 10.0])
  depth = 1 + fleet.cut_costs(given, net, 0.5).argmin(axis=1)
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
  found = fleet.cut_costs(given, net, 0.5)[2]
  np.testing.assert_allclose(found, total, rtol=1e-12)
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
