"""The fleet: depths, powers, sampling, dealing; clients not sampled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from refusals import refused
from worlds import SIZES, assert_close, by_number, spied

from splitjax import METHODS
from splitjax.engine import round
from splitjax.fleet.fleets import (
  Cohort,
  assign_depths,
  divide,
  own_fleet,
  with_padding,
  without_padding,
)
from splitjax.methods import Optimizer
from splitjax.models import toy

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
