"""The fleet: depths, powers, sampling, dealing; clients not sampled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from engine import SIZES, assert_close, by_number, spied
from marks import slow

from splitjax.engine import fleets, sampling
from splitjax.engine.fleets import assign_depths
from splitjax.types import UserError

DRAWS = [
  ("stratified", 7, (1, 2, 3), 2),  # a cohort without participants
  ("uniform", 6, (1, 2), 4),  # more than in a cohort
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
  whole = fleets.with_full_depth(fleet, 8)
  assert whole.cohorts == (fleets.Cohort(8, tuple(range(9))),)
  assert (whole.power, whole.participants) == (fleet.power, 4)


@pytest.mark.parametrize(
  ("options", "words"),
  [
    ({"num_clients": 2}, "num_clients=2"),
    ({"participants": 0}, "participants_per_round=0"),
    ({"participants": 10}, r"1\.\.9"),
    ({"power": (1.0, 2.0)}, "2 powers for 3"),
  ],
)
def test_invalid_numbers(options, words):
  usual = {"num_clients": 9, "depths": (2, 3, 4), "seed": 0}
  with pytest.raises(UserError, match=words):
    assign_depths(**usual | options)


def test_quotas_are_proportional_and_add_up(n=50):
  # 10 of cohorts of 17, 17 and 16: 3.4, 3.4, 3.2.
  fleet = assign_depths(n, (2, 3, 4), 0, participants=10)
  assert fleets.quotas(fleet) == (4, 3, 3)
  for p in range(1, n + 1):
    fleet = assign_depths(n, (2, 3, 4), 0, participants=p)
    quotas = fleets.quotas(fleet)
    assert sum(quotas) == p
    for quota, cohort in zip(quotas, fleet.cohorts, strict=True):
      assert abs(quota - p * len(cohort.ids) / n) < 1
      assert quota <= len(cohort.ids)


def test_balanced_clients_are_chosen_greedily():
  rng = np.random.default_rng(0)
  counts, order = rng.integers(0, 9, (9, 4)), rng.permutation(9)
  wanted = counts.sum(axis=0) / counts.sum()
  chosen = [order[0]]
  for _ in range(3):
    far = {}
    for n in (n for n in order if n not in chosen):
      share = counts[[*chosen, n]].sum(axis=0)
      far[n] = scipy.special.rel_entr(share / share.sum(), wanted).sum()
    chosen.append(min(far, key=far.get))
  place = sampling.balanced(jnp.array(order), jnp.array(counts), 4)
  assert np.argsort(place)[:4].tolist() == chosen


def test_a_balanced_sample_has_all_labels():
  # Clients of one label each: six of a label are never drawn together.
  fleet = assign_depths(
    12, (1, 2), 0, participants=2, participation="label_balanced"
  )
  numbers = [jnp.array(cohort.ids) for cohort in fleet.cohorts]
  counts = [8 * jnp.eye(2, dtype=int)[number % 2] for number in numbers]
  sample = jax.jit(functools.partial(sampling.sample_clients, fleet))
  drawn = set()
  for key in jax.random.split(jax.random.key(0), 20):
    found = [
      int(cohort.places[slot])
      for cohort, who in zip(
        fleet.cohorts, sample(key, numbers, counts), strict=True
      )
      for slot, active in zip(who.slots, who.active, strict=True)
      if active
    ]
    assert sorted(n % 2 for n in found) == [0, 1]
    drawn |= set(found)
  assert len(drawn) > 8


@pytest.mark.parametrize(
  ("kind", "n", "depths", "p"),
  [*DRAWS, ("uniform", 7, (1, 2, 3), 2), ("stratified", 7, (1, 2, 3), 5)],
)
def test_a_sample_has_p_active_slots_of_one_shape(kind, n, depths, p):
  fleet = assign_depths(n, depths, 0, participants=p, participation=kind)
  keys = jax.random.split(jax.random.key(1), 600)
  numbers = [jnp.array(cohort.ids) for cohort in fleet.cohorts]
  draw = functools.partial(sampling.sample_clients, fleet, numbers=numbers)
  sampled = jax.jit(jax.vmap(draw))(keys)
  often = np.zeros(n)
  total = np.zeros(600, int)
  for cohort, quota, who in zip(
    fleet.cohorts, fleets.quotas(fleet), sampled, strict=True
  ):
    slots, active = np.asarray(who.slots), np.asarray(who.active)
    count = quota if kind == "stratified" else min(len(cohort.ids), p)
    assert slots.shape == active.shape == (600, count)
    assert all(len(set(row)) == count for row in slots.tolist())
    total += active.sum(axis=1)
    np.add.at(often, np.array(cohort.ids, int)[slots], active)
  assert (total == p).all()
  if kind == "uniform":
    # All clients equally often, within 5 standard deviations.
    share = p / n
    deviation = 5 * np.sqrt(600 * share * (1 - share)) + 1e-9
    assert np.abs(often - 600 * share).max() <= deviation


@pytest.mark.parametrize(
  ("kind", "n", "depths", "p"), [DRAWS[0], *slow(DRAWS[1])]
)
def test_participants_train_and_the_others_stay(kind, n, depths, p):
  sizes = (*SIZES, 10)[:n]
  made = spied(
    assign_depths(n, depths, 0, participants=p, participation=kind), sizes
  )
  state, step, rounds = made.state(), made.round(), 40
  often = np.zeros(n, int)
  for _ in range(rounds):
    before = by_number(made.fleet, state.clients)
    state, metrics = step(state, made.shards)
    after = by_number(made.fleet, state.clients)
    worked = [
      i for i in range(n) if after[i].memory.begun > before[i].memory.begun
    ]
    often[worked] += 1
    assert len(worked) == p == int(metrics.participants)
    for i in set(range(n)) - set(worked):
      assert_close(after[i], before[i])
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
  if kind == "uniform":
    deviation = np.sqrt(rounds * p / n * (1 - p / n))
    assert np.abs(often - rounds * p / n).max() <= 4 * deviation


def test_devices_that_would_not_shorten_a_round_are_left_out():
  for n, most, count in (
    (6, 8, 6),  # one client each
    (50, 2, 2),
    (9, 8, 5),  # two clients each, as with 8
  ):
    fleet = assign_depths(n, (1, 2, 3), 0)
    assert fleets.useful_devices(fleet, most) == count
  # Devices that are not dealt clients would train padding.
  fleet = assign_depths(6, (1, 2, 3), 0)
  assert fleets.useful_devices(fleet, 8, dealt=False) == 2
  fleet = assign_depths(50, (1, 2), 0, participants=2)
  assert fleets.useful_devices(fleet, 8) == 2


@pytest.mark.parametrize(
  ("n", "participants", "devices", "chunk", "kind"),
  [
    (20, 7, 1, 2, "stratified"),
    (20, 7, 3, 2, "uniform"),
    (30, 7, 3, 1, "stratified"),
    (11, None, 4, 1, "uniform"),
  ],
)
def test_slots_fill_devices_and_chunks(n, participants, devices, chunk, kind):
  fleet = assign_depths(
    n, (1, 2, 3), 0, participants=participants, participation=kind
  )
  fleet = fleets.divide(fleet, devices, [chunk] * 3)
  numbers = [jnp.array(cohort.places) for cohort in fleet.cohorts]
  load, seen = np.zeros(devices, int), []
  samples = sampling.sample_clients(fleet, jax.random.key(1), numbers)
  for cohort, sample in zip(fleet.cohorts, samples, strict=True):
    lot = devices * cohort.chunk
    assert len(sample.slots) % lot == 0 == len(cohort.places) % lot
    active, slots = np.asarray(sample.active), np.asarray(sample.slots)
    load += active.reshape(devices, -1).sum(axis=1)
    seen += [cohort.ids[i] for i in slots[active]]
  assert len(set(seen)) == len(seen) == fleet.participants
  if chunk == 1:  # clients that are trained one at a time
    assert load.max() - load.min() <= 1
