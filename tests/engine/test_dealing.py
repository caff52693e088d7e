"""Clients that are trained one at a time are dealt to devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

from splitjax.engine import fleets, sampling
from splitjax.engine.fleets import assign_depths


@pytest.mark.parametrize(
  ("n", "participants", "devices", "kind"),
  [
    (30, 7, 3, "stratified"),
    *slow(
      (20, None, 2, "uniform"),  # cohorts of 7, 7, 6
      (11, None, 4, "uniform"),
      (20, 7, 2, "uniform"),
      (20, 15, 4, "uniform"),
    ),
  ],
)
def test_devices_train_equally_many_clients(n, participants, devices, kind):
  fleet = assign_depths(
    n, (1, 2, 3), 0, participants=participants, participation=kind
  )
  fleet = fleets.divide(fleet, devices, [1] * 3, exact=False)
  numbers = [jnp.array(cohort.places) for cohort in fleet.cohorts]
  load, seen = np.zeros(devices, int), []
  samples = sampling.sample_clients(fleet, jax.random.key(1), numbers)
  for cohort, sample in zip(fleet.cohorts, samples, strict=True):
    active, slots = np.asarray(sample.active), np.asarray(sample.slots)
    load += active.reshape(devices, -1).sum(axis=1)
    seen += [cohort.ids[i] for i in slots[active]]
  assert load.max() - load.min() <= 1
  assert len(set(seen)) == len(seen) == fleet.participants


def test_exact_fleets_keep_the_order_of_clients():
  fleet = fleets.divide(assign_depths(7, (1,), 0), 2, [1], exact=True)
  (sample,) = sampling.sample_clients(fleet, jax.random.key(1), [])
  assert sample.all_places
  assert sample.slots.tolist() == list(range(8))
  assert not fleet.singly(fleet.cohorts[0])
