"""Clients in chunks: the same round in less memory; chunks by hand."""

import jax
import pytest
import tiny
from refusals import refused
from worlds import distance, of_kind, play, world

from splitjax import experiment
from splitjax.engine.round import run_round
from splitjax.fleet.fleets import assign_depths, divide
from splitjax.methods import METHODS
from splitjax.parameters import pytree

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
  jax.block_until_ready(place.round(place.method, place.start(place.method)))
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


def test_more_devices_than_there_are():
  c = tiny.tiny()
  c.system.devices = 1000
  with refused("system.devices"):
    experiment.build(tiny.resolved(c))
