"""Sampled clients are dealt to devices, and to chunks of a device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from splitjax.engine import fleets, sampling
from splitjax.engine.fleets import assign_depths


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
  fleet = fleets.divide(fleet, devices, [chunk] * 3, exact=False)
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


def test_exact_fleets_keep_the_order_of_clients():
  fleet = fleets.divide(assign_depths(7, (1,), 0), 2, [1], exact=True)
  (sample,) = sampling.sample_clients(fleet, jax.random.key(1), [])
  assert sample.all_places
  assert sample.slots.tolist() == list(range(8))
  assert not fleet.singly(fleet.cohorts[0])
